/** Sandboxes for the commands of AI agents. */

export * from "./errors.js";
export { CommandFailed, ExecResult } from "./models.js";
export type {
  Change, Codebase, Event, ExposedPort, FileChange, FileInfo, OutputChunk, PathRule, ResourceLimits, RuntimeType, SandboxInfo, SandboxState, Snapshot, Stats,
} from "./models.js";
export { SandboxClient } from "./client.js";
export type { ClientOptions, Command, CreateOptions, ExecOptions, StartOptions, Tree, UpdateOptions } from "./client.js";
export { Process, Sandbox, Session } from "./sandbox.js";
export type { SandboxOptions } from "./sandbox.js";
