/** Sandboxes, as a program wants to use them. */
import { basename, resolve } from "node:path";
import { SandboxClient } from "./client.js";
import { ExecResult } from "./models.js";
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
export class Sandbox {
    client;
    #info;
    #ownsClient;
    #ownsCodebase;
    #destroyed = false;
    constructor(client, info, owns = {}) {
        this.client = client;
        this.#info = info;
        this.#ownsClient = owns.client ?? false;
        this.#ownsCodebase = owns.codebase ?? false;
    }
    /** Makes a sandbox from a codebase, an image, or nothing at all. */
    static async create(options = {}) {
        const { client, exclude: _, ...rest } = options;
        return withClient(client, async (c, own) => new Sandbox(c, await c.createSandbox(rest), { client: own }));
    }
    /** Makes a sandbox with a copy of a local directory at /workspace, which itself never changes. */
    static async fromLocal(path = ".", options = {}) {
        const { client, exclude, ...rest } = options;
        return withClient(client, async (c, own) => {
            const codebase = await c.createCodebase(basename(resolve(path)), rest.owner);
            try {
                await c.uploadCodebase(codebase.id, path, { exclude });
                return new Sandbox(c, await c.createSandbox({ ...rest, codebaseId: codebase.id }), { client: own, codebase: true });
            }
            catch (error) {
                await c.deleteCodebase(codebase.id);
                throw error;
            }
        });
    }
    /** Uses a sandbox that is there. */
    static async connect(sandboxId, client) {
        return withClient(client, async (c, own) => new Sandbox(c, await c.getSandbox(sandboxId), { client: own }));
    }
    get id() {
        return this.#info.id;
    }
    get codebaseId() {
        return this.#info.codebaseId;
    }
    /** The sandbox as it was last seen. */
    get info() {
        return this.#info;
    }
    /** Asks the server how the sandbox is. */
    async refresh() {
        return (this.#info = await this.client.getSandbox(this.id));
    }
    // Life.
    async start() {
        this.#info = await this.client.startSandbox(this.id);
    }
    /** Ends every process and keeps the files. */
    async stop(grace) {
        this.#info = await this.client.stopSandbox(this.id, grace);
    }
    async pause() {
        this.#info = await this.client.pauseSandbox(this.id);
    }
    async resume() {
        this.#info = await this.client.resumeSandbox(this.id);
    }
    async update(changes) {
        this.#info = await this.client.updateSandbox(this.id, changes);
    }
    /** Ends the sandbox and removes what it wrote, with the codebase if fromLocal made it. */
    async destroy(options = {}) {
        if (this.#destroyed)
            return;
        await this.client.destroySandbox(this.id, { deleteCodebase: options.deleteCodebase ?? this.#ownsCodebase });
        this.#destroyed = true;
        if (this.#ownsClient)
            await this.client.close();
    }
    async [Symbol.asyncDispose]() {
        await this.destroy();
    }
    // Commands.
    /** Runs a command and waits for its end. */
    run(command, options) {
        return this.client.exec(this.id, command, options);
    }
    /** The same as run. */
    exec(command, options) {
        return this.run(command, options);
    }
    /** Starts a command that goes on by itself. */
    async spawn(command, options) {
        return new Process(this.client, this.id, await this.client.startExec(this.id, command, options));
    }
    /** Runs a command and yields what it writes, as it comes. */
    async *stream(command, options) {
        const process = await this.spawn(command, options);
        let ended = false;
        try {
            yield* process;
            ended = true;
        }
        finally {
            if (!ended)
                await process.kill();
        }
    }
    /** A command that was started before, by this program or another. */
    process(execId) {
        return new Process(this.client, this.id, execId);
    }
    /** Commands that run, and those that have ended lately. */
    execs(options) {
        return collect(this.client.listExecs(this.id, options));
    }
    sessions() {
        return collect(this.client.listSessions(this.id));
    }
    /** Starts a shell that keeps its directory and variables between commands. */
    async session(options) {
        return new Session(this.client, this.id, await this.client.createSession(this.id, options));
    }
    // Files.
    readFile(path) {
        return this.client.readFile({ sandboxId: this.id }, path);
    }
    async readText(path) {
        return (await this.readFile(path)).toString();
    }
    writeFile(path, content, options) {
        return this.client.writeFile({ sandboxId: this.id }, path, content, options);
    }
    statFile(path) {
        return this.client.statFile({ sandboxId: this.id }, path);
    }
    async listFiles(path = "", options) {
        return collect(this.client.listFiles({ sandboxId: this.id }, path, options));
    }
    /** What matches a pattern such as "src/**\/*.ts" in a directory. */
    async globFiles(pattern, options) {
        return collect(this.client.globFiles({ sandboxId: this.id }, pattern, options));
    }
    makeDirectory(path) {
        return this.client.makeDirectory({ sandboxId: this.id }, path);
    }
    removeFile(path, options) {
        return this.client.removeFile({ sandboxId: this.id }, path, options);
    }
    moveFile(path, newPath) {
        return this.client.moveFile({ sandboxId: this.id }, path, newPath);
    }
    /** What changes in a directory, from now on. The first is `lost`: look, and then nothing is missed. */
    watchFiles(path = "", options) {
        return this.client.watchFiles(this.id, path, options);
    }
    /** Puts a local directory into the workspace. */
    upload(directory, path = "") {
        return this.client.uploadDirectory(this.id, directory, path);
    }
    /** A directory of the workspace as a tar archive. */
    download(path = "") {
        return this.client.downloadDirectory(this.id, path);
    }
    // Snapshots.
    /** Keeps the files as they are now. */
    snapshot(name = "") {
        return this.client.createSnapshot(this.id, name);
    }
    snapshots() {
        return collect(this.client.listSnapshots(this.id));
    }
    /** Goes back to the files of a snapshot. */
    async rollback(snapshot) {
        this.#info = await this.client.rollbackSandbox(this.id, idOf(snapshot));
    }
    /** Makes sandboxes that begin with the files of this one, now or at a snapshot. */
    async fork(count = 1, snapshot = "") {
        const made = await this.client.forkSandbox(this.id, { count, snapshotId: idOf(snapshot) });
        return made.map((info) => new Sandbox(this.client, info));
    }
    diff(paths) {
        return this.client.diffSandbox(this.id, paths);
    }
    patch(paths) {
        return this.client.patchSandbox(this.id, paths);
    }
    apply(options) {
        return this.client.applySandbox(this.id, options);
    }
    // The rest.
    exposePort(port) {
        return this.client.exposePort(this.id, port);
    }
    unexposePort(port) {
        return this.client.unexposePort(this.id, port);
    }
    stats() {
        return this.client.stats(this.id);
    }
    events(options) {
        return this.client.events(this.id, options);
    }
}
/** A command that goes on by itself. Iterate over it for its output. */
export class Process {
    id;
    #client;
    #sandboxId;
    #offset = 0;
    #result;
    constructor(client, sandboxId, execId) {
        this.#client = client;
        this.#sandboxId = sandboxId;
        this.id = execId;
    }
    /** How the command ended, once that is known. */
    get result() {
        return this.#result;
    }
    async *[Symbol.asyncIterator]() {
        for await (const item of this.#client.attachExec(this.#sandboxId, this.id)) {
            if (item instanceof ExecResult)
                this.#result = item;
            else
                yield item;
        }
    }
    /** Waits for the end; undefined if it has not come in time. */
    async wait(timeout) {
        return (this.#result = await this.#client.waitExec(this.#sandboxId, this.id, timeout));
    }
    /** Waits for the end, and returns all that the command wrote. */
    async output() {
        const parts = { stdout: [], stderr: [] };
        for await (const item of this.#client.attachExec(this.#sandboxId, this.id)) {
            if (item instanceof ExecResult)
                this.#result = item;
            else
                parts[item.stream].push(item.data);
        }
        return Object.assign(Object.create(ExecResult.prototype), this.#result, {
            stdoutBytes: Buffer.concat(parts.stdout), stderrBytes: Buffer.concat(parts.stderr),
        });
    }
    /** Writes to the input of a command that was started with openStdin. */
    async write(data) {
        this.#offset = await this.#client.writeStdin(this.#sandboxId, this.id, Buffer.from(data), this.#offset);
    }
    async closeStdin() {
        await this.#client.writeStdin(this.#sandboxId, this.id, Buffer.alloc(0), this.#offset, true);
    }
    /** Sends a signal, such as SIGTERM, to the command and its process group. */
    signal(name) {
        return this.#client.signalExec(this.#sandboxId, this.id, name);
    }
    kill() {
        return this.signal("SIGKILL");
    }
    resize(rows, columns) {
        return this.#client.resizeTerminal(this.#sandboxId, this.id, rows, columns);
    }
}
/** A shell that keeps its directory and variables between commands. */
export class Session {
    id;
    #client;
    #sandboxId;
    #closed = false;
    constructor(client, sandboxId, sessionId) {
        this.#client = client;
        this.#sandboxId = sandboxId;
        this.id = sessionId;
    }
    /** Runs a line, or several, and waits for the end. */
    async run(command, options = {}) {
        const result = await this.#client.runSession(this.#sandboxId, this.id, command, options);
        return options.check ? result.check() : result;
    }
    /** The same as run. */
    exec(command, options) {
        return this.run(command, options);
    }
    /** Runs a line and yields what it writes, as it comes. */
    async *stream(command, options) {
        for await (const item of this.#client.streamSession(this.#sandboxId, this.id, command, options)) {
            if (!(item instanceof ExecResult))
                yield item;
        }
    }
    /** Sends SIGINT to the command that runs. */
    interrupt() {
        return this.#client.interruptSession(this.#sandboxId, this.id);
    }
    /** Ends the shell and what it left running. */
    async close() {
        if (this.#closed)
            return;
        this.#closed = true;
        await this.#client.closeSession(this.#sandboxId, this.id);
    }
    async [Symbol.asyncDispose]() {
        await this.close();
    }
}
/** Does something with a client, which is connected if there is none, and closed if that fails. */
async function withClient(client, use) {
    if (client)
        return use(client, false);
    const own = await SandboxClient.connect();
    try {
        return await use(own, true);
    }
    catch (error) {
        await own.close();
        throw error;
    }
}
async function collect(items) {
    const all = [];
    for await (const item of items)
        all.push(item);
    return all;
}
const idOf = (snapshot) => (typeof snapshot === "string" ? snapshot : snapshot.id);
