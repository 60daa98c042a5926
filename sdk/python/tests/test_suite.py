"""Runs the shared behaviour suite against a server; see sdk/suite."""

from __future__ import annotations

import base64
import io
import json
import os
import pathlib
import tarfile
import tempfile
import unittest
from typing import Any, Dict

from bailey import BaileyError, CommandFailed, ExecResult, FileInfo, Sandbox, SandboxClient

RUNTIME = os.environ.get("BAILEY_SUITE_RUNTIME", "")
BROKERLESS = ("runc", "crun", "gvisor")
SUITE = pathlib.Path(__file__).resolve().parents[2] / "suite" / "scenarios.json"


class Scenario:
    """One scenario: a sandbox, and what was opened in it."""

    def __init__(self, client: SandboxClient, scenario: Dict[str, Any], directory: str) -> None:
        self.client = client
        self.directory = directory
        for name, content in scenario.get("files", {}).items():
            path = pathlib.Path(directory, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        options: Dict[str, Any] = {"client": client, "labels": scenario.get("labels"), "runtime": RUNTIME or None}
        if RUNTIME in BROKERLESS:
            options["policy"] = {"filesystem": {"protectMissing": False}}
        if "files" in scenario:
            self.sandbox = Sandbox.from_local(directory, **options)
        else:
            self.sandbox = Sandbox.create(**options)
        self.opened: Dict[str, Any] = {}

    def close(self) -> None:
        self.sandbox.destroy()

    def step(self, step: Dict[str, Any]) -> Dict[str, Any]:
        """Do one step and return its result."""
        try:
            result = getattr(self, "do_" + step["do"])(step)
            return result if isinstance(result, dict) else {}
        except CommandFailed as error:
            return {"error": error.code, "reason": error.reason, "exitCode": error.result.exit_code}
        except BaileyError as error:
            return {"error": error.code, "reason": error.reason}

    def do_run(self, s: Dict[str, Any]) -> Dict[str, Any]:
        options = {key: s[key] for key in ("env", "cwd", "stdin", "timeout") if key in s}
        return _result(self.sandbox.run(s["command"], **options))

    def do_check(self, s: Dict[str, Any]) -> Dict[str, Any]:
        return _result(self.sandbox.run(s["command"], check=True))

    def do_stream(self, s: Dict[str, Any]) -> Dict[str, Any]:
        parts = {"stdout": "", "stderr": ""}
        for chunk in self.sandbox.stream(s["command"]):
            parts[chunk.stream] += chunk.text
        return parts

    def do_writeFile(self, s: Dict[str, Any]) -> Dict[str, Any]:
        return _file(self.sandbox.write_file(s["path"], base64.b64decode(s["contentBase64"])))

    def do_readFile(self, s: Dict[str, Any]) -> Dict[str, Any]:
        return _content(self.sandbox.read_file(s["path"]))

    def do_readCodebaseFile(self, s: Dict[str, Any]) -> Dict[str, Any]:
        return _content(self.client.read_file(s["path"], codebase_id=self.sandbox.codebase_id))

    def do_localFile(self, s: Dict[str, Any]) -> Dict[str, Any]:
        return _content(pathlib.Path(self.directory, s["path"]).read_bytes())

    def do_statFile(self, s: Dict[str, Any]) -> Dict[str, Any]:
        return _file(self.sandbox.stat_file(s["path"]))

    def do_listFiles(self, s: Dict[str, Any]) -> Dict[str, Any]:
        return {"paths": [f.path for f in self.sandbox.list_files(s["path"], recursive=s.get("recursive", False))]}

    def do_globFiles(self, s: Dict[str, Any]) -> Dict[str, Any]:
        return {"paths": [f.path for f in self.sandbox.glob_files(s["pattern"], s.get("path", ""))]}

    def do_watchFiles(self, s: Dict[str, Any]) -> Dict[str, Any]:
        changes = self.sandbox.watch_files(s["path"], recursive=s.get("recursive", False))
        try:
            for change in changes:
                if change.kind == "lost":
                    self.sandbox.run(s["command"], check=True)
                if change.path == s["until"]:
                    return {"kind": change.kind, "directory": change.directory}
            return {}
        finally:
            changes.close()

    def do_makeDirectory(self, s: Dict[str, Any]) -> Dict[str, Any]:
        return _file(self.sandbox.make_directory(s["path"]))

    def do_moveFile(self, s: Dict[str, Any]) -> Dict[str, Any]:
        return _file(self.sandbox.move_file(s["path"], s["newPath"]))

    def do_removeFile(self, s: Dict[str, Any]) -> None:
        self.sandbox.remove_file(s["path"], recursive=s.get("recursive", False))

    def do_openSession(self, s: Dict[str, Any]) -> None:
        self.opened[s["session"]] = self.sandbox.session()

    def do_sessionRun(self, s: Dict[str, Any]) -> Dict[str, Any]:
        return _result(self.opened[s["session"]].run(s["command"]))

    def do_closeSession(self, s: Dict[str, Any]) -> None:
        self.opened[s["session"]].close()

    def do_start(self, s: Dict[str, Any]) -> None:
        self.opened[s["process"]] = self.sandbox.popen(s["command"], open_stdin=s.get("openStdin"), terminal=s.get("terminal"))

    def do_listExecs(self, s: Dict[str, Any]) -> Dict[str, Any]:
        found = self.sandbox.execs(running_only=s.get("runningOnly", False))
        same = [self.client.get_exec(self.sandbox.id, e.id).running for e in found]
        return {"running": same, "exitCodes": [e.result.exit_code for e in found if e.result is not None]}

    def do_listSessions(self, s: Dict[str, Any]) -> Dict[str, Any]:
        return {"alive": [self.client.get_session(self.sandbox.id, n.id).alive for n in self.sandbox.sessions()]}

    def do_download(self, s: Dict[str, Any]) -> Dict[str, Any]:
        with tarfile.open(fileobj=io.BytesIO(b"".join(self.sandbox.download(s["path"])))) as archive:
            return {"names": sorted(m.name for m in archive if m.isfile())}

    def do_usage(self, s: Dict[str, Any]) -> Dict[str, Any]:
        return {"sandboxesLimit": self.client.usage().sandboxes_limit}

    def do_write(self, s: Dict[str, Any]) -> None:
        self.opened[s["process"]].write(s["data"])

    def do_closeStdin(self, s: Dict[str, Any]) -> None:
        self.opened[s["process"]].close_stdin()

    def do_output(self, s: Dict[str, Any]) -> Dict[str, Any]:
        return _result(self.opened[s["process"]].output())

    def do_wait(self, s: Dict[str, Any]) -> Dict[str, Any]:
        result = self.opened[s["process"]].wait(s.get("timeout"))
        return {"running": True} if result is None else dict(_result(result), running=False)

    def do_signal(self, s: Dict[str, Any]) -> None:
        self.opened[s["process"]].signal(s["signal"])

    def do_stop(self, s: Dict[str, Any]) -> None:
        self.sandbox.stop()

    def do_startSandbox(self, s: Dict[str, Any]) -> None:
        self.sandbox.start()

    def do_destroy(self, s: Dict[str, Any]) -> None:
        self.sandbox.destroy()

    def do_info(self, s: Dict[str, Any]) -> Dict[str, Any]:
        return {"state": self.sandbox.refresh().state}

    def do_getSandbox(self, s: Dict[str, Any]) -> Dict[str, Any]:
        return {"state": self.client.get_sandbox(s["id"]).state}

    def do_listSandboxes(self, s: Dict[str, Any]) -> Dict[str, Any]:
        return {"count": len(list(self.client.list_sandboxes(labels=s["labels"])))}

    def do_snapshot(self, s: Dict[str, Any]) -> None:
        self.opened[s["snapshot"]] = self.sandbox.snapshot(s["snapshot"])

    def do_rollback(self, s: Dict[str, Any]) -> None:
        self.sandbox.rollback(self.opened[s["snapshot"]])

    def do_fork(self, s: Dict[str, Any]) -> Dict[str, Any]:
        forks = self.sandbox.fork(s["count"], snapshot=self.opened[s["snapshot"]])
        try:
            return {"stdouts": [f.run(s["command"]).stdout for f in forks]}
        finally:
            for f in forks:
                f.destroy()

    def do_diff(self, s: Dict[str, Any]) -> Dict[str, Any]:
        return {"changes": [f"{c.path} {c.kind}" for c in self.sandbox.diff()]}

    def do_apply(self, s: Dict[str, Any]) -> Dict[str, Any]:
        return {"count": len(self.sandbox.apply())}


def _result(r: ExecResult) -> Dict[str, Any]:
    return {
        "stdout": r.stdout,
        "stderr": r.stderr,
        "stdoutBase64": base64.b64encode(r.stdout_bytes).decode(),
        "exitCode": r.exit_code,
        "signal": r.signal,
        "timedOut": r.timed_out,
    }


def _file(f: FileInfo) -> Dict[str, Any]:
    return {"path": f.path, "size": f.size, "type": f.type}


def _content(content: bytes) -> Dict[str, Any]:
    return {"content": content.decode("utf-8", "replace"), "contentBase64": base64.b64encode(content).decode()}


class Suite(unittest.TestCase):
    maxDiff = None

    def test_scenarios(self) -> None:
        wanted = os.environ.get("BAILEY_SUITE", "")
        with SandboxClient() as client:
            for scenario in json.loads(SUITE.read_text()):
                if wanted not in scenario["name"]:
                    continue
                with self.subTest(scenario["name"]), tempfile.TemporaryDirectory() as directory:
                    self.play(Scenario(client, scenario, directory), scenario["steps"], scenario.get("optional", False))

    def play(self, scenario: Scenario, steps: Any, optional: bool) -> None:
        try:
            for step in steps:
                result = scenario.step(step)
                if optional and result.get("error") == "unimplemented":
                    return
                if RUNTIME in step.get("refusedBy", {}):
                    self.assertEqual({"error": "unimplemented", "reason": step["refusedBy"][RUNTIME]}, result, f"{step}")
                    return
                want = step.get("expect", {})
                if "error" in result and "error" not in want:
                    self.fail(f"{step}: {result}")
                self.assertEqual(want, {key: result.get(key) for key in want}, f"{step}: {result}")
        finally:
            scenario.close()


if __name__ == "__main__":
    unittest.main()
