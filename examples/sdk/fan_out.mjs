// Runs a command in fifty sandboxes at once, all with the same files.
//
//     node examples/sdk/fan_out.mjs DIRECTORY COMMAND [COUNT]
//
// Each command finds its number in $INDEX.

import { Sandbox, SandboxClient } from "bailey-sandbox";

const [directory, command, count = "50"] = process.argv.slice(2);
const client = await SandboxClient.connect();
try {
  const codebase = await client.createCodebase("fan-out");
  await client.uploadCodebase(codebase.id, directory); // once for all of them
  const infos = await client.createSandboxes(Number(count), { codebaseId: codebase.id });
  const sandboxes = await Promise.all(infos.map((info) => Sandbox.connect(info.id, client)));
  try {
    const results = await Promise.all(sandboxes.map((sb, i) => sb.run(command, { env: { INDEX: String(i) } })));
    results.forEach((r, i) => console.log(i, r.exitCode, r.stdout.trim()));
    process.exitCode = results.every((r) => r.ok) ? 0 : 1;
  } finally {
    await Promise.all(sandboxes.map((sb) => sb.destroy()));
    await client.deleteCodebase(codebase.id);
  }
} finally {
  await client.close();
}
