/** The client: everything that a server does, by the names of its API. */
import * as embedded from "./embedded.js";
import { BaileyError } from "./errors.js";
import * as models from "./models.js";
import { ExecResult } from "./models.js";
import { pack } from "./tar.js";
import { Wire, pause } from "./wire.js";
/** A connection to a server. */
export class SandboxClient {
    #wire;
    #embedded;
    #closed = false;
    constructor(wire, own) {
        this.#wire = wire;
        this.#embedded = own;
    }
    /** Connects to a server, or starts one if none is configured. */
    static async connect(options = {}) {
        const configured = options.address || process.env["BAILEY_ADDRESS"];
        const address = configured || (await embedded.acquire());
        return new SandboxClient(new Wire(address, options.token || process.env["BAILEY_TOKEN"], options.tls, options.traceparent), !configured);
    }
    get address() {
        return this.#wire.address;
    }
    /** Closes connections, and ends a server that was started for this program. */
    async close() {
        if (this.#closed)
            return;
        this.#closed = true;
        this.#wire.close();
        if (this.#embedded)
            await embedded.release();
    }
    /** What the server is and can do. */
    async server() {
        return this.#wire.call("ServerService/GetServer", {});
    }
    /** What an owner uses of what it may. */
    async usage(owner = "") {
        return models.usage(await this.#wire.call("ServerService/GetUsage", { owner }));
    }
    // Codebases.
    async createCodebase(name = "", owner = "", labels = {}) {
        return models.codebase(await this.#wire.call("CodebaseService/CreateCodebase", { name, owner, labels }));
    }
    async getCodebase(codebaseId) {
        return models.codebase(await this.#wire.call("CodebaseService/GetCodebase", { codebaseId }));
    }
    async *listCodebases(filter = {}) {
        for await (const m of this.#pages("CodebaseService/ListCodebases", "codebases", filter))
            yield models.codebase(m);
    }
    async deleteCodebase(codebaseId) {
        await this.#wire.call("CodebaseService/DeleteCodebase", { codebaseId });
    }
    /** Puts a local directory into a codebase, all of it or nothing. */
    async uploadCodebase(codebaseId, directory, options = {}) {
        return this.uploadArchive(codebaseId, pack(directory, options.exclude), options.replace);
    }
    /** Puts the files of a tar archive into a codebase, all of them or none. */
    async uploadArchive(codebaseId, archive, replace = false) {
        const path = `/v1/codebases/${encodeURIComponent(codebaseId)}/archive`;
        return models.codebase(await this.#wire.send("POST", path, replace ? { replace: "true" } : {}, archive, "application/x-tar"));
    }
    /** Fills a codebase from a git repository, or from a directory of the server's machine. */
    async importCodebase(codebaseId, options) {
        const { git, ref, includeHistory, directory, respectGitignore, replace, ...unknown } = options;
        refuse(unknown);
        const source = directory === undefined ? { git: { url: git, ref, includeHistory } } : { directory };
        return models.codebase(await this.#wire.call("CodebaseService/ImportCodebase", { codebaseId, ...source, respectGitignore, replace }));
    }
    /** A codebase as a tar archive. */
    downloadCodebase(codebaseId) {
        return this.#wire.fetch(`/v1/codebases/${encodeURIComponent(codebaseId)}/archive`, {});
    }
    // Sandboxes.
    async createSandbox(options = {}) {
        return models.sandboxInfo(await this.#wire.call("SandboxService/CreateSandbox", creation(options)));
    }
    /** Makes many equal sandboxes in one request, all or an error. */
    async createSandboxes(count, options = {}) {
        const answer = await this.#wire.call("SandboxService/BatchCreateSandboxes", { template: creation(options), count });
        const made = (answer["sandboxes"] ?? []).map(models.sandboxInfo);
        const failure = answer["failures"]?.[0];
        if (failure) {
            await Promise.all(made.map((s) => this.destroySandbox(s.id)));
            throw new BaileyError(failure.message ?? "", failure);
        }
        return made;
    }
    async getSandbox(sandboxId) {
        return models.sandboxInfo(await this.#wire.call("SandboxService/GetSandbox", { sandboxId }));
    }
    async *listSandboxes(filter = {}) {
        const request = { ...filter, states: filter.states?.map((s) => `SANDBOX_STATE_${s.toUpperCase()}`) };
        for await (const m of this.#pages("SandboxService/ListSandboxes", "sandboxes", request))
            yield models.sandboxInfo(m);
    }
    async startSandbox(sandboxId) {
        return models.sandboxInfo(await this.#wire.call("SandboxService/StartSandbox", { sandboxId }));
    }
    async stopSandbox(sandboxId, grace) {
        return models.sandboxInfo(await this.#wire.call("SandboxService/StopSandbox", { sandboxId, grace: seconds(grace) }));
    }
    async pauseSandbox(sandboxId) {
        return models.sandboxInfo(await this.#wire.call("SandboxService/PauseSandbox", { sandboxId }));
    }
    async resumeSandbox(sandboxId) {
        return models.sandboxInfo(await this.#wire.call("SandboxService/ResumeSandbox", { sandboxId }));
    }
    async destroySandbox(sandboxId, options = {}) {
        await this.#wire.call("SandboxService/DestroySandbox", { sandboxId, deleteCodebase: options.deleteCodebase ?? false });
    }
    async updateSandbox(sandboxId, changes) {
        const { network, rules, labels, ttl, idleTimeout, ...unknown } = changes;
        refuse(unknown);
        const request = {
            sandboxId, network: network === undefined ? undefined : policy(network),
            rules: rules && { rules }, labels: labels && { labels },
            ttl: seconds(ttl), idleTimeout: seconds(idleTimeout),
        };
        return models.sandboxInfo(await this.#wire.call("SandboxService/UpdateSandbox", request));
    }
    async stats(sandboxId) {
        return models.stats(await this.#wire.call("SandboxService/GetStats", { sandboxId }));
    }
    /** What happens in a sandbox, as it happens. A lost connection is taken up again. */
    async *events(sandboxId, options = {}) {
        let after = options.after ?? "";
        yield* persistent(() => this.#wire.stream("SandboxService/WatchEvents", { sandboxId, after, kinds: options.kinds }, options.signal), (m) => {
            const e = models.event(m);
            after = e.cursor;
            return e;
        });
    }
    async exposePort(sandboxId, port, address = "") {
        return models.exposedPort(await this.#wire.call("SandboxService/ExposePort", { sandboxId, port, address }));
    }
    async unexposePort(sandboxId, port) {
        await this.#wire.call("SandboxService/UnexposePort", { sandboxId, port });
    }
    // Snapshots.
    async createSnapshot(sandboxId, name = "") {
        return models.snapshot(await this.#wire.call("SandboxService/CreateSnapshot", { sandboxId, name }));
    }
    async *listSnapshots(sandboxId) {
        for await (const m of this.#pages("SandboxService/ListSnapshots", "snapshots", { sandboxId }))
            yield models.snapshot(m);
    }
    async deleteSnapshot(sandboxId, snapshotId) {
        await this.#wire.call("SandboxService/DeleteSnapshot", { sandboxId, snapshotId });
    }
    /** A snapshot's whole tree as a tar archive. */
    exportSnapshot(sandboxId, snapshotId) {
        return this.#wire.fetch(`/v1/sandboxes/${encodeURIComponent(sandboxId)}/snapshots/${encodeURIComponent(snapshotId)}/archive`, {});
    }
    async forkSandbox(sandboxId, options = {}) {
        const answer = await this.#wire.call("SandboxService/ForkSandbox", { sandboxId, count: 1, ...options });
        return (answer["sandboxes"] ?? []).map(models.sandboxInfo);
    }
    async rollbackSandbox(sandboxId, snapshotId) {
        return models.sandboxInfo(await this.#wire.call("SandboxService/RollbackSandbox", { sandboxId, snapshotId }));
    }
    /** What the sandbox changed in its codebase. */
    async diffSandbox(sandboxId, paths = []) {
        return ((await this.#wire.call("SandboxService/DiffSandbox", { sandboxId, paths }))["changes"] ?? []).map(models.change);
    }
    /** The same as a patch that "git apply" takes. */
    async patchSandbox(sandboxId, paths = []) {
        const answer = await this.#wire.call("SandboxService/DiffSandbox", { sandboxId, paths, format: "DIFF_FORMAT_PATCH" });
        return Buffer.from(answer["patch"] ?? "", "base64");
    }
    /** Writes what the sandbox changed into its codebase, all of it or nothing. */
    async applySandbox(sandboxId, options = {}) {
        return ((await this.#wire.call("SandboxService/ApplySandbox", { sandboxId, ...options }))["changes"] ?? []).map(models.change);
    }
    // Commands.
    /** Runs a command and waits for its end. */
    async exec(sandboxId, command, options = {}) {
        const { check, signal, ...rest } = options;
        const result = models.execResult(await this.#wire.call("ExecService/RunExec", { sandboxId, command: commandMessage(command, rest) }, signal));
        return check ? result.check() : result;
    }
    /** Starts a command that goes on by itself, and returns its id. */
    async startExec(sandboxId, command, options = {}) {
        return (await this.#wire.call("ExecService/StartExec", { sandboxId, command: commandMessage(command, options) }))["id"] ?? "";
    }
    /**
     * A command's output from its beginning on, and last how it ended, without the
     * output. A lost connection is taken up again where it was.
     */
    async *attachExec(sandboxId, execId, signal) {
        const offsets = { stdout: 0, stderr: 0 };
        const open = () => this.#wire.stream("ExecService/AttachExec", { sandboxId, execId, stdoutOffset: offsets.stdout, stderrOffset: offsets.stderr }, signal);
        for await (const m of persistent(open, (m) => m)) {
            if (m["output"]) {
                const c = models.chunk(m["output"]);
                offsets[c.stream] = c.offset + c.data.length;
                yield c;
            }
            else if (m["exit"]) {
                yield new ExecResult(m["exit"], Buffer.alloc(0), Buffer.alloc(0), execId);
                return;
            }
        }
    }
    async getExec(sandboxId, execId) {
        return models.execInfo(await this.#wire.call("ExecService/GetExec", { sandboxId, execId }));
    }
    /** Commands that run, and those that have ended lately. */
    async *listExecs(sandboxId, options = {}) {
        const request = { sandboxId, runningOnly: options.runningOnly };
        for await (const m of this.#pages("ExecService/ListExecs", "execs", request))
            yield models.execInfo(m);
    }
    /** Waits for the end of a command; undefined if it has not come in time. */
    async waitExec(sandboxId, execId, timeout) {
        const answer = await this.#wire.call("ExecService/WaitExec", { sandboxId, execId, timeout: seconds(timeout) });
        if (answer["running"])
            return undefined;
        return new ExecResult(answer["exit"] ?? {}, Buffer.alloc(0), Buffer.alloc(0), execId, answer["outputTruncated"] ?? false);
    }
    /** Writes to the input of a command, at an offset, and returns the next one. */
    async writeStdin(sandboxId, execId, data, offset, close = false) {
        const request = { sandboxId, execId, offset, data: Buffer.from(data).toString("base64"), close };
        return Number((await this.#wire.call("ExecService/WriteStdin", request))["offset"] ?? 0);
    }
    async resizeTerminal(sandboxId, execId, rows, columns) {
        await this.#wire.call("ExecService/ResizeTerminal", { sandboxId, execId, size: { rows, columns } });
    }
    async signalExec(sandboxId, execId, signal = "SIGKILL") {
        await this.#wire.call("ExecService/SignalExec", { sandboxId, execId, signal });
    }
    // Sessions.
    async createSession(sandboxId, options = {}) {
        const { shell, cwd, env, ...unknown } = options;
        refuse(unknown);
        return (await this.#wire.call("SessionService/CreateSession", { sandboxId, shell, cwd, env }))["id"] ?? "";
    }
    async getSession(sandboxId, sessionId) {
        return models.sessionInfo(await this.#wire.call("SessionService/GetSession", { sandboxId, sessionId }));
    }
    async *listSessions(sandboxId) {
        for await (const m of this.#pages("SessionService/ListSessions", "sessions", { sandboxId }))
            yield models.sessionInfo(m);
    }
    async runSession(sandboxId, sessionId, command, options = {}) {
        const request = { sandboxId, sessionId, command, timeout: seconds(options.timeout), stdin: base64(options.stdin) };
        return models.execResult(await this.#wire.call("SessionService/RunSession", request));
    }
    /** The same with the output as it comes, and last how it ended. */
    async *streamSession(sandboxId, sessionId, command, options = {}) {
        let execId = "";
        for await (const m of this.#wire.stream("SessionService/StreamSession", { sandboxId, sessionId, command, timeout: seconds(options.timeout) })) {
            if (m["started"])
                execId = m["started"].execId ?? "";
            else if (m["output"])
                yield models.chunk(m["output"]);
            else if (m["exit"])
                yield new ExecResult(m["exit"], Buffer.alloc(0), Buffer.alloc(0), execId);
        }
    }
    async interruptSession(sandboxId, sessionId) {
        await this.#wire.call("SessionService/InterruptSession", { sandboxId, sessionId });
    }
    async closeSession(sandboxId, sessionId) {
        await this.#wire.call("SessionService/CloseSession", { sandboxId, sessionId });
    }
    // Files.
    /** A whole file of any size. */
    async readFile(tree, path) {
        const pieces = [];
        for await (const piece of this.streamFile(tree, path))
            pieces.push(piece);
        return Buffer.concat(pieces);
    }
    /** A file in pieces. */
    streamFile(tree, path, offset = 0) {
        return this.#wire.fetch(`${treePath(tree)}/files:content`, { path, offset: String(offset) });
    }
    /** Replaces or makes a file. Readers see the old content or the new, never a part. */
    async writeFile(tree, path, content, options = {}) {
        const query = { path, mode: String(options.mode ?? 0), make_parents: String(options.makeParents ?? true) };
        return models.fileInfo(await this.#wire.send("PUT", `${treePath(tree)}/files:content`, query, content));
    }
    async statFile(tree, path) {
        return models.fileInfo(await this.#wire.call("FileService/StatFile", { ...tree, path }));
    }
    async *listFiles(tree, path = "", options = {}) {
        for await (const m of this.#pages("FileService/ListFiles", "files", { ...tree, path, ...options }))
            yield models.fileInfo(m);
    }
    /** What matches a pattern such as "src/**\/*.ts" in a directory. */
    async *globFiles(tree, pattern, options = {}) {
        for await (const m of this.#pages("FileService/GlobFiles", "files", { ...tree, pattern, path: options.path }))
            yield models.fileInfo(m);
    }
    async makeDirectory(tree, path) {
        return models.fileInfo(await this.#wire.call("FileService/MakeDirectory", { ...tree, path }));
    }
    async removeFile(tree, path, options = {}) {
        await this.#wire.call("FileService/RemoveFile", { ...tree, path, ...options });
    }
    async moveFile(tree, path, newPath) {
        return models.fileInfo(await this.#wire.call("FileService/MoveFile", { ...tree, path, newPath }));
    }
    /**
     * What changes in a directory of a sandbox, from now on. The first is `lost`, which says that one has to look;
     * it comes again after a lost connection, which is taken up again.
     */
    async *watchFiles(sandboxId, path = "", options = {}) {
        const request = { sandboxId, path, recursive: options.recursive };
        yield* persistent(() => this.#wire.stream("FileService/WatchFiles", request, options.signal), models.fileChange);
    }
    /** Puts a local directory into a sandbox; returns how many files there were. */
    async uploadDirectory(sandboxId, directory, path = "") {
        const answer = await this.#wire.send("PUT", `/v1/sandboxes/${encodeURIComponent(sandboxId)}/files:archive`, { path }, pack(directory), "application/x-tar");
        return Number(answer["fileCount"] ?? 0);
    }
    /** A directory of a sandbox as a tar archive. */
    downloadDirectory(sandboxId, path = "") {
        return this.#wire.fetch(`/v1/sandboxes/${encodeURIComponent(sandboxId)}/files:archive`, { path });
    }
    async *#pages(method, noun, request) {
        for (let pageToken = "";;) {
            const answer = await this.#wire.call(method, { ...request, pageToken });
            yield* answer[noun] ?? [];
            pageToken = answer["nextPageToken"] ?? "";
            if (!pageToken)
                return;
        }
    }
}
/** Opens a stream again while it breaks in ways that may pass. */
async function* persistent(open, read) {
    for (let attempt = 0;; attempt++) {
        try {
            for await (const m of open()) {
                attempt = 0;
                yield read(m);
            }
            return;
        }
        catch (error) {
            if (!(error instanceof BaileyError) || !error.retryable || attempt >= 5)
                throw error;
        }
        await pause(attempt);
    }
}
const seconds = (n) => (n === undefined ? undefined : models.duration(n));
const base64 = (data) => (data === undefined ? undefined : Buffer.from(data).toString("base64"));
const policy = (p) => (typeof p === "string" ? p : JSON.stringify(p));
function treePath(tree) {
    return "sandboxId" in tree ? `/v1/sandboxes/${encodeURIComponent(tree.sandboxId)}` : `/v1/codebases/${encodeURIComponent(tree.codebaseId)}`;
}
/** Refuses what is left of options: a misspelt one would be taken for a default. */
function refuse(unknown) {
    const names = Object.keys(unknown);
    if (names.length > 0)
        throw new TypeError(`there is no option ${names.map((n) => JSON.stringify(n)).join(", ")}`);
}
function creation(o) {
    const { codebaseId, image, snapshotId, name, owner, labels, runtime, preset, policy: given, rules, resources, env, ttl, idleTimeout, ports, start, ...unknown } = o;
    refuse(unknown);
    return {
        codebaseId, image, snapshotId, name, owner, labels, runtime, preset, policy: given === undefined ? undefined : policy(given),
        rules, resources: resources && limits(resources), env, ttl: seconds(ttl), idleTimeout: seconds(idleTimeout), ports, createOnly: start === false,
    };
}
function limits(o) {
    const { memoryBytes, cpuQuota, pidsLimit, diskBytes, openFiles, outputBytes, ...unknown } = o;
    refuse(unknown);
    return { memoryBytes, cpuQuota, pidsLimit, diskBytes, openFiles, outputBytes };
}
function commandMessage(command, o) {
    const { cwd, env, user, timeout, stdin, outputLimit, openStdin, terminal, ...unknown } = o;
    refuse(unknown);
    const what = typeof command === "string" ? { shell: command } : { argv: command };
    return { ...what, cwd, env, user, openStdin, terminal, timeout: seconds(timeout), stdin: base64(stdin), outputLimitBytes: outputLimit };
}
