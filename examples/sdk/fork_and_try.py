"""Tries several ways from the same state, and keeps the one that works.

    python3 examples/sdk/fork_and_try.py DIRECTORY CHECK FIX...

CHECK is a command that succeeds once all is well; each FIX is a command that
might make it so. All are tried at once, each in a fork of its own.
"""

import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Tuple

from bailey import Sandbox


def attempt(work: Tuple[Sandbox, str, str]) -> bool:
    fork, fix, check = work
    return fork.run(fix, timeout=300).ok and fork.run(check, timeout=300).ok


def main() -> int:
    directory, check, fixes = sys.argv[1], sys.argv[2], sys.argv[3:]
    with Sandbox.from_local(directory) as sb:
        prepared = sb.snapshot("before any fix")
        forks = sb.fork(len(fixes), snapshot=prepared)
        try:
            with ThreadPoolExecutor(len(fixes)) as threads:
                worked = list(threads.map(attempt, [(f, fix, check) for f, fix in zip(forks, fixes)]))
        finally:
            for fork in forks:
                fork.destroy()
    for fix, ok in zip(fixes, worked):
        print("works:" if ok else "fails:", fix)
    return 0 if any(worked) else 1


if __name__ == "__main__":
    sys.exit(main())
