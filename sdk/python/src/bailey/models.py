"""What the server knows, as plain data."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Dict, List, Mapping, Optional, Union

from .errors import CommandFailed

__all__ = [
    "Change",
    "Codebase",
    "Event",
    "FileChange",
    "ExecResult",
    "ExposedPort",
    "FileInfo",
    "OutputChunk",
    "PathRule",
    "ResourceLimits",
    "RuntimeType",
    "SandboxInfo",
    "Snapshot",
    "Stats",
    "Usage",
]


class RuntimeType(str, Enum):
    """The wall that a sandbox stands behind."""

    AUTO = "auto"
    NATIVE = "native"
    LANDLOCK = "landlock"
    BWRAP = "bwrap"
    RUNC = "runc"
    CRUN = "crun"
    GVISOR = "gvisor"
    DOCKER = "docker"


@dataclass(frozen=True)
class ResourceLimits:
    """Limits of one sandbox. ``None`` is the server's default.

    ``cpu_quota`` is processor time in microseconds for every 100,000: 50000 is
    half a core.
    """

    memory_bytes: Optional[int] = None
    cpu_quota: Optional[int] = None
    pids_limit: Optional[int] = None
    disk_bytes: Optional[int] = None
    open_files: Optional[int] = None
    output_bytes: Optional[int] = None

    def _message(self) -> Dict[str, Any]:
        names = {
            "memoryBytes": self.memory_bytes,
            "cpuQuota": self.cpu_quota,
            "pidsLimit": self.pids_limit,
            "diskBytes": self.disk_bytes,
            "openFiles": self.open_files,
            "outputBytes": self.output_bytes,
        }
        return {name: value for name, value in names.items() if value is not None}


@dataclass(frozen=True)
class PathRule:
    """A permission by path: ``none``, ``view``, ``read`` or ``write``."""

    pattern: str
    permission: str
    priority: int = 0

    def _message(self) -> Dict[str, Any]:
        return {"pattern": self.pattern, "permission": self.permission, "priority": self.priority}


@dataclass(frozen=True)
class Codebase:
    """A tree of files on the server."""

    id: str
    name: str
    owner: str
    labels: Dict[str, str]
    version: int
    file_count: int
    size_bytes: int
    create_time: str

    @classmethod
    def _from(cls, m: Mapping[str, Any]) -> "Codebase":
        return cls(
            id=m.get("id", ""),
            name=m.get("name", ""),
            owner=m.get("owner", ""),
            labels=dict(m.get("labels") or {}),
            version=int(m.get("version", 0)),
            file_count=int(m.get("fileCount", 0)),
            size_bytes=int(m.get("sizeBytes", 0)),
            create_time=m.get("createTime", ""),
        )


@dataclass(frozen=True)
class ExposedPort:
    """A port of a sandbox that can be reached at an address outside."""

    port: int
    address: str

    @classmethod
    def _from(cls, m: Mapping[str, Any]) -> "ExposedPort":
        return cls(port=int(m.get("port", 0)), address=m.get("address", ""))


@dataclass(frozen=True)
class SandboxInfo:
    """A sandbox as it was when the server was asked."""

    id: str
    name: str
    owner: str
    state: str
    state_reason: str
    runtime: str
    codebase_id: str
    image: str
    workspace: str
    parent_id: str
    labels: Dict[str, str]
    ports: List[ExposedPort]
    create_time: str
    start_time: str
    expire_time: str

    @classmethod
    def _from(cls, m: Mapping[str, Any]) -> "SandboxInfo":
        return cls(
            id=m.get("id", ""),
            name=m.get("name", ""),
            owner=m.get("owner", ""),
            state=m.get("state", "").replace("SANDBOX_STATE_", "").lower(),
            state_reason=m.get("stateReason", ""),
            runtime=m.get("runtime", ""),
            codebase_id=m.get("codebaseId", ""),
            image=m.get("image", ""),
            workspace=m.get("workspace", ""),
            parent_id=m.get("parentId", ""),
            labels=dict(m.get("labels") or {}),
            ports=[ExposedPort._from(p) for p in m.get("ports") or ()],
            create_time=m.get("createTime", ""),
            start_time=m.get("startTime", ""),
            expire_time=m.get("expireTime", ""),
        )


@dataclass(frozen=True)
class ExecResult:
    """What a command did. ``stdout`` and ``stderr`` are text; the bytes as they
    were written are in ``stdout_bytes`` and ``stderr_bytes``."""

    exit_code: int
    stdout_bytes: bytes = field(repr=False)
    stderr_bytes: bytes = field(repr=False)
    exec_id: str = ""
    signal: str = ""
    timed_out: bool = False
    out_of_memory: bool = False
    truncated: bool = False
    error: str = ""
    duration: float = 0.0
    user_time: float = 0.0
    system_time: float = 0.0
    max_rss_bytes: int = 0
    read_bytes: int = 0
    written_bytes: int = 0

    @property
    def stdout(self) -> str:
        return self.stdout_bytes.decode("utf-8", "replace")

    @property
    def stderr(self) -> str:
        return self.stderr_bytes.decode("utf-8", "replace")

    @property
    def ok(self) -> bool:
        """Whether the command has succeeded."""
        return self.exit_code == 0

    def check(self) -> "ExecResult":
        """Raise :class:`~bailey.errors.CommandFailed` unless it has."""
        if not self.ok:
            how = self.error or (f"was ended by {self.signal}" if self.signal else f"exited with status {self.exit_code}")
            if self.timed_out:
                how = "took too long"
            last = self.stderr.strip().splitlines()[-1:]
            raise CommandFailed(f"the command {how}" + (f": {last[0]}" if last else ""), self)
        return self

    @classmethod
    def _from(cls, m: Mapping[str, Any]) -> "ExecResult":
        return cls._ended(
            m.get("exit") or {},
            base64.b64decode(m.get("stdout", "")),
            base64.b64decode(m.get("stderr", "")),
            m.get("execId", ""),
            bool(m.get("stdoutTruncated") or m.get("stderrTruncated")),
        )

    @classmethod
    def _ended(cls, exit: Mapping[str, Any], stdout: bytes, stderr: bytes, exec_id: str, truncated: bool = False) -> "ExecResult":
        usage = exit.get("rusage") or {}
        return cls(
            exit_code=int(exit.get("code", 0)),
            stdout_bytes=stdout,
            stderr_bytes=stderr,
            exec_id=exec_id,
            signal=exit.get("signal", ""),
            timed_out=bool(exit.get("timedOut")),
            out_of_memory=bool(exit.get("outOfMemory")),
            truncated=truncated,
            error=exit.get("error", ""),
            duration=seconds(usage.get("wallTime")),
            user_time=seconds(usage.get("userTime")),
            system_time=seconds(usage.get("systemTime")),
            max_rss_bytes=int(usage.get("maxRssBytes", 0)),
            read_bytes=int(usage.get("readBytes", 0)),
            written_bytes=int(usage.get("writtenBytes", 0)),
        )


@dataclass(frozen=True)
class OutputChunk:
    """A piece of output. ``stream`` is ``stdout`` or ``stderr``."""

    stream: str
    offset: int
    data: bytes

    @property
    def text(self) -> str:
        return self.data.decode("utf-8", "replace")


@dataclass(frozen=True)
class FileInfo:
    """What is known of a path. ``type`` is ``file``, ``directory``, ``symlink``
    or ``other``."""

    path: str
    type: str
    size: int
    mode: int
    modify_time: str
    link_target: str
    raw_path: bytes

    @classmethod
    def _from(cls, m: Mapping[str, Any]) -> "FileInfo":
        path = m.get("path", "")
        raw = m.get("rawPath", "")
        return cls(
            path=path,
            type=m.get("type", "").replace("FILE_TYPE_", "").lower(),
            size=int(m.get("sizeBytes", 0)),
            mode=int(m.get("mode", 0)),
            modify_time=m.get("modifyTime", ""),
            link_target=m.get("linkTarget", ""),
            raw_path=base64.b64decode(raw) if raw else path.encode(),
        )


@dataclass(frozen=True)
class Snapshot:
    """The files of a sandbox at one moment."""

    id: str
    name: str
    sandbox_id: str
    create_time: str
    size_bytes: int

    @classmethod
    def _from(cls, m: Mapping[str, Any]) -> "Snapshot":
        return cls(
            id=m.get("id", ""),
            name=m.get("name", ""),
            sandbox_id=m.get("sandboxId", ""),
            create_time=m.get("createTime", ""),
            size_bytes=int(m.get("sizeBytes", 0)),
        )


@dataclass(frozen=True)
class Change:
    """What a sandbox did to one path: ``added``, ``modified``, ``deleted`` or
    ``type``."""

    path: str
    kind: str
    type: str
    size: int
    mode: int
    binary: bool

    @classmethod
    def _from(cls, m: Mapping[str, Any]) -> "Change":
        return cls(
            path=m.get("path", ""),
            kind=m.get("kind", "").replace("CHANGE_KIND_", "").lower(),
            type=m.get("type", ""),
            size=int(m.get("sizeBytes", 0)),
            mode=int(m.get("mode", 0)),
            binary=bool(m.get("binary")),
        )


@dataclass(frozen=True)
class ExecInfo:
    """A command as it was when the server was asked. Its output is in
    :meth:`~bailey.sandbox.Sandbox.process`."""

    id: str
    sandbox_id: str
    session_id: str
    argv: List[str]
    running: bool
    stdout_size: int
    stderr_size: int
    result: Optional[ExecResult]

    @classmethod
    def _from(cls, m: Mapping[str, Any]) -> "ExecInfo":
        running = bool(m.get("running"))
        return cls(
            id=m.get("id", ""),
            sandbox_id=m.get("sandboxId", ""),
            session_id=m.get("sessionId", ""),
            argv=list(m.get("argv") or ()),
            running=running,
            stdout_size=int(m.get("stdoutBytes", 0)),
            stderr_size=int(m.get("stderrBytes", 0)),
            result=None if running else ExecResult._ended(m.get("exit") or {}, b"", b"", m.get("id", ""), bool(m.get("outputTruncated"))),
        )


@dataclass(frozen=True)
class SessionInfo:
    """A session as it was when the server was asked."""

    id: str
    sandbox_id: str
    shell: str
    busy: bool
    alive: bool

    @classmethod
    def _from(cls, m: Mapping[str, Any]) -> "SessionInfo":
        return cls(id=m.get("id", ""), sandbox_id=m.get("sandboxId", ""), shell=m.get("shell", ""), busy=bool(m.get("busy")), alive=bool(m.get("alive")))


@dataclass(frozen=True)
class Stats:
    """What a sandbox uses."""

    memory_bytes: int
    memory_peak_bytes: int
    cpu_seconds: float
    processes: int
    disk_bytes: int
    execs: int
    denials: int

    @classmethod
    def _from(cls, m: Mapping[str, Any]) -> "Stats":
        return cls(
            memory_bytes=int(m.get("memoryBytes", 0)),
            memory_peak_bytes=int(m.get("memoryPeakBytes", 0)),
            cpu_seconds=seconds(m.get("cpuTime")),
            processes=int(m.get("processes", 0)),
            disk_bytes=int(m.get("diskBytes", 0)),
            execs=int(m.get("execs", 0)),
            denials=int(m.get("denials", 0)),
        )


@dataclass(frozen=True)
class Event:
    """One thing that happened in a sandbox. ``detail`` is as the audit log has it."""

    cursor: str
    time: str
    kind: str
    sandbox_id: str
    detail: Dict[str, Any]

    @classmethod
    def _from(cls, m: Mapping[str, Any]) -> "Event":
        return cls(
            cursor=m.get("cursor", ""),
            time=m.get("time", ""),
            kind=m.get("kind", ""),
            sandbox_id=m.get("sandboxId", ""),
            detail=dict(m.get("detail") or {}),
        )


@dataclass(frozen=True)
class FileChange:
    """One change of a file. ``kind`` is ``made``, ``changed``, ``removed``, or
    ``lost``: something may have happened at the path and below; look again."""

    kind: str
    path: str
    directory: bool
    raw_path: bytes

    @classmethod
    def _from(cls, m: Mapping[str, Any]) -> "FileChange":
        path = m.get("path", "")
        raw = m.get("rawPath", "")
        return cls(
            kind=m.get("kind", "").replace("FILE_CHANGE_KIND_", "").lower(),
            path=path,
            directory=bool(m.get("directory", False)),
            raw_path=base64.b64decode(raw) if raw else path.encode(),
        )


@dataclass(frozen=True)
class Usage:
    """What an owner uses, and may. A limit of 0 is none."""

    owner: str
    sandboxes: int
    sandboxes_limit: int
    execs: int
    execs_limit: int
    storage_bytes: int
    storage_limit_bytes: int

    @classmethod
    def _from(cls, m: Mapping[str, Any]) -> "Usage":
        return cls(
            owner=m.get("owner", ""),
            sandboxes=int(m.get("sandboxes", 0)),
            sandboxes_limit=int(m.get("sandboxesLimit", 0)),
            execs=int(m.get("execs", 0)),
            execs_limit=int(m.get("execsLimit", 0)),
            storage_bytes=int(m.get("storageBytes", 0)),
            storage_limit_bytes=int(m.get("storageLimitBytes", 0)),
        )


def seconds(text: Optional[str]) -> float:
    """Read a duration of the API, such as ``1.5s``."""
    return float(text.rstrip("s")) if text else 0.0


def duration(value: Union[int, float]) -> str:
    """Write a duration for the API."""
    return f"{value:.9f}".rstrip("0").rstrip(".") + "s"
