/** The client: everything that a server does, by the names of its API. */

import type { AgentOptions } from "node:https";

import * as embedded from "./embedded.js";
import { BaileyError } from "./errors.js";
import * as models from "./models.js";
import type { Change, Codebase, Event, ExecInfo, ExposedPort, FileChange, FileInfo, OutputChunk, PathRule, ResourceLimits, RuntimeType, SandboxInfo, SandboxState, SessionInfo, Snapshot, Stats, Usage } from "./models.js";
import { ExecResult } from "./models.js";
import { pack } from "./tar.js";
import { Wire, pause, type Body, type Json, type Traceparent } from "./wire.js";

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
  terminal?: { rows: number; columns: number };
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
export type Tree = { sandboxId: string } | { codebaseId: string };

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
export class SandboxClient {
  readonly #wire: Wire;
  readonly #embedded: boolean;
  #closed = false;

  private constructor(wire: Wire, own: boolean) {
    this.#wire = wire;
    this.#embedded = own;
  }

  /** Connects to a server, or starts one if none is configured. */
  static async connect(options: ClientOptions = {}): Promise<SandboxClient> {
    const configured = options.address || process.env["BAILEY_ADDRESS"];
    const address = configured || (await embedded.acquire());
    return new SandboxClient(new Wire(address, options.token || process.env["BAILEY_TOKEN"], options.tls, options.traceparent), !configured);
  }

  get address(): string {
    return this.#wire.address;
  }

  /** Closes connections, and ends a server that was started for this program. */
  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    this.#wire.close();
    if (this.#embedded) await embedded.release();
  }

  /** What the server is and can do. */
  async server(): Promise<Json> {
    return this.#wire.call("ServerService/GetServer", {});
  }

  /** What an owner uses of what it may. */
  async usage(owner = ""): Promise<Usage> {
    return models.usage(await this.#wire.call("ServerService/GetUsage", { owner }));
  }

  // Codebases.

  async createCodebase(name = "", owner = "", labels: Record<string, string> = {}): Promise<Codebase> {
    return models.codebase(await this.#wire.call("CodebaseService/CreateCodebase", { name, owner, labels }));
  }

  async getCodebase(codebaseId: string): Promise<Codebase> {
    return models.codebase(await this.#wire.call("CodebaseService/GetCodebase", { codebaseId }));
  }

  async *listCodebases(filter: { labels?: string[]; name?: string } = {}): AsyncGenerator<Codebase> {
    for await (const m of this.#pages("CodebaseService/ListCodebases", "codebases", filter)) yield models.codebase(m);
  }

  async deleteCodebase(codebaseId: string): Promise<void> {
    await this.#wire.call("CodebaseService/DeleteCodebase", { codebaseId });
  }

  /** Puts a local directory into a codebase, all of it or nothing. */
  async uploadCodebase(codebaseId: string, directory: string, options: { exclude?: (path: string) => boolean; replace?: boolean } = {}): Promise<Codebase> {
    return this.uploadArchive(codebaseId, pack(directory, options.exclude), options.replace);
  }

  /** Puts the files of a tar archive into a codebase, all of them or none. */
  async uploadArchive(codebaseId: string, archive: Body, replace = false): Promise<Codebase> {
    const path = `/v1/codebases/${encodeURIComponent(codebaseId)}/archive`;
    return models.codebase(await this.#wire.send("POST", path, replace ? { replace: "true" } : {}, archive, "application/x-tar"));
  }

  /** Fills a codebase from a git repository, or from a directory of the server's machine. */
  async importCodebase(codebaseId: string, options: ImportOptions): Promise<Codebase> {
    const { git, ref, includeHistory, directory, respectGitignore, replace, ...unknown } = options;
    refuse(unknown);
    const source = directory === undefined ? { git: { url: git, ref, includeHistory } } : { directory };
    return models.codebase(await this.#wire.call("CodebaseService/ImportCodebase", { codebaseId, ...source, respectGitignore, replace }));
  }

  /** A codebase as a tar archive. */
  downloadCodebase(codebaseId: string): AsyncGenerator<Buffer> {
    return this.#wire.fetch(`/v1/codebases/${encodeURIComponent(codebaseId)}/archive`, {});
  }

  // Sandboxes.

  async createSandbox(options: CreateOptions = {}): Promise<SandboxInfo> {
    return models.sandboxInfo(await this.#wire.call("SandboxService/CreateSandbox", creation(options)));
  }

  /** Makes many equal sandboxes in one request, all or an error. */
  async createSandboxes(count: number, options: CreateOptions = {}): Promise<SandboxInfo[]> {
    const answer = await this.#wire.call("SandboxService/BatchCreateSandboxes", { template: creation(options), count });
    const made = (answer["sandboxes"] ?? []).map(models.sandboxInfo) as SandboxInfo[];
    const failure = answer["failures"]?.[0];
    if (failure) {
      await Promise.all(made.map((s) => this.destroySandbox(s.id)));
      throw new BaileyError(failure.message ?? "", failure);
    }
    return made;
  }

  async getSandbox(sandboxId: string): Promise<SandboxInfo> {
    return models.sandboxInfo(await this.#wire.call("SandboxService/GetSandbox", { sandboxId }));
  }

  async *listSandboxes(filter: { labels?: string[]; states?: SandboxState[]; codebaseId?: string } = {}): AsyncGenerator<SandboxInfo> {
    const request = { ...filter, states: filter.states?.map((s) => `SANDBOX_STATE_${s.toUpperCase()}`) };
    for await (const m of this.#pages("SandboxService/ListSandboxes", "sandboxes", request)) yield models.sandboxInfo(m);
  }

  async startSandbox(sandboxId: string): Promise<SandboxInfo> {
    return models.sandboxInfo(await this.#wire.call("SandboxService/StartSandbox", { sandboxId }));
  }

  async stopSandbox(sandboxId: string, grace?: number): Promise<SandboxInfo> {
    return models.sandboxInfo(await this.#wire.call("SandboxService/StopSandbox", { sandboxId, grace: seconds(grace) }));
  }

  async pauseSandbox(sandboxId: string): Promise<SandboxInfo> {
    return models.sandboxInfo(await this.#wire.call("SandboxService/PauseSandbox", { sandboxId }));
  }

  async resumeSandbox(sandboxId: string): Promise<SandboxInfo> {
    return models.sandboxInfo(await this.#wire.call("SandboxService/ResumeSandbox", { sandboxId }));
  }

  async destroySandbox(sandboxId: string, options: { deleteCodebase?: boolean } = {}): Promise<void> {
    await this.#wire.call("SandboxService/DestroySandbox", { sandboxId, deleteCodebase: options.deleteCodebase ?? false });
  }

  async updateSandbox(sandboxId: string, changes: UpdateOptions): Promise<SandboxInfo> {
    const { network, rules, labels, ttl, idleTimeout, ...unknown } = changes;
    refuse(unknown);
    const request = {
      sandboxId, network: network === undefined ? undefined : policy(network),
      rules: rules && { rules }, labels: labels && { labels },
      ttl: seconds(ttl), idleTimeout: seconds(idleTimeout),
    };
    return models.sandboxInfo(await this.#wire.call("SandboxService/UpdateSandbox", request));
  }

  async stats(sandboxId: string): Promise<Stats> {
    return models.stats(await this.#wire.call("SandboxService/GetStats", { sandboxId }));
  }

  /** What happens in a sandbox, as it happens. A lost connection is taken up again. */
  async *events(sandboxId: string, options: { after?: string; kinds?: string[]; signal?: AbortSignal } = {}): AsyncGenerator<Event> {
    let after = options.after ?? "";
    yield* persistent(() => this.#wire.stream("SandboxService/WatchEvents", { sandboxId, after, kinds: options.kinds }, options.signal), (m) => {
      const e = models.event(m);
      after = e.cursor;
      return e;
    });
  }

  async exposePort(sandboxId: string, port: number, address = ""): Promise<ExposedPort> {
    return models.exposedPort(await this.#wire.call("SandboxService/ExposePort", { sandboxId, port, address }));
  }

  async unexposePort(sandboxId: string, port: number): Promise<void> {
    await this.#wire.call("SandboxService/UnexposePort", { sandboxId, port });
  }

  // Snapshots.

  async createSnapshot(sandboxId: string, name = ""): Promise<Snapshot> {
    return models.snapshot(await this.#wire.call("SandboxService/CreateSnapshot", { sandboxId, name }));
  }

  async *listSnapshots(sandboxId: string): AsyncGenerator<Snapshot> {
    for await (const m of this.#pages("SandboxService/ListSnapshots", "snapshots", { sandboxId })) yield models.snapshot(m);
  }

  async deleteSnapshot(sandboxId: string, snapshotId: string): Promise<void> {
    await this.#wire.call("SandboxService/DeleteSnapshot", { sandboxId, snapshotId });
  }

  /** A snapshot's whole tree as a tar archive. */
  exportSnapshot(sandboxId: string, snapshotId: string): AsyncGenerator<Buffer> {
    return this.#wire.fetch(`/v1/sandboxes/${encodeURIComponent(sandboxId)}/snapshots/${encodeURIComponent(snapshotId)}/archive`, {});
  }

  async forkSandbox(sandboxId: string, options: { count?: number; snapshotId?: string; name?: string; labels?: Record<string, string> } = {}): Promise<SandboxInfo[]> {
    const answer = await this.#wire.call("SandboxService/ForkSandbox", { sandboxId, count: 1, ...options });
    return (answer["sandboxes"] ?? []).map(models.sandboxInfo);
  }

  async rollbackSandbox(sandboxId: string, snapshotId: string): Promise<SandboxInfo> {
    return models.sandboxInfo(await this.#wire.call("SandboxService/RollbackSandbox", { sandboxId, snapshotId }));
  }

  /** What the sandbox changed in its codebase. */
  async diffSandbox(sandboxId: string, paths: string[] = []): Promise<Change[]> {
    return ((await this.#wire.call("SandboxService/DiffSandbox", { sandboxId, paths }))["changes"] ?? []).map(models.change);
  }

  /** The same as a patch that "git apply" takes. */
  async patchSandbox(sandboxId: string, paths: string[] = []): Promise<Buffer> {
    const answer = await this.#wire.call("SandboxService/DiffSandbox", { sandboxId, paths, format: "DIFF_FORMAT_PATCH" });
    return Buffer.from(answer["patch"] ?? "", "base64");
  }

  /** Writes what the sandbox changed into its codebase, all of it or nothing. */
  async applySandbox(sandboxId: string, options: { paths?: string[]; merge?: boolean } = {}): Promise<Change[]> {
    return ((await this.#wire.call("SandboxService/ApplySandbox", { sandboxId, ...options }))["changes"] ?? []).map(models.change);
  }

  // Commands.

  /** Runs a command and waits for its end. */
  async exec(sandboxId: string, command: Command, options: ExecOptions = {}): Promise<ExecResult> {
    const { check, signal, ...rest } = options;
    const result = models.execResult(await this.#wire.call("ExecService/RunExec", { sandboxId, command: commandMessage(command, rest) }, signal));
    return check ? result.check() : result;
  }

  /** Starts a command that goes on by itself, and returns its id. */
  async startExec(sandboxId: string, command: Command, options: StartOptions = {}): Promise<string> {
    return (await this.#wire.call("ExecService/StartExec", { sandboxId, command: commandMessage(command, options) }))["id"] ?? "";
  }

  /**
   * A command's output from its beginning on, and last how it ended, without the
   * output. A lost connection is taken up again where it was.
   */
  async *attachExec(sandboxId: string, execId: string, signal?: AbortSignal): AsyncGenerator<OutputChunk | ExecResult> {
    const offsets = { stdout: 0, stderr: 0 };
    const open = () => this.#wire.stream("ExecService/AttachExec", { sandboxId, execId, stdoutOffset: offsets.stdout, stderrOffset: offsets.stderr }, signal);
    for await (const m of persistent(open, (m) => m)) {
      if (m["output"]) {
        const c = models.chunk(m["output"]);
        offsets[c.stream] = c.offset + c.data.length;
        yield c;
      } else if (m["exit"]) {
        yield new ExecResult(m["exit"], Buffer.alloc(0), Buffer.alloc(0), execId);
        return;
      }
    }
  }

  async getExec(sandboxId: string, execId: string): Promise<ExecInfo> {
    return models.execInfo(await this.#wire.call("ExecService/GetExec", { sandboxId, execId }));
  }

  /** Commands that run, and those that have ended lately. */
  async *listExecs(sandboxId: string, options: { runningOnly?: boolean } = {}): AsyncGenerator<ExecInfo> {
    const request = { sandboxId, runningOnly: options.runningOnly };
    for await (const m of this.#pages("ExecService/ListExecs", "execs", request)) yield models.execInfo(m);
  }

  /** Waits for the end of a command; undefined if it has not come in time. */
  async waitExec(sandboxId: string, execId: string, timeout?: number): Promise<ExecResult | undefined> {
    const answer = await this.#wire.call("ExecService/WaitExec", { sandboxId, execId, timeout: seconds(timeout) });
    if (answer["running"]) return undefined;
    return new ExecResult(answer["exit"] ?? {}, Buffer.alloc(0), Buffer.alloc(0), execId, answer["outputTruncated"] ?? false);
  }

  /** Writes to the input of a command, at an offset, and returns the next one. */
  async writeStdin(sandboxId: string, execId: string, data: Uint8Array, offset: number, close = false): Promise<number> {
    const request = { sandboxId, execId, offset, data: Buffer.from(data).toString("base64"), close };
    return Number((await this.#wire.call("ExecService/WriteStdin", request))["offset"] ?? 0);
  }

  async resizeTerminal(sandboxId: string, execId: string, rows: number, columns: number): Promise<void> {
    await this.#wire.call("ExecService/ResizeTerminal", { sandboxId, execId, size: { rows, columns } });
  }

  async signalExec(sandboxId: string, execId: string, signal = "SIGKILL"): Promise<void> {
    await this.#wire.call("ExecService/SignalExec", { sandboxId, execId, signal });
  }

  // Sessions.

  async createSession(sandboxId: string, options: { shell?: string; cwd?: string; env?: Record<string, string> } = {}): Promise<string> {
    const { shell, cwd, env, ...unknown } = options;
    refuse(unknown);
    return (await this.#wire.call("SessionService/CreateSession", { sandboxId, shell, cwd, env }))["id"] ?? "";
  }

  async getSession(sandboxId: string, sessionId: string): Promise<SessionInfo> {
    return models.sessionInfo(await this.#wire.call("SessionService/GetSession", { sandboxId, sessionId }));
  }

  async *listSessions(sandboxId: string): AsyncGenerator<SessionInfo> {
    for await (const m of this.#pages("SessionService/ListSessions", "sessions", { sandboxId })) yield models.sessionInfo(m);
  }

  async runSession(sandboxId: string, sessionId: string, command: string, options: { timeout?: number; stdin?: string | Uint8Array } = {}): Promise<ExecResult> {
    const request = { sandboxId, sessionId, command, timeout: seconds(options.timeout), stdin: base64(options.stdin) };
    return models.execResult(await this.#wire.call("SessionService/RunSession", request));
  }

  /** The same with the output as it comes, and last how it ended. */
  async *streamSession(sandboxId: string, sessionId: string, command: string, options: { timeout?: number } = {}): AsyncGenerator<OutputChunk | ExecResult> {
    let execId = "";
    for await (const m of this.#wire.stream("SessionService/StreamSession", { sandboxId, sessionId, command, timeout: seconds(options.timeout) })) {
      if (m["started"]) execId = m["started"].execId ?? "";
      else if (m["output"]) yield models.chunk(m["output"]);
      else if (m["exit"]) yield new ExecResult(m["exit"], Buffer.alloc(0), Buffer.alloc(0), execId);
    }
  }

  async interruptSession(sandboxId: string, sessionId: string): Promise<void> {
    await this.#wire.call("SessionService/InterruptSession", { sandboxId, sessionId });
  }

  async closeSession(sandboxId: string, sessionId: string): Promise<void> {
    await this.#wire.call("SessionService/CloseSession", { sandboxId, sessionId });
  }

  // Files.

  /** A whole file of any size. */
  async readFile(tree: Tree, path: string): Promise<Buffer> {
    const pieces: Buffer[] = [];
    for await (const piece of this.streamFile(tree, path)) pieces.push(piece);
    return Buffer.concat(pieces);
  }

  /** A file in pieces. */
  streamFile(tree: Tree, path: string, offset = 0): AsyncGenerator<Buffer> {
    return this.#wire.fetch(`${treePath(tree)}/files:content`, { path, offset: String(offset) });
  }

  /** Replaces or makes a file. Readers see the old content or the new, never a part. */
  async writeFile(tree: Tree, path: string, content: Body, options: { mode?: number; makeParents?: boolean } = {}): Promise<FileInfo> {
    const query = { path, mode: String(options.mode ?? 0), make_parents: String(options.makeParents ?? true) };
    return models.fileInfo(await this.#wire.send("PUT", `${treePath(tree)}/files:content`, query, content));
  }

  async statFile(tree: Tree, path: string): Promise<FileInfo> {
    return models.fileInfo(await this.#wire.call("FileService/StatFile", { ...tree, path }));
  }

  async *listFiles(tree: Tree, path = "", options: { recursive?: boolean } = {}): AsyncGenerator<FileInfo> {
    for await (const m of this.#pages("FileService/ListFiles", "files", { ...tree, path, ...options })) yield models.fileInfo(m);
  }

  /** What matches a pattern such as "src/**\/*.ts" in a directory. */
  async *globFiles(tree: Tree, pattern: string, options: { path?: string } = {}): AsyncGenerator<FileInfo> {
    for await (const m of this.#pages("FileService/GlobFiles", "files", { ...tree, pattern, path: options.path })) yield models.fileInfo(m);
  }

  async makeDirectory(tree: Tree, path: string): Promise<FileInfo> {
    return models.fileInfo(await this.#wire.call("FileService/MakeDirectory", { ...tree, path }));
  }

  async removeFile(tree: Tree, path: string, options: { recursive?: boolean } = {}): Promise<void> {
    await this.#wire.call("FileService/RemoveFile", { ...tree, path, ...options });
  }

  async moveFile(tree: Tree, path: string, newPath: string): Promise<FileInfo> {
    return models.fileInfo(await this.#wire.call("FileService/MoveFile", { ...tree, path, newPath }));
  }

  /**
   * What changes in a directory of a sandbox, from now on. The first is `lost`, which says that one has to look;
   * it comes again after a lost connection, which is taken up again.
   */
  async *watchFiles(sandboxId: string, path = "", options: { recursive?: boolean; signal?: AbortSignal } = {}): AsyncGenerator<FileChange> {
    const request = { sandboxId, path, recursive: options.recursive };
    yield* persistent(() => this.#wire.stream("FileService/WatchFiles", request, options.signal), models.fileChange);
  }

  /** Puts a local directory into a sandbox; returns how many files there were. */
  async uploadDirectory(sandboxId: string, directory: string, path = ""): Promise<number> {
    const answer = await this.#wire.send("PUT", `/v1/sandboxes/${encodeURIComponent(sandboxId)}/files:archive`, { path }, pack(directory), "application/x-tar");
    return Number(answer["fileCount"] ?? 0);
  }

  /** A directory of a sandbox as a tar archive. */
  downloadDirectory(sandboxId: string, path = ""): AsyncGenerator<Buffer> {
    return this.#wire.fetch(`/v1/sandboxes/${encodeURIComponent(sandboxId)}/files:archive`, { path });
  }

  async *#pages(method: string, noun: string, request: Json): AsyncGenerator<Json> {
    for (let pageToken = ""; ; ) {
      const answer = await this.#wire.call(method, { ...request, pageToken });
      yield* answer[noun] ?? [];
      pageToken = answer["nextPageToken"] ?? "";
      if (!pageToken) return;
    }
  }
}

/** Opens a stream again while it breaks in ways that may pass. */
async function* persistent<T>(open: () => AsyncGenerator<Json>, read: (m: Json) => T): AsyncGenerator<T> {
  for (let attempt = 0; ; attempt++) {
    try {
      for await (const m of open()) {
        attempt = 0;
        yield read(m);
      }
      return;
    } catch (error) {
      if (!(error instanceof BaileyError) || !error.retryable || attempt >= 5) throw error;
    }
    await pause(attempt);
  }
}

const seconds = (n: number | undefined) => (n === undefined ? undefined : models.duration(n));
const base64 = (data: string | Uint8Array | undefined) => (data === undefined ? undefined : Buffer.from(data as Uint8Array).toString("base64"));
const policy = (p: string | Json) => (typeof p === "string" ? p : JSON.stringify(p));

function treePath(tree: Tree): string {
  return "sandboxId" in tree ? `/v1/sandboxes/${encodeURIComponent(tree.sandboxId)}` : `/v1/codebases/${encodeURIComponent(tree.codebaseId)}`;
}

/** Refuses what is left of options: a misspelt one would be taken for a default. */
function refuse(unknown: object): void {
  const names = Object.keys(unknown);
  if (names.length > 0) throw new TypeError(`there is no option ${names.map((n) => JSON.stringify(n)).join(", ")}`);
}

function creation(o: CreateOptions): Json {
  const { codebaseId, image, snapshotId, name, owner, labels, runtime, preset, policy: given, rules, resources, env, ttl, idleTimeout, ports, start, ...unknown } = o;
  refuse(unknown);
  return {
    codebaseId, image, snapshotId, name, owner, labels, runtime, preset, policy: given === undefined ? undefined : policy(given),
    rules, resources: resources && limits(resources), env, ttl: seconds(ttl), idleTimeout: seconds(idleTimeout), ports, createOnly: start === false,
  };
}

function limits(o: ResourceLimits): Json {
  const { memoryBytes, cpuQuota, pidsLimit, diskBytes, openFiles, outputBytes, ...unknown } = o;
  refuse(unknown);
  return { memoryBytes, cpuQuota, pidsLimit, diskBytes, openFiles, outputBytes };
}

function commandMessage(command: Command, o: StartOptions): Json {
  const { cwd, env, user, timeout, stdin, outputLimit, openStdin, terminal, ...unknown } = o;
  refuse(unknown);
  const what = typeof command === "string" ? { shell: command } : { argv: command };
  return { ...what, cwd, env, user, openStdin, terminal, timeout: seconds(timeout), stdin: base64(stdin), outputLimitBytes: outputLimit };
}
