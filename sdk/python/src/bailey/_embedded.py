"""A server that a program starts for itself, and that ends with it."""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import threading
from typing import List, Optional

from . import errors

_lock = threading.Lock()
_server: Optional["EmbeddedServer"] = None


class EmbeddedServer:
    """A server of this process. It ends when its standard input does, so that it
    also ends if this process is killed."""

    def __init__(self, program: str) -> None:
        self.pid = os.getpid()
        self._process = subprocess.Popen(
            [program, "serve", "--ephemeral", "--log-level", "error"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # Ctrl-C is for the program; the server ends when the program has.
            start_new_session=True,
        )
        self.address = self._read_address()

    def _read_address(self) -> str:
        assert self._process.stdout
        address = ""
        for line in self._process.stdout:
            text = line.decode().strip()
            if text.startswith("listening on "):
                address = text[len("listening on ") :]
            if text == "ready" and address:
                return address
        self._process.wait()
        raise errors.ServerNotFound(
            f"the server that was started has ended with status {self._process.returncode}",
            reason="server_ended",
            remedy="it has said why on standard error; see also: bailey doctor",
        )

    @property
    def running(self) -> bool:
        return self.pid == os.getpid() and self._process.poll() is None

    def close(self) -> None:
        """End the server and everything in it, and wait for that."""
        if self.pid != os.getpid():
            return
        if self._process.stdin:
            self._process.stdin.close()
        self._process.wait()
        if self._process.stdout:
            self._process.stdout.close()


def address() -> str:
    """The address of this process's own server, which is started if need be."""
    global _server
    with _lock:
        if _server is None or not _server.running:
            _server = EmbeddedServer(find_program())
            atexit.register(_server.close)
        return _server.address


def find_program() -> str:
    """The program baileyd: $BAILEYD, or the one that the shell would find."""
    named = os.environ.get("BAILEYD")
    candidates: List[Optional[str]] = [named] if named else [shutil.which("baileyd")]
    for candidate in candidates:
        if candidate and os.access(candidate, os.X_OK):
            return candidate
    raise errors.ServerNotFound(
        "there is no server to use, and no program baileyd to start one",
        reason="baileyd_missing",
        remedy="install Bailey, or set BAILEY_ADDRESS to the address of a server",
    )
