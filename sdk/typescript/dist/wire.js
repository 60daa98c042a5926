/**
 * The way to the server: connections, requests, streams and retries. Requests are
 * Connect's, in JSON; files and archives go over REST as they are.
 */
import { randomUUID } from "node:crypto";
import * as http from "node:http";
import * as https from "node:https";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { setTimeout as sleep } from "node:timers/promises";
import { BaileyError, Canceled, Unavailable, fromAnswer } from "./errors.js";
const attempts = 4;
/** Connections to one server. */
export class Wire {
    address;
    #token;
    #traceparent;
    #agent;
    #base;
    #request;
    constructor(address, token = "", tls = {}, traceparent) {
        this.address = address;
        this.#token = token;
        this.#traceparent = traceparent;
        const settings = { keepAlive: true, scheduling: "lifo" };
        if (address.startsWith("unix:")) {
            this.#base = { socketPath: address.slice("unix:".length), host: "localhost" };
            this.#agent = new http.Agent(settings);
            this.#request = http.request;
            return;
        }
        const url = URL.canParse(address) ? new URL(address) : undefined;
        if (!url || (url.protocol !== "http:" && url.protocol !== "https:")) {
            throw new TypeError(`"${address}" is no address: use unix:/PATH, http://HOST:PORT or https://HOST:PORT`);
        }
        const secure = url.protocol === "https:";
        this.#base = { host: url.hostname.replace(/^\[|\]$/g, ""), port: url.port || (secure ? 443 : 80) };
        this.#agent = secure ? new https.Agent({ ...settings, ...tls }) : new http.Agent(settings);
        this.#request = secure ? https.request : http.request;
    }
    /** Closes connections. */
    close() {
        this.#agent.destroy();
    }
    /**
     * Calls a method that answers once. It is sent again, with the same idempotency
     * key, while the server cannot be reached or says that it may be.
     */
    async call(method, request, signal) {
        const headers = { "Content-Type": "application/json", "Idempotency-Key": randomUUID() };
        for (let attempt = 0;; attempt++) {
            try {
                const response = await this.#send("POST", `/bailey.v1.${method}`, headers, JSON.stringify(request), signal);
                return JSON.parse((await accepted(response)).toString());
            }
            catch (error) {
                const e = lost(error, signal);
                if (!e.retryable || attempt === attempts - 1)
                    throw e;
            }
            await pause(attempt, signal);
        }
    }
    /** Calls a method that answers with a stream. Nothing is sent again here. */
    async *stream(method, request, signal) {
        const message = Buffer.from(JSON.stringify(request));
        const envelope = Buffer.alloc(5);
        envelope.writeUInt32BE(message.length, 1);
        const headers = { "Content-Type": "application/connect+json", "Connect-Protocol-Version": "1" };
        try {
            const response = await this.#send("POST", `/bailey.v1.${method}`, headers, Buffer.concat([envelope, message]), signal);
            if (response.statusCode !== 200)
                await accepted(response);
            for await (const [flags, content] of envelopes(response)) {
                if ((flags & 2) === 0) {
                    yield JSON.parse(content.toString());
                    continue;
                }
                const end = JSON.parse(content.toString() || "{}");
                if (end.error)
                    throw fromAnswer(end.error);
                return;
            }
            throw new Unavailable("the stream broke off", { reason: "connection_lost", retryable: true });
        }
        catch (error) {
            throw lost(error, signal);
        }
    }
    /** Sends bytes over REST. */
    async send(method, path, query, body, type = "application/octet-stream") {
        try {
            const response = await this.#send(method, `${path}?${new URLSearchParams(query)}`, { "Content-Type": type }, body);
            return JSON.parse((await accepted(response)).toString());
        }
        catch (error) {
            if (error instanceof SourceError)
                throw error.cause;
            throw lost(error);
        }
    }
    /** Receives bytes over REST. */
    async *fetch(path, query) {
        try {
            const response = await this.#send("GET", `${path}?${new URLSearchParams(query)}`, {});
            if (response.statusCode !== 200)
                await accepted(response);
            for await (const piece of response)
                yield piece;
            if (!response.complete)
                throw new Unavailable("the answer broke off", { reason: "connection_lost", retryable: true });
        }
        catch (error) {
            throw lost(error);
        }
    }
    async #send(method, path, headers, body, signal) {
        // The server may end a connection that was idle at the moment at which it is
        // used again; a fresh one tells whether it is still there.
        for (;;) {
            const [request, response] = this.#begin(method, path, headers, signal);
            let failure;
            try {
                if (body === undefined || typeof body === "string" || body instanceof Uint8Array) {
                    request.end(body);
                }
                else {
                    // A server that refuses answers before it has read everything.
                    pipeline(Readable.from(watched(body, (error) => (failure = error))), request).catch(() => { });
                }
                return await response;
            }
            catch (error) {
                if (failure)
                    throw new SourceError(failure);
                const again = request.reusedSocket && error.code === "ECONNRESET";
                if (!again || (body !== undefined && typeof body !== "string" && !(body instanceof Uint8Array)))
                    throw error;
            }
        }
    }
    #begin(method, path, headers, signal) {
        const sent = { ...headers };
        if (this.#token)
            sent["Authorization"] = `Bearer ${this.#token}`;
        trace(sent, this.#traceparent);
        const request = this.#request({ ...this.#base, agent: this.#agent, method, path, headers: sent, signal });
        const response = new Promise((resolve, reject) => {
            request.once("response", resolve);
            request.once("error", reject);
            request.on("error", () => { }); // those after the answer are seen by its reader
        });
        return [request, response];
    }
}
/** Something that went wrong with making a body, which is no error of the connection. */
class SourceError extends Error {
    constructor(cause) {
        super("the body could not be made", { cause });
    }
}
async function* watched(body, failed) {
    try {
        yield* body;
    }
    catch (error) {
        failed(error);
        throw error;
    }
}
/** Waits before another attempt, longer each time, and not all at once. */
export async function pause(attempt, signal) {
    await sleep(50 * 2 ** attempt * (0.5 + Math.random()), undefined, { signal });
}
async function accepted(response) {
    const pieces = [];
    for await (const piece of response)
        pieces.push(piece);
    const content = Buffer.concat(pieces);
    if (response.statusCode === 200)
        return content;
    let answer;
    try {
        answer = JSON.parse(content.toString());
    }
    catch {
        answer = { message: content.toString().trim() };
    }
    throw fromAnswer(answer, response.statusCode);
}
async function* envelopes(from) {
    let held = Buffer.alloc(0);
    for await (const piece of from) {
        held = held.length ? Buffer.concat([held, piece]) : piece;
        while (held.length >= 5 && held.length >= 5 + held.readUInt32BE(1)) {
            const end = 5 + held.readUInt32BE(1);
            yield [held[0], held.subarray(5, end)];
            held = held.subarray(end);
        }
    }
}
function lost(error, signal) {
    if (error instanceof BaileyError)
        return error;
    if (signal?.aborted)
        return new Canceled("the request was given up", { reason: "aborted" });
    const message = error instanceof Error ? error.message : String(error);
    const code = String(error?.code ?? "");
    if (distrust.test(code)) {
        return new Unavailable(`the server's certificate is not trusted: ${message} (${code})`, {
            reason: "certificate_not_trusted",
            remedy: "give the client the authority that signed it, tls: { ca }, or set NODE_EXTRA_CA_CERTS, and call the server by a name in it",
        });
    }
    return new Unavailable(`the server cannot be reached: ${message}`, {
        reason: "connection_lost", remedy: "see whether it runs: baileyd status", retryable: true,
    });
}
/** What Node calls a certificate that it does not take: signed by somebody unknown, out of its time, or for another name. */
const distrust = /^(ERR_TLS_CERT_ALTNAME_INVALID|SELF_SIGNED_CERT_IN_CHAIN|DEPTH_ZERO_SELF_SIGNED_CERT|UNABLE_TO_.*|CERT_.*|CRL_.*|INVALID_CA|INVALID_PURPOSE|HOSTNAME_MISMATCH|PATH_LENGTH_EXCEEDED)$/;
/**
 * Says which span a request belongs to: the given one, or the current one of a
 * program that uses OpenTelemetry, whose parts register themselves under this
 * symbol.
 */
function trace(headers, given) {
    if (given !== undefined) {
        const parent = typeof given === "function" ? given() : given;
        if (parent)
            headers["traceparent"] = parent;
        return;
    }
    const api = globalThis[Symbol.for("opentelemetry.js.api.1")];
    if (!api?.propagation || !api.context)
        return;
    api.propagation.inject(api.context.active(), headers, { set: (to, key, value) => void (to[key] = value) });
}
