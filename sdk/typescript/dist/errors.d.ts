/** What can go wrong, as classes. */
/** What an error of the server says beside its message. */
export interface Problem {
    /** A word that programs can branch on, and that never changes. */
    reason?: string;
    /** What to do about it. */
    remedy?: string;
    /** Whether the same request may succeed later. */
    retryable?: boolean;
    metadata?: Record<string, string>;
    /** Finds the request in the server's log. */
    requestId?: string;
}
/** An error of the server, or of the way to it. */
export declare class BaileyError extends Error {
    readonly code: string;
    readonly reason: string;
    readonly remedy: string;
    readonly retryable: boolean;
    readonly metadata: Record<string, string>;
    readonly requestId: string;
    constructor(message: string, problem?: Problem);
}
/** The request can never succeed as it is. */
export declare class InvalidArgument extends BaileyError {
    readonly code = "invalid_argument";
}
/** There is no such thing, or it belongs to somebody else. */
export declare class NotFound extends BaileyError {
    readonly code = "not_found";
}
/** There is such a thing already. */
export declare class AlreadyExists extends BaileyError {
    readonly code = "already_exists";
}
/** Something else must be done first. */
export declare class FailedPrecondition extends BaileyError {
    readonly code = "failed_precondition";
}
/** The token is missing, unknown, revoked or expired. */
export declare class Unauthenticated extends BaileyError {
    readonly code = "unauthenticated";
}
/** The token does not allow this. */
export declare class PermissionDenied extends BaileyError {
    readonly code = "permission_denied";
}
/** A limit was met: of the owner, or of the machine. */
export declare class ResourceExhausted extends BaileyError {
    readonly code = "resource_exhausted";
}
/** The server cannot be reached, or shuts down. Sandboxes go on. */
export declare class Unavailable extends BaileyError {
    readonly code = "unavailable";
}
/** This server, or its machine, does not do that. */
export declare class Unimplemented extends BaileyError {
    readonly code = "unimplemented";
}
/** The time of the request is over. */
export declare class DeadlineExceeded extends BaileyError {
    readonly code = "deadline_exceeded";
}
/** The request was given up. */
export declare class Canceled extends BaileyError {
    readonly code = "canceled";
}
/** Something is wrong in the server; its log says what. */
export declare class InternalError extends BaileyError {
    readonly code = "internal";
}
/** No server is configured, and none could be started. */
export declare class ServerNotFound extends BaileyError {
    readonly code = "server_not_found";
}
interface Detail extends Problem {
    type?: string;
    "@type"?: string;
    value?: string;
    debug?: Problem;
}
/** An error as the server writes it, in Connect's form or REST's. */
export interface Answer {
    code?: string | number;
    message?: string;
    details?: Detail[];
}
/** Makes an error of what the server answered. */
export declare function fromAnswer(answer: Answer, status?: number): BaileyError;
export {};
