/** A server that a program starts for itself, and that ends with it. */

import { spawn, type ChildProcess } from "node:child_process";
import { accessSync, constants } from "node:fs";
import { delimiter, join } from "node:path";
import { createInterface } from "node:readline";

import { ServerNotFound } from "./errors.js";

let started: Promise<Embedded> | undefined;
let users = 0;

interface Embedded {
  address: string;
  process: ChildProcess;
}

/**
 * The address of this program's own server, which is started if need be. It ends
 * when its standard input does: with its last user, or with this program.
 */
export async function acquire(): Promise<string> {
  users++;
  started ??= start();
  try {
    return (await started).address;
  } catch (error) {
    users--;
    started = undefined;
    throw error;
  }
}

/** Ends the server and everything in it if nobody else uses it, and waits for that. */
export async function release(): Promise<void> {
  if (--users > 0 || !started) return;
  const { process } = await started;
  started = undefined;
  const ended = new Promise((resolve) => process.once("exit", resolve));
  process.ref();
  process.stdin?.end();
  if (process.exitCode === null && process.signalCode === null) await ended;
}

async function start(): Promise<Embedded> {
  const child = spawn(findProgram(), ["serve", "--ephemeral", "--log-level", "error"], {
    stdio: ["pipe", "pipe", "inherit"],
    detached: true, // Ctrl-C is for the program; the server ends when the program has.
  });
  const failed = new Promise<never>((_, reject) => child.once("error", reject));
  failed.catch(() => {});
  const ready = (async () => {
    let address = "";
    for await (const line of createInterface({ input: child.stdout })) {
      if (line.startsWith("listening on ")) address = line.slice("listening on ".length);
      if (line === "ready" && address) return address;
    }
    throw new ServerNotFound("the server that was started has ended", {
      reason: "server_ended", remedy: "it has said why on standard error; see also: bailey doctor",
    });
  })();
  const address = await Promise.race([ready, failed]);
  // A program that has nothing else to do may end, and the server with it.
  child.unref();
  (child.stdout as unknown as { unref?: () => void }).unref?.();
  (child.stdin as unknown as { unref?: () => void }).unref?.();
  return { address, process: child };
}

/** The program baileyd: $BAILEYD, or the one that the shell would find. */
function findProgram(): string {
  const named = process.env["BAILEYD"];
  const candidates = named ? [named] : (process.env["PATH"] ?? "").split(delimiter).filter(Boolean).map((dir) => join(dir, "baileyd"));
  for (const candidate of candidates) {
    try {
      accessSync(candidate, constants.X_OK);
      return candidate;
    } catch {
      continue;
    }
  }
  throw new ServerNotFound("there is no server to use, and no program baileyd to start one", {
    reason: "baileyd_missing", remedy: "install Bailey, or set BAILEY_ADDRESS to the address of a server",
  });
}
