"""The same for asyncio. Requests run in threads, so that the loop never waits."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import IO, Any, AsyncIterator, Awaitable, Callable, Iterable, Iterator, List, Mapping, Optional, Sequence, Set, TypeVar, Union

from . import _tar, _wire
from ._wire import Hangup
from .client import Command, SandboxClient
from .models import Change, Event, ExecInfo, ExecResult, ExposedPort, FileChange, FileInfo, OutputChunk, SandboxInfo, SessionInfo, Snapshot, Stats
from .sandbox import Process, Sandbox, Session

__all__ = ["AsyncProcess", "AsyncSandbox", "AsyncSession"]

T = TypeVar("T")

_THREADS = 128
_lock = threading.Lock()
_executor: Optional[ThreadPoolExecutor] = None


def _threads() -> ThreadPoolExecutor:
    global _executor
    with _lock:
        if _executor is None:
            _executor = ThreadPoolExecutor(_THREADS, thread_name_prefix="bailey")
        return _executor


async def _call(function: Callable[..., T], *args: Any, **options: Any) -> T:
    return await _call_with(Hangup(), functools.partial(function, *args, **options))


async def _call_with(hangup: Hangup, function: Callable[[], T]) -> T:
    context = contextvars.copy_context()  # what is current here, such as a span, is so there
    context.run(_wire.hangup.set, hangup)
    try:
        return await asyncio.get_running_loop().run_in_executor(_threads(), context.run, function)
    except asyncio.CancelledError:
        hangup.now()  # nobody waits for the answer, and a command must not go on for nobody
        raise


async def _iterate(iterator: Iterator[T]) -> AsyncIterator[T]:
    hangup = Hangup()  # of all steps: the connection stays the same
    end = object()
    turn = threading.Lock()  # a step that was canceled may not be over yet

    def step() -> Any:
        with turn:
            return next(iterator, end)

    def finish() -> None:
        close = getattr(iterator, "close", None)
        with turn:
            if close is not None:
                close()

    try:
        while True:
            item = await _call_with(hangup, step)
            if item is end:
                return
            yield item
    finally:
        await _call(finish)


class AsyncSandbox:
    """A :class:`~bailey.sandbox.Sandbox` for asyncio.

    >>> async with await AsyncSandbox.from_local(".") as sb:
    ...     tests = [sb.run(f"pytest {name}") for name in names]
    >>> results = await asyncio.gather(*tests)

    A command starts when :meth:`run` is called, whether or not it is awaited, and
    the end of the block waits for all of them before the sandbox is destroyed. If
    the block ends with an exception, nobody waits: they are canceled. To cancel
    what is awaited, as ``asyncio.wait_for`` does, ends the command.
    """

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        self._pending: "Set[asyncio.Task[Any]]" = set()

    @classmethod
    async def create(cls, codebase_id: str = "", *, client: Optional[SandboxClient] = None, **options: Any) -> "AsyncSandbox":
        """Make a sandbox from a codebase, an image, or nothing at all."""
        return cls(await _call(Sandbox.create, codebase_id, client=client, **options))

    @classmethod
    async def from_local(cls, path: _tar.Path = ".", **options: Any) -> "AsyncSandbox":
        """Make a sandbox with a copy of a local directory at /workspace."""
        return cls(await _call(Sandbox.from_local, path, **options))

    @classmethod
    async def connect(cls, sandbox_id: str, *, client: Optional[SandboxClient] = None) -> "AsyncSandbox":
        """Use a sandbox that is there."""
        return cls(await _call(Sandbox.connect, sandbox_id, client=client))

    @property
    def id(self) -> str:
        return self._sandbox.id

    @property
    def codebase_id(self) -> str:
        return self._sandbox.codebase_id

    @property
    def info(self) -> SandboxInfo:
        return self._sandbox.info

    async def refresh(self) -> SandboxInfo:
        return await _call(self._sandbox.refresh)

    async def __aenter__(self) -> "AsyncSandbox":
        return self

    async def __aexit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            self._cancel()
        await self.destroy()

    def _cancel(self) -> None:
        for task in self._pending:
            task.cancel()

    # Life.

    async def start(self) -> None:
        await _call(self._sandbox.start)

    async def stop(self, *, grace: Optional[float] = None) -> None:
        await _call(self._sandbox.stop, grace=grace)

    async def pause(self) -> None:
        await _call(self._sandbox.pause)

    async def resume(self) -> None:
        await _call(self._sandbox.resume)

    async def update(self, **changes: Any) -> None:
        await _call(self._sandbox.update, **changes)

    async def destroy(self, delete_codebase: Optional[bool] = None) -> None:
        """Wait for commands that were started with :meth:`run`, then destroy."""
        canceled = False
        if self._pending:
            try:
                await asyncio.wait(self._pending)
            except asyncio.CancelledError:
                canceled = True
                self._cancel()
        await _call(self._sandbox.destroy, delete_codebase)
        if canceled:
            raise asyncio.CancelledError

    # Commands.

    def run(self, command: Command, **options: Any) -> "Awaitable[ExecResult]":
        """Start a command at once, and return what can be awaited for its result.
        Options as for :meth:`Sandbox.run`."""
        task = asyncio.ensure_future(_call(self._sandbox.run, command, **options))
        self._pending.add(task)
        task.add_done_callback(self._pending.discard)
        return task

    exec = run

    async def popen(self, command: Command, **options: Any) -> "AsyncProcess":
        """Start a command that goes on by itself."""
        return AsyncProcess(await _call(self._sandbox.popen, command, **options))

    def stream(self, command: Command, **options: Any) -> AsyncIterator[OutputChunk]:
        """Run a command and yield what it writes, as it comes."""
        return _iterate(self._sandbox.stream(command, **options))

    def process(self, exec_id: str) -> "AsyncProcess":
        return AsyncProcess(self._sandbox.process(exec_id))

    async def execs(self, *, running_only: bool = False) -> List[ExecInfo]:
        return await _call(self._sandbox.execs, running_only=running_only)

    async def sessions(self) -> List[SessionInfo]:
        return await _call(self._sandbox.sessions)

    def session(self, **options: Any) -> "AsyncSession":
        """A shell that keeps its directory and variables; use it with ``async with``."""
        return AsyncSession(self._sandbox, options)

    # Files.

    async def read_file(self, path: str) -> bytes:
        return await _call(self._sandbox.read_file, path)

    async def read_text(self, path: str) -> str:
        return await _call(self._sandbox.read_text, path)

    async def write_file(self, path: str, content: Union[str, bytes, IO[bytes], Iterable[bytes]], *, mode: int = 0) -> FileInfo:
        return await _call(self._sandbox.write_file, path, content, mode=mode)

    async def stat_file(self, path: str) -> FileInfo:
        return await _call(self._sandbox.stat_file, path)

    async def list_files(self, path: str = "", *, recursive: bool = False) -> List[FileInfo]:
        return await _call(self._sandbox.list_files, path, recursive=recursive)

    async def glob_files(self, pattern: str, path: str = "") -> List[FileInfo]:
        return await _call(self._sandbox.glob_files, pattern, path)

    async def make_directory(self, path: str) -> FileInfo:
        return await _call(self._sandbox.make_directory, path)

    async def remove_file(self, path: str, *, recursive: bool = False) -> None:
        await _call(self._sandbox.remove_file, path, recursive=recursive)

    async def move_file(self, path: str, new_path: str) -> FileInfo:
        return await _call(self._sandbox.move_file, path, new_path)

    def watch_files(self, path: str = "", *, recursive: bool = False) -> AsyncIterator[FileChange]:
        return _iterate(self._sandbox.watch_files(path, recursive=recursive))

    async def upload(self, directory: _tar.Path, path: str = "", *, exclude: Sequence[str] = ()) -> int:
        return await _call(self._sandbox.upload, directory, path, exclude=exclude)

    def download(self, path: str = "") -> AsyncIterator[bytes]:
        return _iterate(self._sandbox.download(path))

    # Snapshots.

    async def snapshot(self, name: str = "") -> Snapshot:
        return await _call(self._sandbox.snapshot, name)

    async def snapshots(self) -> List[Snapshot]:
        return await _call(self._sandbox.snapshots)

    async def rollback(self, snapshot: Union[Snapshot, str]) -> None:
        await _call(self._sandbox.rollback, snapshot)

    async def fork(self, count: int = 1, *, snapshot: Union[Snapshot, str] = "", name: str = "", labels: Optional[Mapping[str, str]] = None) -> List["AsyncSandbox"]:
        made = await _call(self._sandbox.fork, count, snapshot=snapshot, name=name, labels=labels)
        return [AsyncSandbox(s) for s in made]

    async def diff(self, paths: Sequence[str] = ()) -> List[Change]:
        return await _call(self._sandbox.diff, paths)

    async def patch(self, paths: Sequence[str] = ()) -> bytes:
        return await _call(self._sandbox.patch, paths)

    async def apply(self, paths: Sequence[str] = (), *, merge: bool = False) -> List[Change]:
        return await _call(self._sandbox.apply, paths, merge=merge)

    # The rest.

    async def expose_port(self, port: int) -> ExposedPort:
        return await _call(self._sandbox.expose_port, port)

    async def unexpose_port(self, port: int) -> None:
        await _call(self._sandbox.unexpose_port, port)

    async def stats(self) -> Stats:
        return await _call(self._sandbox.stats)

    def events(self, *, after: str = "", kinds: Sequence[str] = ()) -> AsyncIterator[Event]:
        return _iterate(self._sandbox.events(after=after, kinds=kinds))


class AsyncProcess:
    """A :class:`~bailey.sandbox.Process` for asyncio; ``async for`` has its output."""

    def __init__(self, process: Process) -> None:
        self._process = process

    @property
    def id(self) -> str:
        return self._process.id

    @property
    def result(self) -> Optional[ExecResult]:
        return self._process.result

    def __aiter__(self) -> AsyncIterator[OutputChunk]:
        return _iterate(iter(self._process))

    async def wait(self, timeout: Optional[float] = None) -> Optional[ExecResult]:
        return await _call(self._process.wait, timeout)

    async def output(self) -> ExecResult:
        return await _call(self._process.output)

    async def write(self, data: Union[str, bytes]) -> None:
        await _call(self._process.write, data)

    async def close_stdin(self) -> None:
        await _call(self._process.close_stdin)

    async def signal(self, name: str) -> None:
        await _call(self._process.signal, name)

    async def kill(self) -> None:
        await _call(self._process.kill)

    async def resize(self, rows: int, columns: int) -> None:
        await _call(self._process.resize, rows, columns)


class AsyncSession:
    """A :class:`~bailey.sandbox.Session` for asyncio."""

    def __init__(self, sandbox: Sandbox, options: Mapping[str, Any]) -> None:
        self._sandbox = sandbox
        self._options = dict(options)
        self._session: Optional[Session] = None
        self._lock = asyncio.Lock()

    async def _open(self) -> Session:
        async with self._lock:
            if self._session is None:
                self._session = await _call(self._sandbox.session, **self._options)
            return self._session

    async def __aenter__(self) -> "AsyncSession":
        await self._open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def run(self, command: str, **options: Any) -> ExecResult:
        """Run a line, or several, and wait for the end."""
        return await _call((await self._open()).run, command, **options)

    exec = run

    async def stream(self, command: str, *, timeout: Optional[float] = None) -> AsyncIterator[OutputChunk]:
        """Run a line and yield what it writes, as it comes."""
        session = await self._open()
        async for chunk in _iterate(session.stream(command, timeout=timeout)):
            yield chunk

    async def interrupt(self) -> None:
        await _call((await self._open()).interrupt)

    async def close(self) -> None:
        if self._session is not None:
            await _call(self._session.close)
