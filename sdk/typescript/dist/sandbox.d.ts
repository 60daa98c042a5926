/** Sandboxes, as a program wants to use them. */
import { SandboxClient, type Command, type CreateOptions, type ExecOptions, type StartOptions, type UpdateOptions } from "./client.js";
import type { Change, Event, ExecInfo, ExposedPort, FileChange, FileInfo, OutputChunk, SandboxInfo, SessionInfo, Snapshot, Stats } from "./models.js";
import { ExecResult } from "./models.js";
import type { Body } from "./wire.js";
/** How to make a sandbox, and with which client. */
export interface SandboxOptions extends CreateOptions {
    client?: SandboxClient;
    /** Paths of the local directory to leave out, with all that is below them. */
    exclude?: (path: string) => boolean;
}
/**
 * A place to run commands in.
 *
 *     const sb = await Sandbox.fromLocal(".");
 *     try {
 *       console.log((await sb.run("npm test")).stdout);
 *     } finally {
 *       await sb.destroy();
 *     }
 */
export declare class Sandbox implements AsyncDisposable {
    #private;
    readonly client: SandboxClient;
    constructor(client: SandboxClient, info: SandboxInfo, owns?: {
        client?: boolean;
        codebase?: boolean;
    });
    /** Makes a sandbox from a codebase, an image, or nothing at all. */
    static create(options?: SandboxOptions): Promise<Sandbox>;
    /** Makes a sandbox with a copy of a local directory at /workspace, which itself never changes. */
    static fromLocal(path?: string, options?: SandboxOptions): Promise<Sandbox>;
    /** Uses a sandbox that is there. */
    static connect(sandboxId: string, client?: SandboxClient): Promise<Sandbox>;
    get id(): string;
    get codebaseId(): string;
    /** The sandbox as it was last seen. */
    get info(): SandboxInfo;
    /** Asks the server how the sandbox is. */
    refresh(): Promise<SandboxInfo>;
    start(): Promise<void>;
    /** Ends every process and keeps the files. */
    stop(grace?: number): Promise<void>;
    pause(): Promise<void>;
    resume(): Promise<void>;
    update(changes: UpdateOptions): Promise<void>;
    /** Ends the sandbox and removes what it wrote, with the codebase if fromLocal made it. */
    destroy(options?: {
        deleteCodebase?: boolean;
    }): Promise<void>;
    [Symbol.asyncDispose](): Promise<void>;
    /** Runs a command and waits for its end. */
    run(command: Command, options?: ExecOptions): Promise<ExecResult>;
    /** The same as run. */
    exec(command: Command, options?: ExecOptions): Promise<ExecResult>;
    /** Starts a command that goes on by itself. */
    spawn(command: Command, options?: StartOptions): Promise<Process>;
    /** Runs a command and yields what it writes, as it comes. */
    stream(command: Command, options?: StartOptions): AsyncGenerator<OutputChunk>;
    /** A command that was started before, by this program or another. */
    process(execId: string): Process;
    /** Commands that run, and those that have ended lately. */
    execs(options?: {
        runningOnly?: boolean;
    }): Promise<ExecInfo[]>;
    sessions(): Promise<SessionInfo[]>;
    /** Starts a shell that keeps its directory and variables between commands. */
    session(options?: {
        shell?: string;
        cwd?: string;
        env?: Record<string, string>;
    }): Promise<Session>;
    readFile(path: string): Promise<Buffer>;
    readText(path: string): Promise<string>;
    writeFile(path: string, content: Body, options?: {
        mode?: number;
    }): Promise<FileInfo>;
    statFile(path: string): Promise<FileInfo>;
    listFiles(path?: string, options?: {
        recursive?: boolean;
    }): Promise<FileInfo[]>;
    /** What matches a pattern such as "src/**\/*.ts" in a directory. */
    globFiles(pattern: string, options?: {
        path?: string;
    }): Promise<FileInfo[]>;
    makeDirectory(path: string): Promise<FileInfo>;
    removeFile(path: string, options?: {
        recursive?: boolean;
    }): Promise<void>;
    moveFile(path: string, newPath: string): Promise<FileInfo>;
    /** What changes in a directory, from now on. The first is `lost`: look, and then nothing is missed. */
    watchFiles(path?: string, options?: {
        recursive?: boolean;
        signal?: AbortSignal;
    }): AsyncGenerator<FileChange>;
    /** Puts a local directory into the workspace. */
    upload(directory: string, path?: string): Promise<number>;
    /** A directory of the workspace as a tar archive. */
    download(path?: string): AsyncGenerator<Buffer>;
    /** Keeps the files as they are now. */
    snapshot(name?: string): Promise<Snapshot>;
    snapshots(): Promise<Snapshot[]>;
    /** Goes back to the files of a snapshot. */
    rollback(snapshot: Snapshot | string): Promise<void>;
    /** Makes sandboxes that begin with the files of this one, now or at a snapshot. */
    fork(count?: number, snapshot?: Snapshot | string): Promise<Sandbox[]>;
    diff(paths?: string[]): Promise<Change[]>;
    patch(paths?: string[]): Promise<Buffer>;
    apply(options?: {
        paths?: string[];
        merge?: boolean;
    }): Promise<Change[]>;
    exposePort(port: number): Promise<ExposedPort>;
    unexposePort(port: number): Promise<void>;
    stats(): Promise<Stats>;
    events(options?: {
        after?: string;
        kinds?: string[];
        signal?: AbortSignal;
    }): AsyncGenerator<Event>;
}
/** A command that goes on by itself. Iterate over it for its output. */
export declare class Process implements AsyncIterable<OutputChunk> {
    #private;
    readonly id: string;
    constructor(client: SandboxClient, sandboxId: string, execId: string);
    /** How the command ended, once that is known. */
    get result(): ExecResult | undefined;
    [Symbol.asyncIterator](): AsyncGenerator<OutputChunk>;
    /** Waits for the end; undefined if it has not come in time. */
    wait(timeout?: number): Promise<ExecResult | undefined>;
    /** Waits for the end, and returns all that the command wrote. */
    output(): Promise<ExecResult>;
    /** Writes to the input of a command that was started with openStdin. */
    write(data: string | Uint8Array): Promise<void>;
    closeStdin(): Promise<void>;
    /** Sends a signal, such as SIGTERM, to the command and its process group. */
    signal(name: string): Promise<void>;
    kill(): Promise<void>;
    resize(rows: number, columns: number): Promise<void>;
}
/** A shell that keeps its directory and variables between commands. */
export declare class Session implements AsyncDisposable {
    #private;
    readonly id: string;
    constructor(client: SandboxClient, sandboxId: string, sessionId: string);
    /** Runs a line, or several, and waits for the end. */
    run(command: string, options?: {
        timeout?: number;
        stdin?: string | Uint8Array;
        check?: boolean;
    }): Promise<ExecResult>;
    /** The same as run. */
    exec(command: string, options?: {
        timeout?: number;
        stdin?: string | Uint8Array;
        check?: boolean;
    }): Promise<ExecResult>;
    /** Runs a line and yields what it writes, as it comes. */
    stream(command: string, options?: {
        timeout?: number;
    }): AsyncGenerator<OutputChunk>;
    /** Sends SIGINT to the command that runs. */
    interrupt(): Promise<void>;
    /** Ends the shell and what it left running. */
    close(): Promise<void>;
    [Symbol.asyncDispose](): Promise<void>;
}
