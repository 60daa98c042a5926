/**
 * The way to the server: connections, requests, streams and retries. Requests are
 * Connect's, in JSON; files and archives go over REST as they are.
 */
import * as https from "node:https";
export type Json = Record<string, any>;
export type Body = string | Uint8Array | AsyncIterable<Uint8Array> | Iterable<Uint8Array>;
/** What requests belong to: a traceparent of W3C Trace Context, or what returns one for each request. */
export type Traceparent = string | (() => string | undefined);
/** Connections to one server. */
export declare class Wire {
    #private;
    readonly address: string;
    constructor(address: string, token?: string, tls?: https.AgentOptions, traceparent?: Traceparent);
    /** Closes connections. */
    close(): void;
    /**
     * Calls a method that answers once. It is sent again, with the same idempotency
     * key, while the server cannot be reached or says that it may be.
     */
    call(method: string, request: Json, signal?: AbortSignal): Promise<Json>;
    /** Calls a method that answers with a stream. Nothing is sent again here. */
    stream(method: string, request: Json, signal?: AbortSignal): AsyncGenerator<Json>;
    /** Sends bytes over REST. */
    send(method: string, path: string, query: Record<string, string>, body: Body, type?: string): Promise<Json>;
    /** Receives bytes over REST. */
    fetch(path: string, query: Record<string, string>): AsyncGenerator<Buffer>;
}
/** Waits before another attempt, longer each time, and not all at once. */
export declare function pause(attempt: number, signal?: AbortSignal): Promise<void>;
