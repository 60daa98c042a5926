"""Sandboxes for the commands of AI agents.

>>> from bailey import Sandbox
>>> with Sandbox.from_local(".") as sb:
...     print(sb.run("pytest").stdout)

A server is started by itself where none is configured; see
:class:`SandboxClient`.
"""

from . import errors
from .aio import AsyncProcess, AsyncSandbox, AsyncSession
from .client import SandboxClient
from .errors import BaileyError, CommandFailed
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
)
from .sandbox import Process, Sandbox, Session

__all__ = [
    "AsyncProcess",
    "AsyncSandbox",
    "AsyncSession",
    "BaileyError",
    "Change",
    "Codebase",
    "CommandFailed",
    "Event",
    "ExecInfo",
    "ExecResult",
    "ExposedPort",
    "FileChange",
    "FileInfo",
    "OutputChunk",
    "PathRule",
    "Process",
    "ResourceLimits",
    "RuntimeType",
    "Sandbox",
    "SandboxClient",
    "SandboxInfo",
    "SessionInfo",
    "Session",
    "Snapshot",
    "Stats",
    "Usage",
    "errors",
]
