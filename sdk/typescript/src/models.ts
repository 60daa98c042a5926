/** What the server knows, as plain data. */

import { BaileyError } from "./errors.js";
import type { Json } from "./wire.js";

/** The wall that a sandbox stands behind. */
export type RuntimeType = "auto" | "native" | "landlock" | "bwrap" | "runc" | "crun" | "gvisor" | "docker";

/** Limits of one sandbox; what is not given is the server's default. */
export interface ResourceLimits {
  memoryBytes?: number;
  /** Processor time in microseconds for every 100,000: 50000 is half a core. */
  cpuQuota?: number;
  pidsLimit?: number;
  diskBytes?: number;
  openFiles?: number;
  outputBytes?: number;
}

/** A permission by path. */
export interface PathRule {
  pattern: string;
  permission: "none" | "view" | "read" | "write";
  priority?: number;
}

/** A tree of files on the server. */
export interface Codebase {
  id: string;
  name: string;
  owner: string;
  labels: Record<string, string>;
  version: number;
  fileCount: number;
  sizeBytes: number;
}

export type SandboxState = "created" | "running" | "paused" | "stopped" | "failed";

/** A port of a sandbox that can be reached at an address outside. */
export interface ExposedPort {
  port: number;
  address: string;
}

/** A sandbox as it was when the server was asked. */
export interface SandboxInfo {
  id: string;
  name: string;
  owner: string;
  state: SandboxState;
  stateReason: string;
  runtime: string;
  codebaseId: string;
  image: string;
  workspace: string;
  parentId: string;
  labels: Record<string, string>;
  ports: ExposedPort[];
}

/** A piece of output. */
export interface OutputChunk {
  stream: "stdout" | "stderr";
  offset: number;
  data: Buffer;
}

/** What is known of a path. */
export interface FileInfo {
  path: string;
  type: "file" | "directory" | "symlink" | "other";
  size: number;
  mode: number;
  modifyTime: string;
  linkTarget: string;
  /** The name as bytes, which need not be text. */
  rawPath: Buffer;
}

/** The files of a sandbox at one moment. */
export interface Snapshot {
  id: string;
  name: string;
  sandboxId: string;
  sizeBytes: number;
}

/** What a sandbox did to one path. */
export interface Change {
  path: string;
  kind: "added" | "modified" | "deleted" | "type";
  type: string;
  size: number;
  mode: number;
  binary: boolean;
}

/** What a sandbox uses. */
export interface Stats {
  memoryBytes: number;
  memoryPeakBytes: number;
  cpuSeconds: number;
  processes: number;
  diskBytes: number;
  execs: number;
  denials: number;
}

/** One thing that happened in a sandbox. */
export interface Event {
  cursor: string;
  time: string;
  kind: string;
  sandboxId: string;
  detail: Json;
}

/** One change of a file. `lost` says that something may have happened at the path and below: look again. */
export interface FileChange {
  kind: "made" | "changed" | "removed" | "lost";
  path: string;
  directory: boolean;
  /** The name as bytes, which need not be text. */
  rawPath: Buffer;
}

/** What a command did. */
export class ExecResult {
  readonly execId: string;
  readonly exitCode: number;
  /** The name of the signal that ended it, such as SIGKILL. */
  readonly signal: string;
  readonly timedOut: boolean;
  readonly outOfMemory: boolean;
  /** More was written than is kept. */
  readonly truncated: boolean;
  /** Why it could not be started at all. */
  readonly error: string;
  /** Seconds from start to end. */
  readonly duration: number;
  /** Seconds of processors that it used, with children that it waited for. */
  readonly userTime: number;
  readonly systemTime: number;
  /** The most memory that one of its processes had. */
  readonly maxRssBytes: number;
  /** Bytes from disks, and to disks. */
  readonly readBytes: number;
  readonly writtenBytes: number;
  readonly stdoutBytes: Buffer;
  readonly stderrBytes: Buffer;

  constructor(exit: Json, stdout: Buffer, stderr: Buffer, execId: string, truncated = false) {
    this.execId = execId;
    this.exitCode = Number(exit["code"] ?? 0);
    this.signal = exit["signal"] ?? "";
    this.timedOut = exit["timedOut"] ?? false;
    this.outOfMemory = exit["outOfMemory"] ?? false;
    this.truncated = truncated;
    this.error = exit["error"] ?? "";
    const usage = exit["rusage"] ?? {};
    this.duration = parseFloat(usage.wallTime ?? "0");
    this.userTime = parseFloat(usage.userTime ?? "0");
    this.systemTime = parseFloat(usage.systemTime ?? "0");
    this.maxRssBytes = Number(usage.maxRssBytes ?? 0);
    this.readBytes = Number(usage.readBytes ?? 0);
    this.writtenBytes = Number(usage.writtenBytes ?? 0);
    this.stdoutBytes = stdout;
    this.stderrBytes = stderr;
  }

  get stdout(): string {
    return this.stdoutBytes.toString();
  }

  get stderr(): string {
    return this.stderrBytes.toString();
  }

  /** Whether the command has succeeded. */
  get ok(): boolean {
    return this.exitCode === 0;
  }

  /** Throws a CommandFailed unless it has. */
  check(): this {
    if (!this.ok) throw new CommandFailed(this);
    return this;
  }
}

/** A command that had to succeed did not. */
export class CommandFailed extends BaileyError {
  override readonly code = "command_failed";
  readonly result: ExecResult;

  constructor(result: ExecResult) {
    let how = result.signal ? `was ended by ${result.signal}` : `exited with status ${result.exitCode}`;
    if (result.error) how = `could not be started: ${result.error}`;
    if (result.timedOut) how = "took too long";
    const last = result.stderr.trim().split("\n").at(-1);
    super(`the command ${how}${last ? `: ${last}` : ""}`, { reason: "command_failed" });
    this.result = result;
  }
}

const word = (text: string | undefined, prefix: string) => (text ?? "").replace(prefix, "").toLowerCase();

/** A command as it was when the server was asked. Its output is in Sandbox.process. */
export interface ExecInfo {
  id: string;
  sandboxId: string;
  sessionId: string;
  argv: string[];
  running: boolean;
  stdoutSize: number;
  stderrSize: number;
  /** How it ended, unless it runs. */
  result: ExecResult | undefined;
}

/** A session as it was when the server was asked. */
export interface SessionInfo {
  id: string;
  sandboxId: string;
  shell: string;
  busy: boolean;
  alive: boolean;
}

/** What an owner uses of what it may; a limit of 0 is none. */
export interface Usage {
  owner: string;
  sandboxes: number;
  sandboxesLimit: number;
  execs: number;
  execsLimit: number;
  storageBytes: number;
  storageLimitBytes: number;
  requestsPerSecondLimit: number;
}

export const codebase = (m: Json): Codebase => ({
  id: m["id"] ?? "", name: m["name"] ?? "", owner: m["owner"] ?? "", labels: m["labels"] ?? {},
  version: Number(m["version"] ?? 0), fileCount: Number(m["fileCount"] ?? 0), sizeBytes: Number(m["sizeBytes"] ?? 0),
});

export const sandboxInfo = (m: Json): SandboxInfo => ({
  id: m["id"] ?? "", name: m["name"] ?? "", owner: m["owner"] ?? "", labels: m["labels"] ?? {},
  state: word(m["state"], "SANDBOX_STATE_") as SandboxState, stateReason: m["stateReason"] ?? "",
  runtime: m["runtime"] ?? "", codebaseId: m["codebaseId"] ?? "", image: m["image"] ?? "",
  workspace: m["workspace"] ?? "", parentId: m["parentId"] ?? "", ports: (m["ports"] ?? []).map(exposedPort),
});

export const exposedPort = (m: Json): ExposedPort => ({ port: Number(m["port"] ?? 0), address: m["address"] ?? "" });

export const fileInfo = (m: Json): FileInfo => ({
  path: m["path"] ?? "", type: word(m["type"], "FILE_TYPE_") as FileInfo["type"], size: Number(m["sizeBytes"] ?? 0),
  mode: Number(m["mode"] ?? 0), modifyTime: m["modifyTime"] ?? "", linkTarget: m["linkTarget"] ?? "",
  rawPath: m["rawPath"] ? Buffer.from(m["rawPath"], "base64") : Buffer.from(m["path"] ?? ""),
});

export const fileChange = (m: Json): FileChange => ({
  kind: word(m["kind"], "FILE_CHANGE_KIND_") as FileChange["kind"], path: m["path"] ?? "", directory: m["directory"] ?? false,
  rawPath: m["rawPath"] ? Buffer.from(m["rawPath"], "base64") : Buffer.from(m["path"] ?? ""),
});

export const snapshot = (m: Json): Snapshot => ({
  id: m["id"] ?? "", name: m["name"] ?? "", sandboxId: m["sandboxId"] ?? "", sizeBytes: Number(m["sizeBytes"] ?? 0),
});

export const change = (m: Json): Change => ({
  path: m["path"] ?? "", kind: word(m["kind"], "CHANGE_KIND_") as Change["kind"], type: m["type"] ?? "",
  size: Number(m["sizeBytes"] ?? 0), mode: Number(m["mode"] ?? 0), binary: m["binary"] ?? false,
});

export const stats = (m: Json): Stats => ({
  memoryBytes: Number(m["memoryBytes"] ?? 0), memoryPeakBytes: Number(m["memoryPeakBytes"] ?? 0),
  cpuSeconds: parseFloat(m["cpuTime"] ?? "0"), processes: Number(m["processes"] ?? 0),
  diskBytes: Number(m["diskBytes"] ?? 0), execs: Number(m["execs"] ?? 0), denials: Number(m["denials"] ?? 0),
});

export const event = (m: Json): Event => ({
  cursor: m["cursor"] ?? "", time: m["time"] ?? "", kind: m["kind"] ?? "", sandboxId: m["sandboxId"] ?? "", detail: m["detail"] ?? {},
});

export const chunk = (m: Json): OutputChunk => ({
  stream: m["stream"] === "STREAM_STDERR" ? "stderr" : "stdout", offset: Number(m["offset"] ?? 0), data: Buffer.from(m["data"] ?? "", "base64"),
});

export const execResult = (m: Json): ExecResult =>
  new ExecResult(
    m["exit"] ?? {}, Buffer.from(m["stdout"] ?? "", "base64"), Buffer.from(m["stderr"] ?? "", "base64"),
    m["execId"] ?? "", Boolean(m["stdoutTruncated"] || m["stderrTruncated"]),
  );

export const execInfo = (m: Json): ExecInfo => ({
  id: m["id"] ?? "", sandboxId: m["sandboxId"] ?? "", sessionId: m["sessionId"] ?? "", argv: m["argv"] ?? [], running: m["running"] ?? false,
  stdoutSize: Number(m["stdoutBytes"] ?? 0), stderrSize: Number(m["stderrBytes"] ?? 0),
  result: m["running"] ? undefined : new ExecResult(m["exit"] ?? {}, Buffer.alloc(0), Buffer.alloc(0), m["id"] ?? "", m["outputTruncated"] ?? false),
});

export const sessionInfo = (m: Json): SessionInfo => ({
  id: m["id"] ?? "", sandboxId: m["sandboxId"] ?? "", shell: m["shell"] ?? "", busy: m["busy"] ?? false, alive: m["alive"] ?? false,
});

export const usage = (m: Json): Usage => ({
  owner: m["owner"] ?? "", sandboxes: Number(m["sandboxes"] ?? 0), sandboxesLimit: Number(m["sandboxesLimit"] ?? 0),
  execs: Number(m["execs"] ?? 0), execsLimit: Number(m["execsLimit"] ?? 0),
  storageBytes: Number(m["storageBytes"] ?? 0), storageLimitBytes: Number(m["storageLimitBytes"] ?? 0),
  requestsPerSecondLimit: Number(m["requestsPerSecondLimit"] ?? 0),
});

/** A number of seconds as the API has it. */
export const duration = (seconds: number): string => `${seconds.toFixed(9).replace(/\.?0+$/, "")}s`;
