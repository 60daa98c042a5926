/** What the server knows, as plain data. */
import { BaileyError } from "./errors.js";
/** What a command did. */
export class ExecResult {
    execId;
    exitCode;
    /** The name of the signal that ended it, such as SIGKILL. */
    signal;
    timedOut;
    outOfMemory;
    /** More was written than is kept. */
    truncated;
    /** Why it could not be started at all. */
    error;
    /** Seconds from start to end. */
    duration;
    /** Seconds of processors that it used, with children that it waited for. */
    userTime;
    systemTime;
    /** The most memory that one of its processes had. */
    maxRssBytes;
    /** Bytes from disks, and to disks. */
    readBytes;
    writtenBytes;
    stdoutBytes;
    stderrBytes;
    constructor(exit, stdout, stderr, execId, truncated = false) {
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
    get stdout() {
        return this.stdoutBytes.toString();
    }
    get stderr() {
        return this.stderrBytes.toString();
    }
    /** Whether the command has succeeded. */
    get ok() {
        return this.exitCode === 0;
    }
    /** Throws a CommandFailed unless it has. */
    check() {
        if (!this.ok)
            throw new CommandFailed(this);
        return this;
    }
}
/** A command that had to succeed did not. */
export class CommandFailed extends BaileyError {
    code = "command_failed";
    result;
    constructor(result) {
        let how = result.signal ? `was ended by ${result.signal}` : `exited with status ${result.exitCode}`;
        if (result.error)
            how = `could not be started: ${result.error}`;
        if (result.timedOut)
            how = "took too long";
        const last = result.stderr.trim().split("\n").at(-1);
        super(`the command ${how}${last ? `: ${last}` : ""}`, { reason: "command_failed" });
        this.result = result;
    }
}
const word = (text, prefix) => (text ?? "").replace(prefix, "").toLowerCase();
export const codebase = (m) => ({
    id: m["id"] ?? "", name: m["name"] ?? "", owner: m["owner"] ?? "", labels: m["labels"] ?? {},
    version: Number(m["version"] ?? 0), fileCount: Number(m["fileCount"] ?? 0), sizeBytes: Number(m["sizeBytes"] ?? 0),
});
export const sandboxInfo = (m) => ({
    id: m["id"] ?? "", name: m["name"] ?? "", owner: m["owner"] ?? "", labels: m["labels"] ?? {},
    state: word(m["state"], "SANDBOX_STATE_"), stateReason: m["stateReason"] ?? "",
    runtime: m["runtime"] ?? "", codebaseId: m["codebaseId"] ?? "", image: m["image"] ?? "",
    workspace: m["workspace"] ?? "", parentId: m["parentId"] ?? "", ports: (m["ports"] ?? []).map(exposedPort),
});
export const exposedPort = (m) => ({ port: Number(m["port"] ?? 0), address: m["address"] ?? "" });
export const fileInfo = (m) => ({
    path: m["path"] ?? "", type: word(m["type"], "FILE_TYPE_"), size: Number(m["sizeBytes"] ?? 0),
    mode: Number(m["mode"] ?? 0), modifyTime: m["modifyTime"] ?? "", linkTarget: m["linkTarget"] ?? "",
    rawPath: m["rawPath"] ? Buffer.from(m["rawPath"], "base64") : Buffer.from(m["path"] ?? ""),
});
export const fileChange = (m) => ({
    kind: word(m["kind"], "FILE_CHANGE_KIND_"), path: m["path"] ?? "", directory: m["directory"] ?? false,
    rawPath: m["rawPath"] ? Buffer.from(m["rawPath"], "base64") : Buffer.from(m["path"] ?? ""),
});
export const snapshot = (m) => ({
    id: m["id"] ?? "", name: m["name"] ?? "", sandboxId: m["sandboxId"] ?? "", sizeBytes: Number(m["sizeBytes"] ?? 0),
});
export const change = (m) => ({
    path: m["path"] ?? "", kind: word(m["kind"], "CHANGE_KIND_"), type: m["type"] ?? "",
    size: Number(m["sizeBytes"] ?? 0), mode: Number(m["mode"] ?? 0), binary: m["binary"] ?? false,
});
export const stats = (m) => ({
    memoryBytes: Number(m["memoryBytes"] ?? 0), memoryPeakBytes: Number(m["memoryPeakBytes"] ?? 0),
    cpuSeconds: parseFloat(m["cpuTime"] ?? "0"), processes: Number(m["processes"] ?? 0),
    diskBytes: Number(m["diskBytes"] ?? 0), execs: Number(m["execs"] ?? 0), denials: Number(m["denials"] ?? 0),
});
export const event = (m) => ({
    cursor: m["cursor"] ?? "", time: m["time"] ?? "", kind: m["kind"] ?? "", sandboxId: m["sandboxId"] ?? "", detail: m["detail"] ?? {},
});
export const chunk = (m) => ({
    stream: m["stream"] === "STREAM_STDERR" ? "stderr" : "stdout", offset: Number(m["offset"] ?? 0), data: Buffer.from(m["data"] ?? "", "base64"),
});
export const execResult = (m) => new ExecResult(m["exit"] ?? {}, Buffer.from(m["stdout"] ?? "", "base64"), Buffer.from(m["stderr"] ?? "", "base64"), m["execId"] ?? "", Boolean(m["stdoutTruncated"] || m["stderrTruncated"]));
export const execInfo = (m) => ({
    id: m["id"] ?? "", sandboxId: m["sandboxId"] ?? "", sessionId: m["sessionId"] ?? "", argv: m["argv"] ?? [], running: m["running"] ?? false,
    stdoutSize: Number(m["stdoutBytes"] ?? 0), stderrSize: Number(m["stderrBytes"] ?? 0),
    result: m["running"] ? undefined : new ExecResult(m["exit"] ?? {}, Buffer.alloc(0), Buffer.alloc(0), m["id"] ?? "", m["outputTruncated"] ?? false),
});
export const sessionInfo = (m) => ({
    id: m["id"] ?? "", sandboxId: m["sandboxId"] ?? "", shell: m["shell"] ?? "", busy: m["busy"] ?? false, alive: m["alive"] ?? false,
});
export const usage = (m) => ({
    owner: m["owner"] ?? "", sandboxes: Number(m["sandboxes"] ?? 0), sandboxesLimit: Number(m["sandboxesLimit"] ?? 0),
    execs: Number(m["execs"] ?? 0), execsLimit: Number(m["execsLimit"] ?? 0),
    storageBytes: Number(m["storageBytes"] ?? 0), storageLimitBytes: Number(m["storageLimitBytes"] ?? 0),
    requestsPerSecondLimit: Number(m["requestsPerSecondLimit"] ?? 0),
});
/** A number of seconds as the API has it. */
export const duration = (seconds) => `${seconds.toFixed(9).replace(/\.?0+$/, "")}s`;
