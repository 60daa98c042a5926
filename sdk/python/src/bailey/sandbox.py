"""Sandboxes, as a program wants to use them."""

from __future__ import annotations

import os
from typing import IO, Any, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Union

from . import _tar
from .client import Command, Policy, SandboxClient
from .models import (
    Change,
    Event,
    ExecInfo,
    ExecResult,
    ExposedPort,
    FileChange,
    FileInfo,
    OutputChunk,
    PathRule,
    ResourceLimits,
    RuntimeType,
    SandboxInfo,
    SessionInfo,
    Snapshot,
    Stats,
)

__all__ = ["Process", "Sandbox", "Session"]


class Sandbox:
    """A place to run commands in. Use it as a context manager: it is destroyed at
    the end of the block, however that comes.

    >>> with Sandbox.from_local(".") as sb:
    ...     print(sb.run("pytest").stdout)
    """

    def __init__(self, client: SandboxClient, info: SandboxInfo, *, owns_client: bool = False, owns_codebase: bool = False) -> None:
        self._client = client
        self._info = info
        self._owns_client = owns_client
        self._owns_codebase = owns_codebase
        self._destroyed = False

    @classmethod
    def create(cls, codebase_id: str = "", *, client: Optional[SandboxClient] = None, **options: Any) -> "Sandbox":
        """Make a sandbox from a codebase, an image, or nothing at all. Options as for
        :meth:`SandboxClient.create_sandbox`."""
        own = client is None
        client = client or SandboxClient()
        try:
            return cls(client, client.create_sandbox(codebase_id, **options), owns_client=own)
        except BaseException:
            if own:
                client.close()
            raise

    @classmethod
    def from_local(
        cls,
        path: _tar.Path = ".",
        *,
        runtime: Union[RuntimeType, str, None] = None,
        resources: Optional[ResourceLimits] = None,
        preset: str = "",
        policy: Optional[Policy] = None,
        rules: Optional[Sequence[PathRule]] = None,
        env: Optional[Mapping[str, str]] = None,
        labels: Optional[Mapping[str, str]] = None,
        ttl: Optional[float] = None,
        exclude: Sequence[str] = (),
        client: Optional[SandboxClient] = None,
        **options: Any,
    ) -> "Sandbox":
        """Make a sandbox with a copy of a local directory at /workspace. The
        directory itself never changes."""
        own = client is None
        client = client or SandboxClient()
        codebase = None
        try:
            name = os.path.basename(os.path.abspath(os.fspath(path)))
            codebase = client.create_codebase(name)
            client.upload_codebase(codebase.id, path, exclude=exclude)
            info = client.create_sandbox(
                codebase.id, runtime=runtime, resources=resources, preset=preset, policy=policy, rules=rules, env=env, labels=labels, ttl=ttl, **options
            )
            return cls(client, info, owns_client=own, owns_codebase=True)
        except BaseException:
            if codebase is not None:
                client.delete_codebase(codebase.id)
            if own:
                client.close()
            raise

    @classmethod
    def connect(cls, sandbox_id: str, *, client: Optional[SandboxClient] = None) -> "Sandbox":
        """Use a sandbox that is there."""
        own = client is None
        client = client or SandboxClient()
        return cls(client, client.get_sandbox(sandbox_id), owns_client=own)

    @property
    def id(self) -> str:
        return self._info.id

    @property
    def codebase_id(self) -> str:
        return self._info.codebase_id

    @property
    def info(self) -> SandboxInfo:
        """The sandbox as it was last seen."""
        return self._info

    @property
    def client(self) -> SandboxClient:
        return self._client

    def refresh(self) -> SandboxInfo:
        """Ask the server how the sandbox is."""
        self._info = self._client.get_sandbox(self.id)
        return self._info

    def __enter__(self) -> "Sandbox":
        return self

    def __exit__(self, *_: object) -> None:
        self.destroy()

    def __repr__(self) -> str:
        return f"<Sandbox {self.id}>"

    # Life.

    def start(self) -> None:
        """Start a sandbox that is stopped. Its files are as they were."""
        self._info = self._client.start_sandbox(self.id)

    def stop(self, *, grace: Optional[float] = None) -> None:
        """End every process and keep the files."""
        self._info = self._client.stop_sandbox(self.id, grace=grace)

    def pause(self) -> None:
        """Freeze every process where it is."""
        self._info = self._client.pause_sandbox(self.id)

    def resume(self) -> None:
        """Let processes go on."""
        self._info = self._client.resume_sandbox(self.id)

    def update(self, **changes: Any) -> None:
        """Change rules, labels and lifetimes; see :meth:`SandboxClient.update_sandbox`."""
        self._info = self._client.update_sandbox(self.id, **changes)

    def destroy(self, delete_codebase: Optional[bool] = None) -> None:
        """End the sandbox and remove what it wrote, and with ``delete_codebase`` its
        codebase; not given, that is removed if :meth:`from_local` made it."""
        if self._destroyed:
            return
        if delete_codebase is None:
            delete_codebase = self._owns_codebase
        self._client.destroy_sandbox(self.id, delete_codebase=delete_codebase)
        self._destroyed = True
        if self._owns_client:
            self._client.close()

    # Commands.

    def run(
        self,
        command: Command,
        *,
        cwd: str = "",
        env: Optional[Mapping[str, str]] = None,
        user: str = "",
        timeout: Optional[float] = None,
        stdin: Union[str, bytes, None] = None,
        check: bool = False,
    ) -> ExecResult:
        """Run a command and wait for its end. A string runs under bash where there is
        one; a list is a program with its arguments. With ``check`` a command that
        fails raises :class:`~bailey.errors.CommandFailed`."""
        return self._client.exec(self.id, command, cwd=cwd, env=env, user=user, timeout=timeout, stdin=stdin, check=check)

    exec = run

    def popen(self, command: Command, **options: Any) -> "Process":
        """Start a command that goes on by itself. Options as for :meth:`run`, and
        ``open_stdin`` and ``terminal=(rows, columns)``."""
        return Process(self._client, self.id, self._client.start_exec(self.id, command, **options))

    def stream(self, command: Command, **options: Any) -> Iterator[OutputChunk]:
        """Run a command and yield what it writes, as it comes."""
        process = self.popen(command, **options)
        ended = False
        try:
            yield from process
            ended = True
        finally:
            if not ended:
                process.kill()

    def process(self, exec_id: str) -> "Process":
        """A command that was started before, by this program or another."""
        return Process(self._client, self.id, exec_id)

    def execs(self, *, running_only: bool = False) -> List[ExecInfo]:
        """Commands that run, and those that have ended lately."""
        return list(self._client.list_execs(self.id, running_only=running_only))

    def sessions(self) -> List[SessionInfo]:
        return list(self._client.list_sessions(self.id))

    def session(self, *, shell: str = "", cwd: str = "", env: Optional[Mapping[str, str]] = None) -> "Session":
        """Start a shell that keeps its directory and variables between commands."""
        return Session(self._client, self.id, self._client.create_session(self.id, shell=shell, cwd=cwd, env=env))

    # Files.

    def read_file(self, path: str) -> bytes:
        return self._client.read_file(path, sandbox_id=self.id)

    def read_text(self, path: str) -> str:
        return self.read_file(path).decode()

    def write_file(self, path: str, content: Union[str, bytes, IO[bytes], Iterable[bytes]], *, mode: int = 0) -> FileInfo:
        """Replace or make a file, and directories above it that are missing."""
        return self._client.write_file(path, content, sandbox_id=self.id, mode=mode)

    def stat_file(self, path: str) -> FileInfo:
        return self._client.stat_file(path, sandbox_id=self.id)

    def list_files(self, path: str = "", *, recursive: bool = False) -> List[FileInfo]:
        return list(self._client.list_files(path, recursive=recursive, sandbox_id=self.id))

    def glob_files(self, pattern: str, path: str = "") -> List[FileInfo]:
        """What matches a pattern such as ``src/**/*.py`` in a directory."""
        return list(self._client.glob_files(pattern, path, sandbox_id=self.id))

    def make_directory(self, path: str) -> FileInfo:
        return self._client.make_directory(path, sandbox_id=self.id)

    def remove_file(self, path: str, *, recursive: bool = False) -> None:
        self._client.remove_file(path, recursive=recursive, sandbox_id=self.id)

    def move_file(self, path: str, new_path: str) -> FileInfo:
        return self._client.move_file(path, new_path, sandbox_id=self.id)

    def watch_files(self, path: str = "", *, recursive: bool = False) -> Iterator[FileChange]:
        """What changes in a directory, from now on. The first is ``lost``: look, and then nothing is missed."""
        return self._client.watch_files(path, recursive=recursive, sandbox_id=self.id)

    def upload(self, directory: _tar.Path, path: str = "", *, exclude: Sequence[str] = ()) -> int:
        """Put a local directory into the workspace."""
        return self._client.upload_directory(directory, path, sandbox_id=self.id, exclude=exclude)

    def download(self, path: str = "") -> Iterator[bytes]:
        """A directory of the workspace as a tar archive, in pieces."""
        return self._client.download_directory(path, sandbox_id=self.id)

    # Snapshots.

    def snapshot(self, name: str = "") -> Snapshot:
        """Keep the files as they are now."""
        return self._client.create_snapshot(self.id, name)

    def snapshots(self) -> List[Snapshot]:
        return list(self._client.list_snapshots(self.id))

    def rollback(self, snapshot: Union[Snapshot, str]) -> None:
        """Go back to the files of a snapshot."""
        self._info = self._client.rollback_sandbox(self.id, _id(snapshot))

    def fork(self, count: int = 1, *, snapshot: Union[Snapshot, str] = "", name: str = "", labels: Optional[Mapping[str, str]] = None) -> List["Sandbox"]:
        """Make sandboxes that begin with the files of this one, now or at a snapshot."""
        made = self._client.fork_sandbox(self.id, count, snapshot_id=_id(snapshot), name=name, labels=labels)
        return [Sandbox(self._client, info) for info in made]

    def diff(self, paths: Sequence[str] = ()) -> List[Change]:
        """What the sandbox changed in its codebase."""
        return self._client.diff_sandbox(self.id, paths)

    def patch(self, paths: Sequence[str] = ()) -> bytes:
        """The same as a patch that ``git apply`` takes."""
        return self._client.patch_sandbox(self.id, paths)

    def apply(self, paths: Sequence[str] = (), *, merge: bool = False) -> List[Change]:
        """Write what the sandbox changed into its codebase."""
        return self._client.apply_sandbox(self.id, paths, merge=merge)

    # The rest.

    def expose_port(self, port: int) -> ExposedPort:
        """Make a TCP port of the sandbox reachable from the server's machine."""
        return self._client.expose_port(self.id, port)

    def unexpose_port(self, port: int) -> None:
        self._client.unexpose_port(self.id, port)

    def stats(self) -> Stats:
        return self._client.stats(self.id)

    def events(self, *, after: str = "", kinds: Sequence[str] = ()) -> Iterator[Event]:
        """What happens in the sandbox, as it happens."""
        return self._client.events(self.id, after=after, kinds=kinds)


class Process:
    """A command that goes on by itself. Iterate over it for its output."""

    def __init__(self, client: SandboxClient, sandbox_id: str, exec_id: str) -> None:
        self._client = client
        self._sandbox_id = sandbox_id
        self.id = exec_id
        self._offset = 0
        self._result: Optional[ExecResult] = None

    def __iter__(self) -> Iterator[OutputChunk]:
        for item in self._client.attach_exec(self._sandbox_id, self.id):
            if isinstance(item, OutputChunk):
                yield item
            else:
                self._result = item

    @property
    def result(self) -> Optional[ExecResult]:
        """How the command ended, once that is known."""
        return self._result

    def wait(self, timeout: Optional[float] = None) -> Optional[ExecResult]:
        """Wait for the end; ``None`` if it has not come in time."""
        self._result = self._client.wait_exec(self._sandbox_id, self.id, timeout)
        return self._result

    def output(self) -> ExecResult:
        """Wait for the end, and return all that the command wrote."""
        parts: Dict[str, List[bytes]] = {"stdout": [], "stderr": []}
        for chunk in self:
            parts[chunk.stream].append(chunk.data)
        end = self._result
        assert end is not None
        fields = {name: getattr(end, name) for name in end.__dataclass_fields__}
        fields.update(stdout_bytes=b"".join(parts["stdout"]), stderr_bytes=b"".join(parts["stderr"]))
        return ExecResult(**fields)

    def write(self, data: Union[str, bytes]) -> None:
        """Write to the input of a command that was started with ``open_stdin``."""
        data = data.encode() if isinstance(data, str) else data
        self._offset = self._client.write_stdin(self._sandbox_id, self.id, data, offset=self._offset)

    def close_stdin(self) -> None:
        self._client.write_stdin(self._sandbox_id, self.id, b"", offset=self._offset, close=True)

    def signal(self, name: str) -> None:
        """Send a signal, such as ``SIGTERM``, to the command and its process group."""
        self._client.signal_exec(self._sandbox_id, self.id, name)

    def kill(self) -> None:
        self.signal("SIGKILL")

    def resize(self, rows: int, columns: int) -> None:
        self._client.resize_terminal(self._sandbox_id, self.id, rows, columns)


class Session:
    """A shell that keeps its directory and variables between commands."""

    def __init__(self, client: SandboxClient, sandbox_id: str, session_id: str) -> None:
        self._client = client
        self._sandbox_id = sandbox_id
        self.id = session_id
        self._closed = False

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, command: str, *, timeout: Optional[float] = None, stdin: Union[str, bytes, None] = None, check: bool = False) -> ExecResult:
        """Run a line, or several, and wait for the end."""
        result = self._client.run_session(self._sandbox_id, self.id, command, timeout=timeout, stdin=stdin)
        return result.check() if check else result

    exec = run

    def stream(self, command: str, *, timeout: Optional[float] = None) -> Iterator[OutputChunk]:
        """Run a line and yield what it writes, as it comes."""
        for item in self._client.stream_session(self._sandbox_id, self.id, command, timeout=timeout):
            if isinstance(item, OutputChunk):
                yield item

    def interrupt(self) -> None:
        """Send SIGINT to the command that runs."""
        self._client.interrupt_session(self._sandbox_id, self.id)

    def close(self) -> None:
        """End the shell and what it left running."""
        if not self._closed:
            self._closed = True
            self._client.close_session(self._sandbox_id, self.id)


def _id(snapshot: Union[Snapshot, str]) -> str:
    return snapshot.id if isinstance(snapshot, Snapshot) else snapshot
