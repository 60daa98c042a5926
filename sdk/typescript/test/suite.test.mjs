// Runs the shared behaviour suite against a server; see sdk/suite.

import assert from "node:assert/strict";
import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { after, before, describe, it } from "node:test";

import { BaileyError, CommandFailed, Sandbox, SandboxClient } from "../dist/index.js";

const scenarios = JSON.parse(await readFile(new URL("../../suite/scenarios.json", import.meta.url), "utf8"));

const runtime = process.env.BAILEY_SUITE_RUNTIME || undefined;
const policy = ["runc", "crun", "gvisor"].includes(runtime) ? { filesystem: { protectMissing: false } } : undefined;

const result = (r) => ({
  stdout: r.stdout, stderr: r.stderr, stdoutBase64: r.stdoutBytes.toString("base64"),
  exitCode: r.exitCode, signal: r.signal, timedOut: r.timedOut,
});
const file = (f) => ({ path: f.path, size: f.size, type: f.type });
const content = (b) => ({ content: b.toString(), contentBase64: b.toString("base64") });

// The names of files in a tar archive.
async function names(archive) {
  const pieces = [];
  for await (const piece of archive) pieces.push(piece);
  const all = Buffer.concat(pieces);
  const found = [];
  for (let at = 0; all[at]; ) {
    const [name, size, type] = [[0, 100], [124, 12], [156, 1]].map(([from, length]) => all.toString("utf8", at + from, at + from + length).replace(/\0.*$/s, ""));
    if (type === "0") found.push(name);
    at += 512 + 512 * Math.ceil(parseInt(size, 8) / 512);
  }
  return found.sort();
}

// What each step does, given the scenario under way and the step.
const steps = {
  run: async (p, { command, env, cwd, stdin, timeout }) => result(await p.sandbox.run(command, { env, cwd, stdin, timeout })),
  check: async (p, s) => result(await p.sandbox.run(s.command, { check: true })),
  stream: async (p, s) => {
    const parts = { stdout: "", stderr: "" };
    for await (const chunk of p.sandbox.stream(s.command)) parts[chunk.stream] += chunk.data;
    return parts;
  },
  writeFile: async (p, s) => file(await p.sandbox.writeFile(s.path, Buffer.from(s.contentBase64, "base64"))),
  readFile: async (p, s) => content(await p.sandbox.readFile(s.path)),
  readCodebaseFile: async (p, s) => content(await p.client.readFile({ codebaseId: p.sandbox.codebaseId }, s.path)),
  localFile: async (p, s) => content(await readFile(join(p.dir, s.path))),
  statFile: async (p, s) => file(await p.sandbox.statFile(s.path)),
  listFiles: async (p, s) => ({ paths: (await p.sandbox.listFiles(s.path, { recursive: s.recursive })).map((f) => f.path) }),
  globFiles: async (p, s) => ({ paths: (await p.sandbox.globFiles(s.pattern, { path: s.path })).map((f) => f.path) }),
  watchFiles: async (p, s) => {
    for await (const c of p.sandbox.watchFiles(s.path, { recursive: s.recursive })) {
      if (c.kind === "lost") await p.sandbox.run(s.command, { check: true });
      if (c.path === s.until) return { kind: c.kind, directory: c.directory };
    }
    return {};
  },
  makeDirectory: async (p, s) => file(await p.sandbox.makeDirectory(s.path)),
  moveFile: async (p, s) => file(await p.sandbox.moveFile(s.path, s.newPath)),
  removeFile: (p, s) => p.sandbox.removeFile(s.path, { recursive: s.recursive }),
  openSession: async (p, s) => void (p.opened[s.session] = await p.sandbox.session()),
  sessionRun: async (p, s) => result(await p.opened[s.session].run(s.command)),
  closeSession: (p, s) => p.opened[s.session].close(),
  start: async (p, s) => {
    const terminal = s.terminal && { rows: s.terminal[0], columns: s.terminal[1] };
    p.opened[s.process] = await p.sandbox.spawn(s.command, { openStdin: s.openStdin, terminal });
  },
  listExecs: async (p, s) => {
    const found = await p.sandbox.execs({ runningOnly: s.runningOnly });
    const same = await Promise.all(found.map((e) => p.client.getExec(p.sandbox.id, e.id)));
    return { running: same.map((e) => e.running), exitCodes: found.filter((e) => e.result).map((e) => e.result.exitCode) };
  },
  listSessions: async (p) => ({ alive: await Promise.all((await p.sandbox.sessions()).map(async (n) => (await p.client.getSession(p.sandbox.id, n.id)).alive)) }),
  download: async (p, s) => ({ names: await names(p.sandbox.download(s.path)) }),
  usage: async (p) => ({ sandboxesLimit: (await p.client.usage()).sandboxesLimit }),
  write: (p, s) => p.opened[s.process].write(s.data),
  closeStdin: (p, s) => p.opened[s.process].closeStdin(),
  output: async (p, s) => result(await p.opened[s.process].output()),
  wait: async (p, s) => {
    const r = await p.opened[s.process].wait(s.timeout);
    return r ? { ...result(r), running: false } : { running: true };
  },
  signal: (p, s) => p.opened[s.process].signal(s.signal),
  stop: (p) => p.sandbox.stop(),
  startSandbox: (p) => p.sandbox.start(),
  destroy: (p) => p.sandbox.destroy(),
  info: async (p) => ({ state: (await p.sandbox.refresh()).state }),
  getSandbox: async (p, s) => ({ state: (await p.client.getSandbox(s.id)).state }),
  listSandboxes: async (p, s) => {
    let count = 0;
    for await (const _ of p.client.listSandboxes({ labels: s.labels })) count++;
    return { count };
  },
  snapshot: async (p, s) => void (p.opened[s.snapshot] = await p.sandbox.snapshot(s.snapshot)),
  rollback: (p, s) => p.sandbox.rollback(p.opened[s.snapshot]),
  fork: async (p, s) => {
    const forks = await p.sandbox.fork(s.count, p.opened[s.snapshot]);
    try {
      return { stdouts: await Promise.all(forks.map(async (f) => (await f.run(s.command)).stdout)) };
    } finally {
      await Promise.all(forks.map((f) => f.destroy()));
    }
  },
  diff: async (p) => ({ changes: (await p.sandbox.diff()).map((c) => `${c.path} ${c.kind}`) }),
  apply: async (p) => ({ count: (await p.sandbox.apply()).length }),
};

async function step(p, s) {
  try {
    return (await steps[s.do](p, s)) ?? {};
  } catch (error) {
    if (error instanceof CommandFailed) return { error: error.code, reason: error.reason, exitCode: error.result.exitCode };
    if (error instanceof BaileyError) return { error: error.code, reason: error.reason };
    throw error;
  }
}

async function begin(client, scenario) {
  const dir = await mkdtemp(join(tmpdir(), "bailey-suite-"));
  for (const [name, text] of Object.entries(scenario.files ?? {})) {
    await mkdir(dirname(join(dir, name)), { recursive: true });
    await writeFile(join(dir, name), text);
  }
  const options = { client, labels: scenario.labels, runtime, policy };
  const sandbox = scenario.files ? await Sandbox.fromLocal(dir, options) : await Sandbox.create(options);
  return { client, dir, sandbox, opened: {} };
}

describe("the shared suite", () => {
  let client;
  before(async () => void (client = await SandboxClient.connect()));
  after(() => client.close());

  for (const scenario of scenarios) {
    it(scenario.name, async () => {
      const p = await begin(client, scenario);
      try {
        for (const s of scenario.steps) {
          const got = await step(p, s);
          if (scenario.optional && got.error === "unimplemented") return;
          if (s.refusedBy?.[runtime]) {
            assert.deepEqual(got, { error: "unimplemented", reason: s.refusedBy[runtime] }, JSON.stringify(s));
            return;
          }
          const want = s.expect ?? {};
          if (got.error && !want.error) assert.fail(`${JSON.stringify(s)}: ${JSON.stringify(got)}`);
          assert.deepEqual(Object.fromEntries(Object.keys(want).map((key) => [key, got[key]])), want, JSON.stringify(s));
        }
      } finally {
        await p.sandbox.destroy();
        await rm(p.dir, { recursive: true });
      }
    });
  }
});
