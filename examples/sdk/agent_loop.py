"""An agent with one tool: a shell in a sandbox.

    python3 examples/sdk/agent_loop.py DIRECTORY

The model is a list of answers here; put a call of yours in its place. What the
tool returns is what a model needs to go on after a failure.
"""

import json
import sys
from typing import Dict, Iterator, List

from bailey import Session, Sandbox

Message = Dict[str, str]


def scripted_model() -> Iterator[str]:
    yield json.dumps({"tool": "shell", "command": "ls; cd /tmp"})
    yield json.dumps({"tool": "shell", "command": "pwd; ls /nothing"})
    yield json.dumps({"answer": "The shell kept its directory, and I saw the error."})


def shell(session: Session, command: str) -> str:
    """Run a command of the model's. Its directory is there for the next one."""
    result = session.run(command, timeout=60)
    text = result.stdout + result.stderr
    if len(text) > 10_000:
        text = text[:5_000] + "\n[…]\n" + text[-5_000:]
    return f"{text}\n[exit status {result.exit_code}{', timed out' if result.timed_out else ''}]"


def main() -> None:
    messages: List[Message] = []
    model = scripted_model()
    with Sandbox.from_local(sys.argv[1]) as sb, sb.session() as session:
        while True:
            reply = json.loads(next(model))
            if "answer" in reply:
                print(reply["answer"])
                return
            observation = shell(session, reply["command"])
            print(f"$ {reply['command']}\n{observation}")
            messages.append({"role": "tool", "content": observation})


if __name__ == "__main__":
    main()
