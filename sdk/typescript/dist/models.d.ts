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
export declare class ExecResult {
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
    constructor(exit: Json, stdout: Buffer, stderr: Buffer, execId: string, truncated?: boolean);
    get stdout(): string;
    get stderr(): string;
    /** Whether the command has succeeded. */
    get ok(): boolean;
    /** Throws a CommandFailed unless it has. */
    check(): this;
}
/** A command that had to succeed did not. */
export declare class CommandFailed extends BaileyError {
    readonly code = "command_failed";
    readonly result: ExecResult;
    constructor(result: ExecResult);
}
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
export declare const codebase: (m: Json) => Codebase;
export declare const sandboxInfo: (m: Json) => SandboxInfo;
export declare const exposedPort: (m: Json) => ExposedPort;
export declare const fileInfo: (m: Json) => FileInfo;
export declare const fileChange: (m: Json) => FileChange;
export declare const snapshot: (m: Json) => Snapshot;
export declare const change: (m: Json) => Change;
export declare const stats: (m: Json) => Stats;
export declare const event: (m: Json) => Event;
export declare const chunk: (m: Json) => OutputChunk;
export declare const execResult: (m: Json) => ExecResult;
export declare const execInfo: (m: Json) => ExecInfo;
export declare const sessionInfo: (m: Json) => SessionInfo;
export declare const usage: (m: Json) => Usage;
/** A number of seconds as the API has it. */
export declare const duration: (seconds: number) => string;
