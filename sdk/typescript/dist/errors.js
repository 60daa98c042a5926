/** What can go wrong, as classes. */
/** An error of the server, or of the way to it. */
export class BaileyError extends Error {
    code = "unknown";
    reason;
    remedy;
    retryable;
    metadata;
    requestId;
    constructor(message, problem = {}) {
        super(problem.remedy ? `${message} (${problem.remedy})` : message);
        this.name = new.target.name;
        this.reason = problem.reason ?? "";
        this.remedy = problem.remedy ?? "";
        this.retryable = problem.retryable ?? false;
        this.metadata = problem.metadata ?? {};
        this.requestId = problem.requestId ?? "";
    }
}
/** The request can never succeed as it is. */
export class InvalidArgument extends BaileyError {
    code = "invalid_argument";
}
/** There is no such thing, or it belongs to somebody else. */
export class NotFound extends BaileyError {
    code = "not_found";
}
/** There is such a thing already. */
export class AlreadyExists extends BaileyError {
    code = "already_exists";
}
/** Something else must be done first. */
export class FailedPrecondition extends BaileyError {
    code = "failed_precondition";
}
/** The token is missing, unknown, revoked or expired. */
export class Unauthenticated extends BaileyError {
    code = "unauthenticated";
}
/** The token does not allow this. */
export class PermissionDenied extends BaileyError {
    code = "permission_denied";
}
/** A limit was met: of the owner, or of the machine. */
export class ResourceExhausted extends BaileyError {
    code = "resource_exhausted";
}
/** The server cannot be reached, or shuts down. Sandboxes go on. */
export class Unavailable extends BaileyError {
    code = "unavailable";
}
/** This server, or its machine, does not do that. */
export class Unimplemented extends BaileyError {
    code = "unimplemented";
}
/** The time of the request is over. */
export class DeadlineExceeded extends BaileyError {
    code = "deadline_exceeded";
}
/** The request was given up. */
export class Canceled extends BaileyError {
    code = "canceled";
}
/** Something is wrong in the server; its log says what. */
export class InternalError extends BaileyError {
    code = "internal";
}
/** No server is configured, and none could be started. */
export class ServerNotFound extends BaileyError {
    code = "server_not_found";
}
const classes = {
    invalid_argument: InvalidArgument,
    out_of_range: InvalidArgument,
    not_found: NotFound,
    already_exists: AlreadyExists,
    failed_precondition: FailedPrecondition,
    aborted: FailedPrecondition,
    unauthenticated: Unauthenticated,
    permission_denied: PermissionDenied,
    resource_exhausted: ResourceExhausted,
    unavailable: Unavailable,
    unimplemented: Unimplemented,
    deadline_exceeded: DeadlineExceeded,
    canceled: Canceled,
    internal: InternalError,
};
// Codes of google.rpc.Status, which REST answers with.
const names = {
    1: "canceled", 3: "invalid_argument", 4: "deadline_exceeded", 5: "not_found", 6: "already_exists",
    7: "permission_denied", 8: "resource_exhausted", 9: "failed_precondition", 10: "aborted",
    11: "out_of_range", 12: "unimplemented", 13: "internal", 14: "unavailable", 16: "unauthenticated",
};
/** Makes an error of what the server answered. */
export function fromAnswer(answer, status = 0) {
    const code = typeof answer.code === "number" ? (names[answer.code] ?? "unknown") : (answer.code ?? "");
    let problem = {};
    for (const detail of answer.details ?? []) {
        if (detail.type === "bailey.v1.Problem")
            problem = detail.debug ?? decode(detail.value ?? "");
        else if (detail["@type"]?.endsWith("/bailey.v1.Problem"))
            problem = detail;
    }
    const kind = classes[code] ?? BaileyError;
    return new kind(answer.message || `the server answered with status ${status}`, {
        ...problem,
        reason: problem.reason || code,
        retryable: problem.reason ? (problem.retryable ?? false) : code === "unavailable",
    });
}
/** Reads a bailey.v1.Problem in its binary form. */
function decode(value) {
    const problem = { metadata: {} };
    for (const [number, content] of fields(Buffer.from(value, "base64"))) {
        if (number === 3)
            problem.retryable = content !== 0;
        if (typeof content === "number")
            continue;
        if (number === 1)
            problem.reason = content.toString();
        if (number === 2)
            problem.remedy = content.toString();
        if (number === 5)
            problem.requestId = content.toString();
        if (number === 4) {
            const entry = new Map(fields(content));
            problem.metadata[String(entry.get(1) ?? "")] = String(entry.get(2) ?? "");
        }
    }
    return problem;
}
/** Yields the fields of a protobuf message that has varints and bytes only. */
function* fields(data) {
    let at = 0;
    const varint = () => {
        let value = 0;
        for (let shift = 1;; shift *= 128) {
            const byte = data[at++] ?? 0;
            value += (byte & 0x7f) * shift;
            if (byte < 0x80)
                return value;
        }
    };
    while (at < data.length) {
        const key = varint();
        if ((key & 7) === 0)
            yield [key >> 3, varint()];
        else if ((key & 7) === 2) {
            const length = varint();
            yield [key >> 3, data.subarray(at, at + length)];
            at += length;
        }
        else
            return;
    }
}
