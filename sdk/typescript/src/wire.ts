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

import { BaileyError, Canceled, Unavailable, fromAnswer, type Answer } from "./errors.js";

export type Json = Record<string, any>;
export type Body = string | Uint8Array | AsyncIterable<Uint8Array> | Iterable<Uint8Array>;

/** What requests belong to: a traceparent of W3C Trace Context, or what returns one for each request. */
export type Traceparent = string | (() => string | undefined);

const attempts = 4;

/** Connections to one server. */
export class Wire {
  readonly address: string;
  readonly #token: string;
  readonly #traceparent: Traceparent | undefined;
  readonly #agent: http.Agent;
  readonly #base: http.RequestOptions;
  readonly #request: typeof http.request;

  constructor(address: string, token = "", tls: https.AgentOptions = {}, traceparent?: Traceparent) {
    this.address = address;
    this.#token = token;
    this.#traceparent = traceparent;
    const settings = { keepAlive: true, scheduling: "lifo" as const };
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
    this.#request = secure ? (https.request as typeof http.request) : http.request;
  }

  /** Closes connections. */
  close(): void {
    this.#agent.destroy();
  }

  /**
   * Calls a method that answers once. It is sent again, with the same idempotency
   * key, while the server cannot be reached or says that it may be.
   */
  async call(method: string, request: Json, signal?: AbortSignal): Promise<Json> {
    const headers = { "Content-Type": "application/json", "Idempotency-Key": randomUUID() };
    for (let attempt = 0; ; attempt++) {
      try {
        const response = await this.#send("POST", `/bailey.v1.${method}`, headers, JSON.stringify(request), signal);
        return JSON.parse((await accepted(response)).toString()) as Json;
      } catch (error) {
        const e = lost(error, signal);
        if (!e.retryable || attempt === attempts - 1) throw e;
      }
      await pause(attempt, signal);
    }
  }

  /** Calls a method that answers with a stream. Nothing is sent again here. */
  async *stream(method: string, request: Json, signal?: AbortSignal): AsyncGenerator<Json> {
    const message = Buffer.from(JSON.stringify(request));
    const envelope = Buffer.alloc(5);
    envelope.writeUInt32BE(message.length, 1);
    const headers = { "Content-Type": "application/connect+json", "Connect-Protocol-Version": "1" };
    try {
      const response = await this.#send("POST", `/bailey.v1.${method}`, headers, Buffer.concat([envelope, message]), signal);
      if (response.statusCode !== 200) await accepted(response);
      for await (const [flags, content] of envelopes(response)) {
        if ((flags & 2) === 0) {
          yield JSON.parse(content.toString()) as Json;
          continue;
        }
        const end = JSON.parse(content.toString() || "{}") as { error?: Answer };
        if (end.error) throw fromAnswer(end.error);
        return;
      }
      throw new Unavailable("the stream broke off", { reason: "connection_lost", retryable: true });
    } catch (error) {
      throw lost(error, signal);
    }
  }

  /** Sends bytes over REST. */
  async send(method: string, path: string, query: Record<string, string>, body: Body, type = "application/octet-stream"): Promise<Json> {
    try {
      const response = await this.#send(method, `${path}?${new URLSearchParams(query)}`, { "Content-Type": type }, body);
      return JSON.parse((await accepted(response)).toString()) as Json;
    } catch (error) {
      if (error instanceof SourceError) throw error.cause;
      throw lost(error);
    }
  }

  /** Receives bytes over REST. */
  async *fetch(path: string, query: Record<string, string>): AsyncGenerator<Buffer> {
    try {
      const response = await this.#send("GET", `${path}?${new URLSearchParams(query)}`, {});
      if (response.statusCode !== 200) await accepted(response);
      for await (const piece of response) yield piece as Buffer;
      if (!response.complete) throw new Unavailable("the answer broke off", { reason: "connection_lost", retryable: true });
    } catch (error) {
      throw lost(error);
    }
  }

  async #send(method: string, path: string, headers: http.OutgoingHttpHeaders, body?: Body, signal?: AbortSignal): Promise<http.IncomingMessage> {
    // The server may end a connection that was idle at the moment at which it is
    // used again; a fresh one tells whether it is still there.
    for (;;) {
      const [request, response] = this.#begin(method, path, headers, signal);
      let failure: unknown;
      try {
        if (body === undefined || typeof body === "string" || body instanceof Uint8Array) {
          request.end(body);
        } else {
          // A server that refuses answers before it has read everything.
          pipeline(Readable.from(watched(body, (error) => (failure = error))), request).catch(() => {});
        }
        return await response;
      } catch (error) {
        if (failure) throw new SourceError(failure);
        const again = request.reusedSocket && (error as NodeJS.ErrnoException).code === "ECONNRESET";
        if (!again || (body !== undefined && typeof body !== "string" && !(body instanceof Uint8Array))) throw error;
      }
    }
  }

  #begin(method: string, path: string, headers: http.OutgoingHttpHeaders, signal?: AbortSignal): [http.ClientRequest, Promise<http.IncomingMessage>] {
    const sent: http.OutgoingHttpHeaders = { ...headers };
    if (this.#token) sent["Authorization"] = `Bearer ${this.#token}`;
    trace(sent, this.#traceparent);
    const request = this.#request({ ...this.#base, agent: this.#agent, method, path, headers: sent, signal });
    const response = new Promise<http.IncomingMessage>((resolve, reject) => {
      request.once("response", resolve);
      request.once("error", reject);
      request.on("error", () => {}); // those after the answer are seen by its reader
    });
    return [request, response];
  }
}

/** Something that went wrong with making a body, which is no error of the connection. */
class SourceError extends Error {
  constructor(cause: unknown) {
    super("the body could not be made", { cause });
  }
}

async function* watched(body: AsyncIterable<Uint8Array> | Iterable<Uint8Array>, failed: (error: unknown) => void): AsyncGenerator<Uint8Array> {
  try {
    yield* body;
  } catch (error) {
    failed(error);
    throw error;
  }
}

/** Waits before another attempt, longer each time, and not all at once. */
export async function pause(attempt: number, signal?: AbortSignal): Promise<void> {
  await sleep(50 * 2 ** attempt * (0.5 + Math.random()), undefined, { signal });
}

async function accepted(response: http.IncomingMessage): Promise<Buffer> {
  const pieces: Buffer[] = [];
  for await (const piece of response) pieces.push(piece as Buffer);
  const content = Buffer.concat(pieces);
  if (response.statusCode === 200) return content;
  let answer: Answer;
  try {
    answer = JSON.parse(content.toString()) as Answer;
  } catch {
    answer = { message: content.toString().trim() };
  }
  throw fromAnswer(answer, response.statusCode);
}

async function* envelopes(from: AsyncIterable<Buffer>): AsyncGenerator<[number, Buffer]> {
  let held: Buffer = Buffer.alloc(0);
  for await (const piece of from) {
    held = held.length ? Buffer.concat([held, piece]) : piece;
    while (held.length >= 5 && held.length >= 5 + held.readUInt32BE(1)) {
      const end = 5 + held.readUInt32BE(1);
      yield [held[0]!, held.subarray(5, end)];
      held = held.subarray(end);
    }
  }
}

function lost(error: unknown, signal?: AbortSignal): BaileyError {
  if (error instanceof BaileyError) return error;
  if (signal?.aborted) return new Canceled("the request was given up", { reason: "aborted" });
  const message = error instanceof Error ? error.message : String(error);
  const code = String((error as NodeJS.ErrnoException | undefined)?.code ?? "");
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
function trace(headers: http.OutgoingHttpHeaders, given: Traceparent | undefined): void {
  if (given !== undefined) {
    const parent = typeof given === "function" ? given() : given;
    if (parent) headers["traceparent"] = parent;
    return;
  }
  const api = (globalThis as Json)[Symbol.for("opentelemetry.js.api.1") as unknown as string];
  if (!api?.propagation || !api.context) return;
  api.propagation.inject(api.context.active(), headers, { set: (to: Json, key: string, value: string) => void (to[key] = value) });
}
