/** The client: everything that a server does, by the names of its API. */
import type { AgentOptions } from "node:https";
import type { Change, Codebase, Event, ExecInfo, ExposedPort, FileChange, FileInfo, OutputChunk, PathRule, ResourceLimits, RuntimeType, SandboxInfo, SandboxState, SessionInfo, Snapshot, Stats, Usage } from "./models.js";
import { ExecResult } from "./models.js";
import { type Body, type Json, type Traceparent } from "./wire.js";
/**
 * A string runs under bash, or sh where there is no bash; a list is a program
 * with its arguments, and no shell is between.
 */
export type Command = string | readonly string[];
/** How to run a command. Times are in seconds. */
export interface ExecOptions {
    cwd?: string;
    env?: Record<string, string>;
    user?: string;
    timeout?: number;
    stdin?: string | Uint8Array;
    outputLimit?: number;
    /** Throw a CommandFailed unless the command succeeds. */
    check?: boolean;
    /** Give up: the command is ended. */
    signal?: AbortSignal;
}
/** How to start a command that goes on by itself. */
export interface StartOptions extends Omit<ExecOptions, "check" | "signal"> {
    openStdin?: boolean;
    terminal?: {
        rows: number;
        columns: number;
    };
}
/** How to make a sandbox. Times are in seconds. */
export interface CreateOptions {
    codebaseId?: string;
    image?: string;
    snapshotId?: string;
    name?: string;
    owner?: string;
    labels?: Record<string, string>;
    runtime?: RuntimeType;
    preset?: string;
    /** A policy as an object, or as JSON with comments. */
    policy?: string | Json;
    rules?: PathRule[];
    resources?: ResourceLimits;
    env?: Record<string, string>;
    ttl?: number;
    idleTimeout?: number;
    ports?: number[];
    /** False leaves the sandbox in the state "created". */
    start?: boolean;
}
/** What can be changed of a sandbox that stands. */
export interface UpdateOptions {
    network?: string | Json;
    rules?: PathRule[];
    labels?: Record<string, string>;
    ttl?: number;
    idleTimeout?: number;
}
/** Where the files of a codebase come from: a git repository, or a directory of the server's machine. */
export interface ImportOptions {
    git?: string;
    /** A branch, a tag or a commit; otherwise the remote's HEAD. */
    ref?: string;
    directory?: string;
    includeHistory?: boolean;
    respectGitignore?: boolean;
    /** Remove what the codebase has before. */
    replace?: boolean;
}
/** Where a file is. */
export type Tree = {
    sandboxId: string;
} | {
    codebaseId: string;
};
export interface ClientOptions {
    /** unix:/PATH, http://HOST:PORT or https://HOST:PORT; otherwise $BAILEY_ADDRESS, or a server of this program's own. */
    address?: string;
    /** Needed on every address but a unix socket of one's own; otherwise $BAILEY_TOKEN. */
    token?: string;
    /** Certificates, for https. */
    tls?: AgentOptions;
    /**
     * What requests belong to: a traceparent of W3C Trace Context, or what returns one
     * for each request. Otherwise it is the current span of a program that uses OpenTelemetry.
     */
    traceparent?: Traceparent;
}
/** A connection to a server. */
export declare class SandboxClient {
    #private;
    private constructor();
    /** Connects to a server, or starts one if none is configured. */
    static connect(options?: ClientOptions): Promise<SandboxClient>;
    get address(): string;
    /** Closes connections, and ends a server that was started for this program. */
    close(): Promise<void>;
    /** What the server is and can do. */
    server(): Promise<Json>;
    /** What an owner uses of what it may. */
    usage(owner?: string): Promise<Usage>;
    createCodebase(name?: string, owner?: string, labels?: Record<string, string>): Promise<Codebase>;
    getCodebase(codebaseId: string): Promise<Codebase>;
    listCodebases(filter?: {
        labels?: string[];
        name?: string;
    }): AsyncGenerator<Codebase>;
    deleteCodebase(codebaseId: string): Promise<void>;
    /** Puts a local directory into a codebase, all of it or nothing. */
    uploadCodebase(codebaseId: string, directory: string, options?: {
        exclude?: (path: string) => boolean;
        replace?: boolean;
    }): Promise<Codebase>;
    /** Puts the files of a tar archive into a codebase, all of them or none. */
    uploadArchive(codebaseId: string, archive: Body, replace?: boolean): Promise<Codebase>;
    /** Fills a codebase from a git repository, or from a directory of the server's machine. */
    importCodebase(codebaseId: string, options: ImportOptions): Promise<Codebase>;
    /** A codebase as a tar archive. */
    downloadCodebase(codebaseId: string): AsyncGenerator<Buffer>;
    createSandbox(options?: CreateOptions): Promise<SandboxInfo>;
    /** Makes many equal sandboxes in one request, all or an error. */
    createSandboxes(count: number, options?: CreateOptions): Promise<SandboxInfo[]>;
    getSandbox(sandboxId: string): Promise<SandboxInfo>;
    listSandboxes(filter?: {
        labels?: string[];
        states?: SandboxState[];
        codebaseId?: string;
    }): AsyncGenerator<SandboxInfo>;
    startSandbox(sandboxId: string): Promise<SandboxInfo>;
    stopSandbox(sandboxId: string, grace?: number): Promise<SandboxInfo>;
    pauseSandbox(sandboxId: string): Promise<SandboxInfo>;
    resumeSandbox(sandboxId: string): Promise<SandboxInfo>;
    destroySandbox(sandboxId: string, options?: {
        deleteCodebase?: boolean;
    }): Promise<void>;
    updateSandbox(sandboxId: string, changes: UpdateOptions): Promise<SandboxInfo>;
    stats(sandboxId: string): Promise<Stats>;
    /** What happens in a sandbox, as it happens. A lost connection is taken up again. */
    events(sandboxId: string, options?: {
        after?: string;
        kinds?: string[];
        signal?: AbortSignal;
    }): AsyncGenerator<Event>;
    exposePort(sandboxId: string, port: number, address?: string): Promise<ExposedPort>;
    unexposePort(sandboxId: string, port: number): Promise<void>;
    createSnapshot(sandboxId: string, name?: string): Promise<Snapshot>;
    listSnapshots(sandboxId: string): AsyncGenerator<Snapshot>;
    deleteSnapshot(sandboxId: string, snapshotId: string): Promise<void>;
    /** A snapshot's whole tree as a tar archive. */
    exportSnapshot(sandboxId: string, snapshotId: string): AsyncGenerator<Buffer>;
    forkSandbox(sandboxId: string, options?: {
        count?: number;
        snapshotId?: string;
        name?: string;
        labels?: Record<string, string>;
    }): Promise<SandboxInfo[]>;
    rollbackSandbox(sandboxId: string, snapshotId: string): Promise<SandboxInfo>;
    /** What the sandbox changed in its codebase. */
    diffSandbox(sandboxId: string, paths?: string[]): Promise<Change[]>;
    /** The same as a patch that "git apply" takes. */
    patchSandbox(sandboxId: string, paths?: string[]): Promise<Buffer>;
    /** Writes what the sandbox changed into its codebase, all of it or nothing. */
    applySandbox(sandboxId: string, options?: {
        paths?: string[];
        merge?: boolean;
    }): Promise<Change[]>;
    /** Runs a command and waits for its end. */
    exec(sandboxId: string, command: Command, options?: ExecOptions): Promise<ExecResult>;
    /** Starts a command that goes on by itself, and returns its id. */
    startExec(sandboxId: string, command: Command, options?: StartOptions): Promise<string>;
    /**
     * A command's output from its beginning on, and last how it ended, without the
     * output. A lost connection is taken up again where it was.
     */
    attachExec(sandboxId: string, execId: string, signal?: AbortSignal): AsyncGenerator<OutputChunk | ExecResult>;
    getExec(sandboxId: string, execId: string): Promise<ExecInfo>;
    /** Commands that run, and those that have ended lately. */
    listExecs(sandboxId: string, options?: {
        runningOnly?: boolean;
    }): AsyncGenerator<ExecInfo>;
    /** Waits for the end of a command; undefined if it has not come in time. */
    waitExec(sandboxId: string, execId: string, timeout?: number): Promise<ExecResult | undefined>;
    /** Writes to the input of a command, at an offset, and returns the next one. */
    writeStdin(sandboxId: string, execId: string, data: Uint8Array, offset: number, close?: boolean): Promise<number>;
    resizeTerminal(sandboxId: string, execId: string, rows: number, columns: number): Promise<void>;
    signalExec(sandboxId: string, execId: string, signal?: string): Promise<void>;
    createSession(sandboxId: string, options?: {
        shell?: string;
        cwd?: string;
        env?: Record<string, string>;
    }): Promise<string>;
    getSession(sandboxId: string, sessionId: string): Promise<SessionInfo>;
    listSessions(sandboxId: string): AsyncGenerator<SessionInfo>;
    runSession(sandboxId: string, sessionId: string, command: string, options?: {
        timeout?: number;
        stdin?: string | Uint8Array;
    }): Promise<ExecResult>;
    /** The same with the output as it comes, and last how it ended. */
    streamSession(sandboxId: string, sessionId: string, command: string, options?: {
        timeout?: number;
    }): AsyncGenerator<OutputChunk | ExecResult>;
    interruptSession(sandboxId: string, sessionId: string): Promise<void>;
    closeSession(sandboxId: string, sessionId: string): Promise<void>;
    /** A whole file of any size. */
    readFile(tree: Tree, path: string): Promise<Buffer>;
    /** A file in pieces. */
    streamFile(tree: Tree, path: string, offset?: number): AsyncGenerator<Buffer>;
    /** Replaces or makes a file. Readers see the old content or the new, never a part. */
    writeFile(tree: Tree, path: string, content: Body, options?: {
        mode?: number;
        makeParents?: boolean;
    }): Promise<FileInfo>;
    statFile(tree: Tree, path: string): Promise<FileInfo>;
    listFiles(tree: Tree, path?: string, options?: {
        recursive?: boolean;
    }): AsyncGenerator<FileInfo>;
    /** What matches a pattern such as "src/**\/*.ts" in a directory. */
    globFiles(tree: Tree, pattern: string, options?: {
        path?: string;
    }): AsyncGenerator<FileInfo>;
    makeDirectory(tree: Tree, path: string): Promise<FileInfo>;
    removeFile(tree: Tree, path: string, options?: {
        recursive?: boolean;
    }): Promise<void>;
    moveFile(tree: Tree, path: string, newPath: string): Promise<FileInfo>;
    /**
     * What changes in a directory of a sandbox, from now on. The first is `lost`, which says that one has to look;
     * it comes again after a lost connection, which is taken up again.
     */
    watchFiles(sandboxId: string, path?: string, options?: {
        recursive?: boolean;
        signal?: AbortSignal;
    }): AsyncGenerator<FileChange>;
    /** Puts a local directory into a sandbox; returns how many files there were. */
    uploadDirectory(sandboxId: string, directory: string, path?: string): Promise<number>;
    /** A directory of a sandbox as a tar archive. */
    downloadDirectory(sandboxId: string, path?: string): AsyncGenerator<Buffer>;
}
