/** Sandboxes, as a program wants to use them. */

import { basename, resolve } from "node:path";

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
export class Sandbox implements AsyncDisposable {
  readonly client: SandboxClient;
  #info: SandboxInfo;
  readonly #ownsClient: boolean;
  readonly #ownsCodebase: boolean;
  #destroyed = false;

  constructor(client: SandboxClient, info: SandboxInfo, owns: { client?: boolean; codebase?: boolean } = {}) {
    this.client = client;
    this.#info = info;
    this.#ownsClient = owns.client ?? false;
    this.#ownsCodebase = owns.codebase ?? false;
  }

  /** Makes a sandbox from a codebase, an image, or nothing at all. */
  static async create(options: SandboxOptions = {}): Promise<Sandbox> {
    const { client, exclude: _, ...rest } = options;
    return withClient(client, async (c, own) => new Sandbox(c, await c.createSandbox(rest), { client: own }));
  }

  /** Makes a sandbox with a copy of a local directory at /workspace, which itself never changes. */
  static async fromLocal(path = ".", options: SandboxOptions = {}): Promise<Sandbox> {
    const { client, exclude, ...rest } = options;
    return withClient(client, async (c, own) => {
      const codebase = await c.createCodebase(basename(resolve(path)), rest.owner);
      try {
        await c.uploadCodebase(codebase.id, path, { exclude });
        return new Sandbox(c, await c.createSandbox({ ...rest, codebaseId: codebase.id }), { client: own, codebase: true });
      } catch (error) {
        await c.deleteCodebase(codebase.id);
        throw error;
      }
    });
  }

  /** Uses a sandbox that is there. */
  static async connect(sandboxId: string, client?: SandboxClient): Promise<Sandbox> {
    return withClient(client, async (c, own) => new Sandbox(c, await c.getSandbox(sandboxId), { client: own }));
  }

  get id(): string {
    return this.#info.id;
  }

  get codebaseId(): string {
    return this.#info.codebaseId;
  }

  /** The sandbox as it was last seen. */
  get info(): SandboxInfo {
    return this.#info;
  }

  /** Asks the server how the sandbox is. */
  async refresh(): Promise<SandboxInfo> {
    return (this.#info = await this.client.getSandbox(this.id));
  }

  // Life.

  async start(): Promise<void> {
    this.#info = await this.client.startSandbox(this.id);
  }

  /** Ends every process and keeps the files. */
  async stop(grace?: number): Promise<void> {
    this.#info = await this.client.stopSandbox(this.id, grace);
  }

  async pause(): Promise<void> {
    this.#info = await this.client.pauseSandbox(this.id);
  }

  async resume(): Promise<void> {
    this.#info = await this.client.resumeSandbox(this.id);
  }

  async update(changes: UpdateOptions): Promise<void> {
    this.#info = await this.client.updateSandbox(this.id, changes);
  }

  /** Ends the sandbox and removes what it wrote, with the codebase if fromLocal made it. */
  async destroy(options: { deleteCodebase?: boolean } = {}): Promise<void> {
    if (this.#destroyed) return;
    await this.client.destroySandbox(this.id, { deleteCodebase: options.deleteCodebase ?? this.#ownsCodebase });
    this.#destroyed = true;
    if (this.#ownsClient) await this.client.close();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.destroy();
  }

  // Commands.

  /** Runs a command and waits for its end. */
  run(command: Command, options?: ExecOptions): Promise<ExecResult> {
    return this.client.exec(this.id, command, options);
  }

  /** The same as run. */
  exec(command: Command, options?: ExecOptions): Promise<ExecResult> {
    return this.run(command, options);
  }

  /** Starts a command that goes on by itself. */
  async spawn(command: Command, options?: StartOptions): Promise<Process> {
    return new Process(this.client, this.id, await this.client.startExec(this.id, command, options));
  }

  /** Runs a command and yields what it writes, as it comes. */
  async *stream(command: Command, options?: StartOptions): AsyncGenerator<OutputChunk> {
    const process = await this.spawn(command, options);
    let ended = false;
    try {
      yield* process;
      ended = true;
    } finally {
      if (!ended) await process.kill();
    }
  }

  /** A command that was started before, by this program or another. */
  process(execId: string): Process {
    return new Process(this.client, this.id, execId);
  }

  /** Commands that run, and those that have ended lately. */
  execs(options?: { runningOnly?: boolean }): Promise<ExecInfo[]> {
    return collect(this.client.listExecs(this.id, options));
  }

  sessions(): Promise<SessionInfo[]> {
    return collect(this.client.listSessions(this.id));
  }

  /** Starts a shell that keeps its directory and variables between commands. */
  async session(options?: { shell?: string; cwd?: string; env?: Record<string, string> }): Promise<Session> {
    return new Session(this.client, this.id, await this.client.createSession(this.id, options));
  }

  // Files.

  readFile(path: string): Promise<Buffer> {
    return this.client.readFile({ sandboxId: this.id }, path);
  }

  async readText(path: string): Promise<string> {
    return (await this.readFile(path)).toString();
  }

  writeFile(path: string, content: Body, options?: { mode?: number }): Promise<FileInfo> {
    return this.client.writeFile({ sandboxId: this.id }, path, content, options);
  }

  statFile(path: string): Promise<FileInfo> {
    return this.client.statFile({ sandboxId: this.id }, path);
  }

  async listFiles(path = "", options?: { recursive?: boolean }): Promise<FileInfo[]> {
    return collect(this.client.listFiles({ sandboxId: this.id }, path, options));
  }

  /** What matches a pattern such as "src/**\/*.ts" in a directory. */
  async globFiles(pattern: string, options?: { path?: string }): Promise<FileInfo[]> {
    return collect(this.client.globFiles({ sandboxId: this.id }, pattern, options));
  }

  makeDirectory(path: string): Promise<FileInfo> {
    return this.client.makeDirectory({ sandboxId: this.id }, path);
  }

  removeFile(path: string, options?: { recursive?: boolean }): Promise<void> {
    return this.client.removeFile({ sandboxId: this.id }, path, options);
  }

  moveFile(path: string, newPath: string): Promise<FileInfo> {
    return this.client.moveFile({ sandboxId: this.id }, path, newPath);
  }

  /** What changes in a directory, from now on. The first is `lost`: look, and then nothing is missed. */
  watchFiles(path = "", options?: { recursive?: boolean; signal?: AbortSignal }): AsyncGenerator<FileChange> {
    return this.client.watchFiles(this.id, path, options);
  }

  /** Puts a local directory into the workspace. */
  upload(directory: string, path = ""): Promise<number> {
    return this.client.uploadDirectory(this.id, directory, path);
  }

  /** A directory of the workspace as a tar archive. */
  download(path = ""): AsyncGenerator<Buffer> {
    return this.client.downloadDirectory(this.id, path);
  }

  // Snapshots.

  /** Keeps the files as they are now. */
  snapshot(name = ""): Promise<Snapshot> {
    return this.client.createSnapshot(this.id, name);
  }

  snapshots(): Promise<Snapshot[]> {
    return collect(this.client.listSnapshots(this.id));
  }

  /** Goes back to the files of a snapshot. */
  async rollback(snapshot: Snapshot | string): Promise<void> {
    this.#info = await this.client.rollbackSandbox(this.id, idOf(snapshot));
  }

  /** Makes sandboxes that begin with the files of this one, now or at a snapshot. */
  async fork(count = 1, snapshot: Snapshot | string = ""): Promise<Sandbox[]> {
    const made = await this.client.forkSandbox(this.id, { count, snapshotId: idOf(snapshot) });
    return made.map((info) => new Sandbox(this.client, info));
  }

  diff(paths?: string[]): Promise<Change[]> {
    return this.client.diffSandbox(this.id, paths);
  }

  patch(paths?: string[]): Promise<Buffer> {
    return this.client.patchSandbox(this.id, paths);
  }

  apply(options?: { paths?: string[]; merge?: boolean }): Promise<Change[]> {
    return this.client.applySandbox(this.id, options);
  }

  // The rest.

  exposePort(port: number): Promise<ExposedPort> {
    return this.client.exposePort(this.id, port);
  }

  unexposePort(port: number): Promise<void> {
    return this.client.unexposePort(this.id, port);
  }

  stats(): Promise<Stats> {
    return this.client.stats(this.id);
  }

  events(options?: { after?: string; kinds?: string[]; signal?: AbortSignal }): AsyncGenerator<Event> {
    return this.client.events(this.id, options);
  }
}

/** A command that goes on by itself. Iterate over it for its output. */
export class Process implements AsyncIterable<OutputChunk> {
  readonly id: string;
  readonly #client: SandboxClient;
  readonly #sandboxId: string;
  #offset = 0;
  #result: ExecResult | undefined;

  constructor(client: SandboxClient, sandboxId: string, execId: string) {
    this.#client = client;
    this.#sandboxId = sandboxId;
    this.id = execId;
  }

  /** How the command ended, once that is known. */
  get result(): ExecResult | undefined {
    return this.#result;
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<OutputChunk> {
    for await (const item of this.#client.attachExec(this.#sandboxId, this.id)) {
      if (item instanceof ExecResult) this.#result = item;
      else yield item;
    }
  }

  /** Waits for the end; undefined if it has not come in time. */
  async wait(timeout?: number): Promise<ExecResult | undefined> {
    return (this.#result = await this.#client.waitExec(this.#sandboxId, this.id, timeout));
  }

  /** Waits for the end, and returns all that the command wrote. */
  async output(): Promise<ExecResult> {
    const parts: Record<"stdout" | "stderr", Buffer[]> = { stdout: [], stderr: [] };
    for await (const item of this.#client.attachExec(this.#sandboxId, this.id)) {
      if (item instanceof ExecResult) this.#result = item;
      else parts[item.stream].push(item.data);
    }
    return Object.assign(Object.create(ExecResult.prototype) as ExecResult, this.#result, {
      stdoutBytes: Buffer.concat(parts.stdout), stderrBytes: Buffer.concat(parts.stderr),
    });
  }

  /** Writes to the input of a command that was started with openStdin. */
  async write(data: string | Uint8Array): Promise<void> {
    this.#offset = await this.#client.writeStdin(this.#sandboxId, this.id, Buffer.from(data as Uint8Array), this.#offset);
  }

  async closeStdin(): Promise<void> {
    await this.#client.writeStdin(this.#sandboxId, this.id, Buffer.alloc(0), this.#offset, true);
  }

  /** Sends a signal, such as SIGTERM, to the command and its process group. */
  signal(name: string): Promise<void> {
    return this.#client.signalExec(this.#sandboxId, this.id, name);
  }

  kill(): Promise<void> {
    return this.signal("SIGKILL");
  }

  resize(rows: number, columns: number): Promise<void> {
    return this.#client.resizeTerminal(this.#sandboxId, this.id, rows, columns);
  }
}

/** A shell that keeps its directory and variables between commands. */
export class Session implements AsyncDisposable {
  readonly id: string;
  readonly #client: SandboxClient;
  readonly #sandboxId: string;
  #closed = false;

  constructor(client: SandboxClient, sandboxId: string, sessionId: string) {
    this.#client = client;
    this.#sandboxId = sandboxId;
    this.id = sessionId;
  }

  /** Runs a line, or several, and waits for the end. */
  async run(command: string, options: { timeout?: number; stdin?: string | Uint8Array; check?: boolean } = {}): Promise<ExecResult> {
    const result = await this.#client.runSession(this.#sandboxId, this.id, command, options);
    return options.check ? result.check() : result;
  }

  /** The same as run. */
  exec(command: string, options?: { timeout?: number; stdin?: string | Uint8Array; check?: boolean }): Promise<ExecResult> {
    return this.run(command, options);
  }

  /** Runs a line and yields what it writes, as it comes. */
  async *stream(command: string, options?: { timeout?: number }): AsyncGenerator<OutputChunk> {
    for await (const item of this.#client.streamSession(this.#sandboxId, this.id, command, options)) {
      if (!(item instanceof ExecResult)) yield item;
    }
  }

  /** Sends SIGINT to the command that runs. */
  interrupt(): Promise<void> {
    return this.#client.interruptSession(this.#sandboxId, this.id);
  }

  /** Ends the shell and what it left running. */
  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    await this.#client.closeSession(this.#sandboxId, this.id);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }
}

/** Does something with a client, which is connected if there is none, and closed if that fails. */
async function withClient<T>(client: SandboxClient | undefined, use: (client: SandboxClient, own: boolean) => Promise<T>): Promise<T> {
  if (client) return use(client, false);
  const own = await SandboxClient.connect();
  try {
    return await use(own, true);
  } catch (error) {
    await own.close();
    throw error;
  }
}

async function collect<T>(items: AsyncIterable<T>): Promise<T[]> {
  const all: T[] = [];
  for await (const item of items) all.push(item);
  return all;
}

const idOf = (snapshot: Snapshot | string) => (typeof snapshot === "string" ? snapshot : snapshot.id);
