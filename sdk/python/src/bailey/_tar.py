"""Directories as tar archives, without holding more than a piece in memory."""

from __future__ import annotations

import fnmatch
import os
import queue
import tarfile
import threading
from typing import Iterator, Optional, Sequence, Union

Path = Union[str, "os.PathLike[str]"]

_PIECE = 1 << 18


def pack(root: Path, exclude: Sequence[str] = ()) -> Iterator[bytes]:
    """Yield a directory as a tar archive. Names relative to the directory that
    match a pattern of ``exclude`` are left out, with all that is below them."""
    root = os.fspath(root)
    if not os.path.isdir(root):
        raise NotADirectoryError(f"{root} is not a directory")
    pieces: "queue.Queue[Optional[bytes]]" = queue.Queue(maxsize=8)
    stopped = threading.Event()
    failure = []

    def produce() -> None:
        try:
            with tarfile.open(fileobj=_Pieces(pieces, stopped), mode="w|", bufsize=_PIECE, format=tarfile.PAX_FORMAT) as archive:  # type: ignore[call-overload]
                archive.add(root, arcname=".", filter=lambda entry: _wanted(entry, exclude))
        except BaseException as error:  # noqa: B902 - it is raised where the archive is read
            failure.append(error)
        finally:
            _put(pieces, None, stopped)

    thread = threading.Thread(target=produce, name="bailey-pack", daemon=True)
    thread.start()
    try:
        while True:
            piece = pieces.get()
            if piece is None:
                break
            yield piece
    finally:
        stopped.set()
        thread.join()
    if failure:
        raise failure[0]


def _wanted(entry: tarfile.TarInfo, exclude: Sequence[str]) -> Optional[tarfile.TarInfo]:
    name = entry.name[2:] if entry.name.startswith("./") else entry.name
    if any(fnmatch.fnmatch(name, pattern) for pattern in exclude):
        return None
    if not (entry.isreg() or entry.isdir() or entry.issym() or entry.islnk()):
        return None  # sockets, pipes and devices mean nothing elsewhere
    # Who owns a file here means nothing there.
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


class _Pieces:
    """A file whose content goes to a queue."""

    def __init__(self, pieces: "queue.Queue[Optional[bytes]]", stopped: threading.Event) -> None:
        self._pieces = pieces
        self._stopped = stopped

    def write(self, data: bytes) -> int:
        if not _put(self._pieces, bytes(data), self._stopped):
            raise BrokenPipeError("nobody reads the archive any more")
        return len(data)


def _put(pieces: "queue.Queue[Optional[bytes]]", piece: Optional[bytes], stopped: threading.Event) -> bool:
    while not stopped.is_set():
        try:
            pieces.put(piece, timeout=0.1)
            return True
        except queue.Full:
            continue
    return False
