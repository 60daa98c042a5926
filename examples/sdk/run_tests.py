"""Runs the tests of a repository, without letting them change it.

    python3 examples/sdk/run_tests.py DIRECTORY COMMAND
"""

import sys

from bailey import Sandbox


def main() -> int:
    directory, command = sys.argv[1], sys.argv[2]
    with Sandbox.from_local(directory, exclude=[".git", "node_modules"]) as sb:
        process = sb.popen(command, timeout=600)
        for chunk in process:
            out = sys.stderr if chunk.stream == "stderr" else sys.stdout
            out.buffer.write(chunk.data)
            out.flush()
        assert process.result is not None
        return process.result.exit_code


if __name__ == "__main__":
    sys.exit(main())
