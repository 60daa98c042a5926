// An agent with one tool: a shell in a sandbox.
//
//     node examples/sdk/agent_loop.mjs DIRECTORY
//
// The model is a list of answers here; put a call of yours in its place. What the
// tool returns is what a model needs to go on after a failure.

import { Sandbox } from "bailey-sandbox";

function* scriptedModel() {
  yield { tool: "shell", command: "ls; cd /tmp" };
  yield { tool: "shell", command: "pwd; ls /nothing" };
  yield { answer: "The shell kept its directory, and I saw the error." };
}

/** Runs a command of the model's. Its directory is there for the next one. */
async function shell(session, command) {
  const result = await session.run(command, { timeout: 60 });
  let text = result.stdout + result.stderr;
  if (text.length > 10_000) text = `${text.slice(0, 5_000)}\n[…]\n${text.slice(-5_000)}`;
  return `${text}\n[exit status ${result.exitCode}${result.timedOut ? ", timed out" : ""}]`;
}

const messages = [];
const sb = await Sandbox.fromLocal(process.argv[2]);
try {
  const session = await sb.session();
  for (const reply of scriptedModel(messages)) {
    if (reply.answer) {
      console.log(reply.answer);
      break;
    }
    const observation = await shell(session, reply.command);
    console.log(`$ ${reply.command}\n${observation}`);
    messages.push({ role: "tool", content: observation });
  }
} finally {
  await sb.destroy();
}
