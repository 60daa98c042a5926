"""Runs a command in fifty sandboxes at once, all with the same files.

    python3 examples/sdk/fan_out.py DIRECTORY COMMAND [COUNT]

Each command finds its number in $INDEX.
"""

import sys
from concurrent.futures import ThreadPoolExecutor

from bailey import Sandbox, SandboxClient


def main() -> int:
    directory, command = sys.argv[1], sys.argv[2]
    count = int(sys.argv[3]) if len(sys.argv) > 3 else 50
    with SandboxClient() as client:
        codebase = client.create_codebase("fan-out")
        client.upload_codebase(codebase.id, directory)  # once for all of them
        infos = client.create_sandboxes(count, codebase.id)
        sandboxes = [Sandbox(client, info) for info in infos]
        try:
            with ThreadPoolExecutor(count) as threads:
                results = list(threads.map(lambda p: p[1].run(command, env={"INDEX": str(p[0])}), enumerate(sandboxes)))
        finally:
            for sandbox in sandboxes:
                sandbox.destroy()
            client.delete_codebase(codebase.id)
    for index, result in enumerate(results):
        print(index, result.exit_code, result.stdout.strip())
    return 0 if all(r.ok for r in results) else 1


if __name__ == "__main__":
    sys.exit(main())
