// Runs the tests of a repository, without letting them change it.
//
//     node examples/sdk/run_tests.mjs DIRECTORY COMMAND

import { Sandbox } from "bailey-sandbox";

const [directory, command] = process.argv.slice(2);
const skipped = (path) => /(^|\/)(\.git|node_modules)$/.test(path);
const sb = await Sandbox.fromLocal(directory, { exclude: skipped });
try {
  const tests = await sb.spawn(command, { timeout: 600 });
  for await (const chunk of tests) process[chunk.stream].write(chunk.data);
  process.exitCode = (await tests.wait()).exitCode;
} finally {
  await sb.destroy();
}
