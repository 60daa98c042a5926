// Tries several ways from the same state, and keeps the one that works.
//
//     node examples/sdk/fork_and_try.mjs DIRECTORY CHECK FIX...
//
// CHECK is a command that succeeds once all is well; each FIX is a command that
// might make it so. All are tried at once, each in a fork of its own.

import { Sandbox } from "bailey-sandbox";

const [directory, check, ...fixes] = process.argv.slice(2);

const attempt = async (fork, fix) => (await fork.run(fix, { timeout: 300 })).ok && (await fork.run(check, { timeout: 300 })).ok;

const sb = await Sandbox.fromLocal(directory);
try {
  const prepared = await sb.snapshot("before any fix");
  const forks = await sb.fork(fixes.length, prepared);
  try {
    const worked = await Promise.all(forks.map((fork, i) => attempt(fork, fixes[i])));
    fixes.forEach((fix, i) => console.log(worked[i] ? "works:" : "fails:", fix));
    process.exitCode = worked.some(Boolean) ? 0 : 1;
  } finally {
    await Promise.all(forks.map((fork) => fork.destroy()));
  }
} finally {
  await sb.destroy();
}
