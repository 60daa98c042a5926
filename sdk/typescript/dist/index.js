/** Sandboxes for the commands of AI agents. */
export * from "./errors.js";
export { CommandFailed, ExecResult } from "./models.js";
export { SandboxClient } from "./client.js";
export { Process, Sandbox, Session } from "./sandbox.js";
