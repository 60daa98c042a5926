// What the client does beside the shared suite.

import assert from "node:assert/strict";
import { mkdtemp, rm, symlink, writeFile } from "node:fs/promises";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";

import { NotFound, Sandbox, SandboxClient, Unavailable } from "../dist/index.js";

describe("the client", () => {
  let client;
  before(async () => void (client = await SandboxClient.connect()));
  after(() => client.close());

  it("packs long names, links and modes", async () => {
    const dir = await mkdtemp(join(tmpdir(), "bailey-suite-"));
    const long = "n".repeat(200);
    try {
      await writeFile(join(dir, long), "long");
      await writeFile(join(dir, "ü"), "umlaut");
      await writeFile(join(dir, "run"), "#!/bin/sh\necho ran\n", { mode: 0o755 });
      await symlink("run", join(dir, "link"));
      const sb = await Sandbox.fromLocal(dir, { client });
      try {
        assert.equal((await sb.run(`cat ${long} ü; ./link`)).stdout, "longumlautran\n");
      } finally {
        await sb.destroy();
      }
      await assert.rejects(client.getCodebase(sb.codebaseId), NotFound);
    } finally {
      await rm(dir, { recursive: true });
    }
  });

  it("tells what a command used", async () => {
    const sb = await Sandbox.create({ client });
    try {
      const r = await sb.run("dd if=/dev/zero of=/dev/null bs=64M count=1 status=none; i=0; while [ $i -lt 50000 ]; do i=$((i + 1)); done", { check: true });
      assert.ok(r.maxRssBytes > 64 << 20 && r.userTime > 0 && r.duration > 0, JSON.stringify(r));
    } finally {
      await sb.destroy();
    }
  });

  it("exposes a port while the sandbox runs", async () => {
    const sb = await Sandbox.create({ client });
    try {
      const program = "import socket; l = socket.create_server(('127.0.0.1', 8123)); print('up', flush=True); l.accept()[0].sendall(b'from inside')";
      const server = await sb.spawn(["python3", "-c", program]);
      for await (const _ of server) break;
      const [host, port] = (await sb.exposePort(8123)).address.split(":");
      const said = await new Promise((resolve, reject) => connect(Number(port), host).on("data", (b) => resolve(b.toString())).on("error", reject));
      assert.equal(said, "from inside");
      await sb.unexposePort(8123);
      await assert.rejects(new Promise((resolve, reject) => connect(Number(port), host, resolve).on("error", reject)), { code: "ECONNREFUSED" });
    } finally {
      await sb.destroy();
    }
  });

  it("tells local errors from those of the connection", async () => {
    await assert.rejects(Sandbox.fromLocal("/no/such/directory", { client }), { code: "ENOENT" });
    const nowhere = await SandboxClient.connect({ address: "unix:/no/such/socket" });
    await assert.rejects(nowhere.server(), Unavailable);
    await assert.rejects(SandboxClient.connect({ address: "localhost:80" }), TypeError);
  });

  it("refuses misspelt options", async () => {
    const misspelt = { name: "TypeError", message: /no option/ };
    await assert.rejects(Sandbox.fromLocal(".", { client, memoryBytes: 3 }), misspelt);
    await assert.rejects(client.createSandbox({ resources: { memoryByte: 3 } }), misspelt);
    const sb = await Sandbox.create({ client });
    try {
      await assert.rejects(sb.run("true", { timout: 1 }), misspelt);
      await assert.rejects(sb.update({ label: {} }), misspelt);
      await assert.rejects(sb.session({ dir: "/" }), misspelt);
      await assert.rejects(client.importCodebase(sb.id, { url: "/" }), misspelt);
    } finally {
      await sb.destroy();
    }
  });

  it("ends a command that is given up", async () => {
    const sb = await Sandbox.create({ client });
    try {
      const abort = new AbortController();
      const run = sb.run("echo > started; sleep 1000", { signal: abort.signal });
      const begun = sb.run("until [ -e started ]; do sleep 0.01; done");
      await begun;
      abort.abort();
      await assert.rejects(run, { code: "canceled" });
    } finally {
      await sb.destroy();
    }
  });
});
