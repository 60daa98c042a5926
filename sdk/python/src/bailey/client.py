"""The client: everything that a server does, by the names of its API."""

from __future__ import annotations

import base64
import json
import os
import ssl
from typing import IO, Any, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Union

from . import _embedded, _tar
from ._wire import Traceparent, Wire, wait
from .errors import BaileyError
from .models import (
    Change,
    Codebase,
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
    Usage,
    duration,
)

__all__ = ["Command", "Policy", "SandboxClient"]

Command = Union[str, Sequence[str]]
"""A string runs under bash, or sh where there is no bash; a list is a program
with its arguments, and no shell is between."""

Policy = Union[str, Mapping[str, Any]]
"""A policy as a mapping, or as JSON with comments."""


class SandboxClient:
    """A connection to a server. Threads may share it.

    Without an address it is the one in ``BAILEY_ADDRESS``, and without that a
    server is started that ends with this program. A token is needed on every
    address but a unix socket of one's own; it may be in ``BAILEY_TOKEN``.

    Requests belong to the current span of OpenTelemetry where the program uses
    that, or to ``traceparent``: a text, or a function that returns one.
    """

    def __init__(
        self,
        address: Optional[str] = None,
        token: Optional[str] = None,
        *,
        ssl_context: Optional[ssl.SSLContext] = None,
        traceparent: Traceparent = None,
    ) -> None:
        address = address or os.environ.get("BAILEY_ADDRESS") or _embedded.address()
        self._wire = Wire(address, token or os.environ.get("BAILEY_TOKEN"), ssl_context, traceparent)

    @property
    def address(self) -> str:
        return self._wire.address

    def close(self) -> None:
        """Close the connections. Sandboxes go on."""
        self._wire.close()

    def __enter__(self) -> "SandboxClient":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # The server.

    def server(self) -> Dict[str, Any]:
        """What the server is and can do."""
        return self._wire.call("ServerService/GetServer", {})

    def usage(self, owner: str = "") -> Usage:
        """What an owner uses of what it may."""
        return Usage._from(self._wire.call("ServerService/GetUsage", {"owner": owner}))

    # Codebases.

    def create_codebase(self, name: str = "", owner: str = "", *, labels: Optional[Mapping[str, str]] = None) -> Codebase:
        """Make an empty codebase."""
        return Codebase._from(self._wire.call("CodebaseService/CreateCodebase", {"name": name, "owner": owner, "labels": dict(labels or {})}))

    def get_codebase(self, codebase_id: str) -> Codebase:
        return Codebase._from(self._wire.call("CodebaseService/GetCodebase", {"codebaseId": codebase_id}))

    def list_codebases(self, *, labels: Sequence[str] = (), name: str = "") -> Iterator[Codebase]:
        """All codebases; labels are ``key=value``, or ``key`` for any value."""
        for m in self._pages("CodebaseService/ListCodebases", "codebases", {"labels": list(labels), "name": name}):
            yield Codebase._from(m)

    def delete_codebase(self, codebase_id: str) -> None:
        self._wire.call("CodebaseService/DeleteCodebase", {"codebaseId": codebase_id})

    def upload_codebase(self, codebase_id: str, directory: _tar.Path, *, exclude: Sequence[str] = (), replace: bool = False) -> Codebase:
        """Put a local directory into a codebase, all of it or nothing."""
        return self.upload_archive(codebase_id, _tar.pack(directory, exclude), replace=replace)

    def upload_archive(self, codebase_id: str, archive: Union[bytes, IO[bytes], Iterable[bytes]], *, replace: bool = False) -> Codebase:
        """Put the files of a tar archive into a codebase, all of them or none."""
        query = {"replace": "true"} if replace else {}
        return Codebase._from(self._wire.send("POST", f"/v1/codebases/{codebase_id}/archive", query, archive, "application/x-tar"))

    def download_codebase(self, codebase_id: str) -> Iterator[bytes]:
        """A codebase as a tar archive, in pieces."""
        return self._wire.fetch(f"/v1/codebases/{codebase_id}/archive", {})

    def import_codebase(self, codebase_id: str, *, git: str = "", ref: str = "", directory: str = "", include_history: bool = False, respect_gitignore: bool = False, replace: bool = False) -> Codebase:
        """Fill a codebase from a git repository, or from a directory of the server's machine."""
        request: Dict[str, Any] = {"codebaseId": codebase_id, "respectGitignore": respect_gitignore, "replace": replace}
        if directory:
            request["directory"] = directory
        else:
            request["git"] = {"url": git, "ref": ref, "includeHistory": include_history}
        return Codebase._from(self._wire.call("CodebaseService/ImportCodebase", request))

    # Sandboxes.

    def create_sandbox(self, codebase_id: str = "", **options: Any) -> SandboxInfo:
        """Make a sandbox and start it. Options:

        ``image``, ``snapshot_id``, ``name``, ``owner``, ``labels``, ``runtime``
        (:class:`RuntimeType` or its name), ``preset``, ``policy``, ``rules``
        (:class:`PathRule`), ``resources`` (:class:`ResourceLimits`), ``env``,
        ``ttl`` and ``idle_timeout`` in seconds, ``ports``, ``start=False``.
        """
        return SandboxInfo._from(self._wire.call("SandboxService/CreateSandbox", _creation(codebase_id, options)))

    def create_sandboxes(self, count: int, codebase_id: str = "", **options: Any) -> List[SandboxInfo]:
        """Make many equal sandboxes in one request, all or an error."""
        answer = self._wire.call("SandboxService/BatchCreateSandboxes", {"template": _creation(codebase_id, options), "count": count})
        made = [SandboxInfo._from(m) for m in answer.get("sandboxes") or ()]
        failures = answer.get("failures") or ()
        if failures:
            for info in made:
                self.destroy_sandbox(info.id)
            first = failures[0]
            raise BaileyError(first.get("message", ""), reason=first.get("reason", ""), remedy=first.get("remedy", ""))
        return made

    def get_sandbox(self, sandbox_id: str) -> SandboxInfo:
        return SandboxInfo._from(self._wire.call("SandboxService/GetSandbox", {"sandboxId": sandbox_id}))

    def list_sandboxes(self, *, labels: Sequence[str] = (), states: Sequence[str] = (), codebase_id: str = "") -> Iterator[SandboxInfo]:
        """All sandboxes, or those with labels (``key=value``) and states."""
        request = {"labels": list(labels), "states": ["SANDBOX_STATE_" + s.upper() for s in states], "codebaseId": codebase_id}
        for m in self._pages("SandboxService/ListSandboxes", "sandboxes", request):
            yield SandboxInfo._from(m)

    def start_sandbox(self, sandbox_id: str) -> SandboxInfo:
        return SandboxInfo._from(self._wire.call("SandboxService/StartSandbox", {"sandboxId": sandbox_id}))

    def stop_sandbox(self, sandbox_id: str, *, grace: Optional[float] = None) -> SandboxInfo:
        """End every process and keep the files."""
        request: Dict[str, Any] = {"sandboxId": sandbox_id}
        if grace is not None:
            request["grace"] = duration(grace)
        return SandboxInfo._from(self._wire.call("SandboxService/StopSandbox", request))

    def pause_sandbox(self, sandbox_id: str) -> SandboxInfo:
        return SandboxInfo._from(self._wire.call("SandboxService/PauseSandbox", {"sandboxId": sandbox_id}))

    def resume_sandbox(self, sandbox_id: str) -> SandboxInfo:
        return SandboxInfo._from(self._wire.call("SandboxService/ResumeSandbox", {"sandboxId": sandbox_id}))

    def destroy_sandbox(self, sandbox_id: str, *, delete_codebase: bool = False) -> None:
        """End a sandbox and remove what it wrote."""
        self._wire.call("SandboxService/DestroySandbox", {"sandboxId": sandbox_id, "deleteCodebase": delete_codebase})

    def update_sandbox(
        self,
        sandbox_id: str,
        *,
        network: Optional[Policy] = None,
        rules: Optional[Sequence[PathRule]] = None,
        labels: Optional[Mapping[str, str]] = None,
        ttl: Optional[float] = None,
        idle_timeout: Optional[float] = None,
    ) -> SandboxInfo:
        """Change a sandbox that stands. ``network`` is that section of a policy."""
        request: Dict[str, Any] = {"sandboxId": sandbox_id}
        if network is not None:
            request["network"] = _policy(network)
        if rules is not None:
            request["rules"] = {"rules": [r._message() for r in rules]}
        if labels is not None:
            request["labels"] = {"labels": dict(labels)}
        if ttl is not None:
            request["ttl"] = duration(ttl)
        if idle_timeout is not None:
            request["idleTimeout"] = duration(idle_timeout)
        return SandboxInfo._from(self._wire.call("SandboxService/UpdateSandbox", request))

    def stats(self, sandbox_id: str) -> Stats:
        return Stats._from(self._wire.call("SandboxService/GetStats", {"sandboxId": sandbox_id}))

    def events(self, sandbox_id: str, *, after: str = "", kinds: Sequence[str] = ()) -> Iterator[Event]:
        """What happens in a sandbox, as it happens. A lost connection is taken up again."""
        attempt = 0
        while True:
            try:
                for m in self._wire.stream("SandboxService/WatchEvents", {"sandboxId": sandbox_id, "after": after, "kinds": list(kinds)}):
                    event = Event._from(m)
                    after, attempt = event.cursor, 0
                    yield event
                return
            except BaileyError as error:
                if not error.retryable or attempt >= 5:
                    raise
            wait(attempt)
            attempt += 1

    def expose_port(self, sandbox_id: str, port: int, address: str = "") -> ExposedPort:
        """Make a TCP port of a sandbox reachable at an address of the server's machine."""
        return ExposedPort._from(self._wire.call("SandboxService/ExposePort", {"sandboxId": sandbox_id, "port": port, "address": address}))

    def unexpose_port(self, sandbox_id: str, port: int) -> None:
        self._wire.call("SandboxService/UnexposePort", {"sandboxId": sandbox_id, "port": port})

    # Snapshots.

    def create_snapshot(self, sandbox_id: str, name: str = "") -> Snapshot:
        return Snapshot._from(self._wire.call("SandboxService/CreateSnapshot", {"sandboxId": sandbox_id, "name": name}))

    def list_snapshots(self, sandbox_id: str) -> Iterator[Snapshot]:
        for m in self._pages("SandboxService/ListSnapshots", "snapshots", {"sandboxId": sandbox_id}):
            yield Snapshot._from(m)

    def delete_snapshot(self, sandbox_id: str, snapshot_id: str) -> None:
        self._wire.call("SandboxService/DeleteSnapshot", {"sandboxId": sandbox_id, "snapshotId": snapshot_id})

    def export_snapshot(self, sandbox_id: str, snapshot_id: str) -> Iterator[bytes]:
        """A snapshot's whole tree as a tar archive, in pieces."""
        return self._wire.fetch(f"/v1/sandboxes/{sandbox_id}/snapshots/{snapshot_id}/archive", {})

    def fork_sandbox(self, sandbox_id: str, count: int = 1, *, snapshot_id: str = "", name: str = "", labels: Optional[Mapping[str, str]] = None) -> List[SandboxInfo]:
        """Make sandboxes that begin with the files of this one."""
        request = {"sandboxId": sandbox_id, "count": count, "snapshotId": snapshot_id, "name": name, "labels": dict(labels or {})}
        return [SandboxInfo._from(m) for m in self._wire.call("SandboxService/ForkSandbox", request).get("sandboxes") or ()]

    def rollback_sandbox(self, sandbox_id: str, snapshot_id: str) -> SandboxInfo:
        return SandboxInfo._from(self._wire.call("SandboxService/RollbackSandbox", {"sandboxId": sandbox_id, "snapshotId": snapshot_id}))

    def diff_sandbox(self, sandbox_id: str, paths: Sequence[str] = ()) -> List[Change]:
        """What the sandbox changed in its codebase."""
        answer = self._wire.call("SandboxService/DiffSandbox", {"sandboxId": sandbox_id, "paths": list(paths)})
        return [Change._from(m) for m in answer.get("changes") or ()]

    def patch_sandbox(self, sandbox_id: str, paths: Sequence[str] = ()) -> bytes:
        """The same as a patch that ``git apply`` takes."""
        answer = self._wire.call("SandboxService/DiffSandbox", {"sandboxId": sandbox_id, "paths": list(paths), "format": "DIFF_FORMAT_PATCH"})
        return base64.b64decode(answer.get("patch", ""))

    def apply_sandbox(self, sandbox_id: str, paths: Sequence[str] = (), *, merge: bool = False) -> List[Change]:
        """Write what the sandbox changed into its codebase, all of it or nothing."""
        answer = self._wire.call("SandboxService/ApplySandbox", {"sandboxId": sandbox_id, "paths": list(paths), "merge": merge})
        return [Change._from(m) for m in answer.get("changes") or ()]

    # Commands.

    def exec(self, sandbox_id: str, command: Command, **options: Any) -> ExecResult:
        """Run a command and wait for its end. Options: ``cwd``, ``env``, ``user``,
        ``timeout`` in seconds, ``stdin``, ``output_limit``, ``check``."""
        check = options.pop("check", False)
        request = {"sandboxId": sandbox_id, "command": _command(command, options)}
        result = ExecResult._from(self._wire.call("ExecService/RunExec", request))
        return result.check() if check else result

    def start_exec(self, sandbox_id: str, command: Command, **options: Any) -> str:
        """Start a command that goes on by itself, and return its id. Options as for
        :meth:`exec`, and ``open_stdin`` and ``terminal=(rows, columns)``."""
        answer = self._wire.call("ExecService/StartExec", {"sandboxId": sandbox_id, "command": _command(command, options)})
        return str(answer.get("id", ""))

    def attach_exec(self, sandbox_id: str, exec_id: str, *, stdout_offset: int = 0, stderr_offset: int = 0) -> Iterator[Union[OutputChunk, ExecResult]]:
        """A command's output from an offset on, and last how it ended, without the
        output. A lost connection is taken up again where it was."""
        offsets = {"stdout": stdout_offset, "stderr": stderr_offset}
        attempt = 0
        while True:
            try:
                request = {"sandboxId": sandbox_id, "execId": exec_id, "stdoutOffset": offsets["stdout"], "stderrOffset": offsets["stderr"]}
                for m in self._wire.stream("ExecService/AttachExec", request):
                    attempt = 0
                    if "output" in m:
                        chunk = _chunk(m["output"])
                        offsets[chunk.stream] = chunk.offset + len(chunk.data)
                        yield chunk
                    elif "exit" in m:
                        yield ExecResult._ended(m["exit"], b"", b"", exec_id)
                        return
                raise BaileyError("the stream ended before the command did", reason="stream_ended", retryable=True)
            except BaileyError as error:
                if not error.retryable or attempt >= 5:
                    raise
            wait(attempt)
            attempt += 1

    def get_exec(self, sandbox_id: str, exec_id: str) -> ExecInfo:
        return ExecInfo._from(self._wire.call("ExecService/GetExec", {"sandboxId": sandbox_id, "execId": exec_id}))

    def list_execs(self, sandbox_id: str, *, running_only: bool = False) -> Iterator[ExecInfo]:
        """Commands that run, and those that have ended lately."""
        for m in self._pages("ExecService/ListExecs", "execs", {"sandboxId": sandbox_id, "runningOnly": running_only}):
            yield ExecInfo._from(m)

    def wait_exec(self, sandbox_id: str, exec_id: str, timeout: Optional[float] = None) -> Optional[ExecResult]:
        """Wait for the end of a command; ``None`` if it has not come in time."""
        request: Dict[str, Any] = {"sandboxId": sandbox_id, "execId": exec_id}
        if timeout is not None:
            request["timeout"] = duration(timeout)
        answer = self._wire.call("ExecService/WaitExec", request)
        if answer.get("running"):
            return None
        return ExecResult._ended(answer.get("exit") or {}, b"", b"", exec_id, bool(answer.get("outputTruncated")))

    def write_stdin(self, sandbox_id: str, exec_id: str, data: bytes, *, offset: int, close: bool = False) -> int:
        """Write to the input of a command, at an offset, and return the next one."""
        request = {"sandboxId": sandbox_id, "execId": exec_id, "offset": offset, "data": base64.b64encode(data).decode(), "close": close}
        return int(self._wire.call("ExecService/WriteStdin", request).get("offset", 0))

    def resize_terminal(self, sandbox_id: str, exec_id: str, rows: int, columns: int) -> None:
        self._wire.call("ExecService/ResizeTerminal", {"sandboxId": sandbox_id, "execId": exec_id, "size": {"rows": rows, "columns": columns}})

    def signal_exec(self, sandbox_id: str, exec_id: str, signal: str = "SIGKILL") -> None:
        """Send a signal to a command and its process group."""
        self._wire.call("ExecService/SignalExec", {"sandboxId": sandbox_id, "execId": exec_id, "signal": signal})

    # Sessions.

    def create_session(self, sandbox_id: str, *, shell: str = "", cwd: str = "", env: Optional[Mapping[str, str]] = None) -> str:
        """Start a shell that stays, and return its id."""
        request = {"sandboxId": sandbox_id, "shell": shell, "cwd": cwd, "env": dict(env or {})}
        return str(self._wire.call("SessionService/CreateSession", request).get("id", ""))

    def get_session(self, sandbox_id: str, session_id: str) -> SessionInfo:
        return SessionInfo._from(self._wire.call("SessionService/GetSession", {"sandboxId": sandbox_id, "sessionId": session_id}))

    def list_sessions(self, sandbox_id: str) -> Iterator[SessionInfo]:
        for m in self._pages("SessionService/ListSessions", "sessions", {"sandboxId": sandbox_id}):
            yield SessionInfo._from(m)

    def run_session(self, sandbox_id: str, session_id: str, command: str, *, timeout: Optional[float] = None, stdin: Union[str, bytes, None] = None) -> ExecResult:
        """Run a line in a session and wait for its end."""
        request = _session_command(sandbox_id, session_id, command, timeout, stdin)
        return ExecResult._from(self._wire.call("SessionService/RunSession", request))

    def stream_session(self, sandbox_id: str, session_id: str, command: str, *, timeout: Optional[float] = None) -> Iterator[Union[OutputChunk, ExecResult]]:
        """The same with the output as it comes, and last how it ended."""
        exec_id = ""
        for m in self._wire.stream("SessionService/StreamSession", _session_command(sandbox_id, session_id, command, timeout, None)):
            if "started" in m:
                exec_id = m["started"].get("execId", "")
            elif "output" in m:
                yield _chunk(m["output"])
            elif "exit" in m:
                yield ExecResult._ended(m["exit"], b"", b"", exec_id)

    def interrupt_session(self, sandbox_id: str, session_id: str) -> None:
        self._wire.call("SessionService/InterruptSession", {"sandboxId": sandbox_id, "sessionId": session_id})

    def close_session(self, sandbox_id: str, session_id: str) -> None:
        self._wire.call("SessionService/CloseSession", {"sandboxId": sandbox_id, "sessionId": session_id})

    # Files, of a sandbox or of a codebase.

    def read_file(self, path: str, *, sandbox_id: str = "", codebase_id: str = "") -> bytes:
        """A whole file of any size."""
        return b"".join(self.stream_file(path, sandbox_id=sandbox_id, codebase_id=codebase_id))

    def stream_file(self, path: str, *, sandbox_id: str = "", codebase_id: str = "", offset: int = 0) -> Iterator[bytes]:
        """A file in pieces."""
        return self._wire.fetch(_tree(sandbox_id, codebase_id) + "/files:content", {"path": path, "offset": str(offset)})

    def write_file(self, path: str, content: Union[str, bytes, IO[bytes], Iterable[bytes]], *, sandbox_id: str = "", codebase_id: str = "", mode: int = 0, make_parents: bool = True) -> FileInfo:
        """Replace or make a file. Readers see the old content or the new, never a part."""
        if isinstance(content, str):
            content = content.encode()
        query = {"path": path, "mode": str(mode), "make_parents": "true" if make_parents else "false"}
        return FileInfo._from(self._wire.send("PUT", _tree(sandbox_id, codebase_id) + "/files:content", query, content))

    def stat_file(self, path: str, *, sandbox_id: str = "", codebase_id: str = "") -> FileInfo:
        return FileInfo._from(self._wire.call("FileService/StatFile", {"sandboxId": sandbox_id, "codebaseId": codebase_id, "path": path}))

    def list_files(self, path: str = "", *, recursive: bool = False, sandbox_id: str = "", codebase_id: str = "") -> Iterator[FileInfo]:
        """What is in a directory, in the order of names."""
        request = {"sandboxId": sandbox_id, "codebaseId": codebase_id, "path": path, "recursive": recursive}
        for m in self._pages("FileService/ListFiles", "files", request):
            yield FileInfo._from(m)

    def glob_files(self, pattern: str, path: str = "", *, sandbox_id: str = "", codebase_id: str = "") -> Iterator[FileInfo]:
        """What matches a pattern such as ``src/**/*.py`` in a directory."""
        request = {"sandboxId": sandbox_id, "codebaseId": codebase_id, "path": path, "pattern": pattern}
        for m in self._pages("FileService/GlobFiles", "files", request):
            yield FileInfo._from(m)

    def make_directory(self, path: str, *, sandbox_id: str = "", codebase_id: str = "") -> FileInfo:
        """Make a directory, and those above it that are missing."""
        return FileInfo._from(self._wire.call("FileService/MakeDirectory", {"sandboxId": sandbox_id, "codebaseId": codebase_id, "path": path}))

    def remove_file(self, path: str, *, recursive: bool = False, sandbox_id: str = "", codebase_id: str = "") -> None:
        self._wire.call("FileService/RemoveFile", {"sandboxId": sandbox_id, "codebaseId": codebase_id, "path": path, "recursive": recursive})

    def move_file(self, path: str, new_path: str, *, sandbox_id: str = "", codebase_id: str = "") -> FileInfo:
        request = {"sandboxId": sandbox_id, "codebaseId": codebase_id, "path": path, "newPath": new_path}
        return FileInfo._from(self._wire.call("FileService/MoveFile", request))

    def watch_files(self, path: str = "", *, recursive: bool = False, sandbox_id: str) -> Iterator[FileChange]:
        """What changes in a directory of a sandbox, from now on. The first is ``lost``, which says that
        one has to look; it comes again after a lost connection, which is taken up again."""
        request = {"sandboxId": sandbox_id, "path": path, "recursive": recursive}
        attempt = 0
        while True:
            try:
                for m in self._wire.stream("FileService/WatchFiles", request):
                    attempt = 0
                    yield FileChange._from(m)
                return
            except BaileyError as error:
                if not error.retryable or attempt >= 5:
                    raise
            wait(attempt)
            attempt += 1

    def upload_directory(self, directory: _tar.Path, path: str = "", *, sandbox_id: str, exclude: Sequence[str] = ()) -> int:
        """Put a local directory into a sandbox; returns how many files there were."""
        answer = self._wire.send("PUT", f"/v1/sandboxes/{sandbox_id}/files:archive", {"path": path}, _tar.pack(directory, exclude), "application/x-tar")
        return int(answer.get("fileCount", 0))

    def download_directory(self, path: str = "", *, sandbox_id: str) -> Iterator[bytes]:
        """A directory of a sandbox as a tar archive, in pieces."""
        return self._wire.fetch(f"/v1/sandboxes/{sandbox_id}/files:archive", {"path": path})

    def _pages(self, method: str, noun: str, request: Dict[str, Any]) -> Iterator[Dict[str, Any]]:
        while True:
            answer = self._wire.call(method, request)
            yield from answer.get(noun) or ()
            token = answer.get("nextPageToken")
            if not token:
                return
            request = dict(request, pageToken=token)


def _tree(sandbox_id: str, codebase_id: str) -> str:
    return f"/v1/sandboxes/{sandbox_id}" if sandbox_id else f"/v1/codebases/{codebase_id}"


def _policy(policy: Policy) -> str:
    return policy if isinstance(policy, str) else json.dumps(policy)


_CREATION = {
    "image": "image",
    "snapshot_id": "snapshotId",
    "name": "name",
    "owner": "owner",
    "preset": "preset",
}


def _creation(codebase_id: str, options: Mapping[str, Any]) -> Dict[str, Any]:
    request: Dict[str, Any] = {}
    if codebase_id:
        request["codebaseId"] = codebase_id
    for key, value in options.items():
        if value is None:
            continue
        if key in _CREATION:
            if value != "":
                request[_CREATION[key]] = value
        elif key == "runtime":
            request["runtime"] = RuntimeType(value).value
        elif key == "policy":
            request["policy"] = _policy(value)
        elif key == "rules":
            request["rules"] = [r._message() for r in value]
        elif key == "resources":
            if not isinstance(value, ResourceLimits):
                raise TypeError("resources must be ResourceLimits")
            request["resources"] = value._message()
        elif key in ("labels", "env"):
            request[key] = dict(value)
        elif key == "ttl":
            request["ttl"] = duration(value)
        elif key == "idle_timeout":
            request["idleTimeout"] = duration(value)
        elif key == "ports":
            request["ports"] = list(value)
        elif key == "start":
            request["createOnly"] = not value
        else:
            raise TypeError(f"there is no option {key!r}")
    return request


def _command(command: Command, options: Mapping[str, Any]) -> Dict[str, Any]:
    message: Dict[str, Any] = {"shell": command} if isinstance(command, str) else {"argv": list(command)}
    for key, value in options.items():
        if value is None:
            continue
        if key in ("cwd", "user"):
            message[key] = value
        elif key == "env":
            message["env"] = dict(value)
        elif key == "timeout":
            message["timeout"] = duration(value)
        elif key == "stdin":
            message["stdin"] = base64.b64encode(value.encode() if isinstance(value, str) else value).decode()
        elif key == "output_limit":
            message["outputLimitBytes"] = value
        elif key == "open_stdin":
            message["openStdin"] = bool(value)
        elif key == "terminal":
            message["terminal"] = {"rows": value[0], "columns": value[1]}
        else:
            raise TypeError(f"there is no option {key!r}")
    return message


def _session_command(sandbox_id: str, session_id: str, command: str, timeout: Optional[float], stdin: Union[str, bytes, None]) -> Dict[str, Any]:
    request: Dict[str, Any] = {"sandboxId": sandbox_id, "sessionId": session_id, "command": command}
    if timeout is not None:
        request["timeout"] = duration(timeout)
    if stdin is not None:
        request["stdin"] = base64.b64encode(stdin.encode() if isinstance(stdin, str) else stdin).decode()
    return request


def _chunk(m: Mapping[str, Any]) -> OutputChunk:
    stream = "stderr" if m.get("stream") == "STREAM_STDERR" else "stdout"
    return OutputChunk(stream, int(m.get("offset", 0)), base64.b64decode(m.get("data", "")))
