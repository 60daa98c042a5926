/** Sandboxes for the commands of AI agents. */

export * from "./errors.js";
export { CommandFailed, ExecResult } from "./models.js";
export type {
  Change, Codebase, Event, ExecInfo, ExposedPort, FileChange, FileInfo, OutputChunk, PathRule, ResourceLimits, RuntimeType, SandboxInfo, SandboxState, SessionInfo,
  Snapshot, Stats, Usage,
} from "./models.js";
export { SandboxClient } from "./client.js";
export type { ClientOptions, Command, CreateOptions, ExecOptions, ImportOptions, StartOptions, Tree, UpdateOptions } from "./client.js";
export { Process, Sandbox, Session } from "./sandbox.js";
export type { SandboxOptions } from "./sandbox.js";
