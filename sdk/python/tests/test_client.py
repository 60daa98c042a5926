"""What Python's client does beside the shared suite."""

from __future__ import annotations

import asyncio
import pathlib
import socket
import ssl
import tempfile
import threading
import unittest
from typing import AsyncIterator

from bailey import AsyncSandbox, CommandFailed, OutputChunk, ResourceLimits, Sandbox, SandboxClient, _wire, errors


class Clients(unittest.TestCase):
    def test_results_can_be_gathered_after_the_block(self) -> None:
        async def main() -> list:
            async with await AsyncSandbox.create() as sb:
                runs = [sb.run(f"echo {i}") for i in range(8)]
            return [r.stdout for r in await asyncio.gather(*runs)]

        self.assertEqual([f"{i}\n" for i in range(8)], asyncio.run(main()))

    def test_what_is_canceled_ends_inside(self) -> None:
        line = "echo $$ > pid; echo up > fifo; exec sleep 1000"

        async def read(chunks: AsyncIterator[OutputChunk]) -> None:
            async for _ in chunks:
                pass

        async def main() -> None:
            async with await AsyncSandbox.create() as sb, sb.session() as session:
                await sb.run("mkfifo fifo", check=True)
                for start in (sb.run, lambda line: read(sb.stream(line)), lambda line: session.run(f"sh -c '{line}'")):
                    task = asyncio.ensure_future(start(line))
                    await sb.run("cat fifo", check=True)
                    task.cancel()
                    with self.assertRaises(asyncio.CancelledError):
                        await task
                    end = await sb.run("timeout 30 tail --pid=$(cat pid) -s 0.01 -f /dev/null")
                    self.assertEqual(0, end.exit_code, "the command goes on")

        asyncio.run(main())

    def test_a_block_that_fails_waits_for_no_command(self) -> None:
        async def main() -> None:
            with self.assertRaises(ZeroDivisionError):
                async with await AsyncSandbox.create() as sb:
                    run = sb.run("sleep 1000")
                    await sb.run("true")
                    raise ZeroDivisionError
            self.assertTrue(run.cancelled())

        asyncio.run(asyncio.wait_for(main(), 60))

    def test_asyncio_has_streams_and_sessions(self) -> None:
        async def main() -> None:
            async with await AsyncSandbox.create() as sb:
                self.assertEqual("one\ntwo\n", "".join([c.text async for c in sb.stream("echo one; echo two")]))
                async with sb.session() as session:
                    await session.run("cd /tmp")
                    self.assertEqual("/tmp\n", (await session.run("pwd")).stdout)

        asyncio.run(main())

    def test_the_sandbox_is_destroyed_whatever_happens(self) -> None:
        with SandboxClient() as client:
            with tempfile.TemporaryDirectory() as directory:
                pathlib.Path(directory, "a").write_text("a")
                with self.assertRaises(CommandFailed):
                    with Sandbox.from_local(directory, client=client) as sb:
                        sb.run("exit 1", check=True)
            with self.assertRaises(errors.NotFound):
                client.get_sandbox(sb.id)
            with self.assertRaises(errors.NotFound):
                client.get_codebase(sb.codebase_id)

    def test_a_directory_that_cannot_be_packed_leaves_no_codebase(self) -> None:
        with SandboxClient() as client:
            before = len(list(client.list_codebases()))
            with self.assertRaises(OSError):
                Sandbox.from_local("/no/such/directory", client=client)
            self.assertEqual(before, len(list(client.list_codebases())))

    def test_a_result_tells_what_the_command_used(self) -> None:
        with Sandbox.create() as sb:
            r = sb.run("dd if=/dev/zero of=/dev/null bs=64M count=1 status=none; i=0; while [ $i -lt 50000 ]; do i=$((i + 1)); done", check=True)
            self.assertGreater(r.max_rss_bytes, 64 << 20)
            self.assertGreater(r.user_time, 0)
            self.assertGreaterEqual(r.duration, 0.001)

    def test_a_port_is_exposed_while_the_sandbox_runs(self) -> None:
        with Sandbox.create() as sb:
            program = "import socket; l = socket.create_server(('127.0.0.1', 8123)); print('up', flush=True); l.accept()[0].sendall(b'from inside')"
            server = sb.popen(["python3", "-c", program])
            next(iter(server))
            host, port = sb.expose_port(8123).address.split(":")
            with socket.create_connection((host, int(port))) as c:
                self.assertEqual(b"from inside", c.recv(100))
            sb.unexpose_port(8123)
            with self.assertRaises(ConnectionRefusedError):
                socket.create_connection((host, int(port)))

    def test_misspelt_options_are_refused(self) -> None:
        with SandboxClient() as client:
            with self.assertRaises(TypeError):
                client.create_sandbox(resorces=ResourceLimits())
            with Sandbox.create(client=client) as sb, self.assertRaises(TypeError):
                sb.popen("true", tiemout=1)

    def test_an_address_that_is_none_is_refused(self) -> None:
        with self.assertRaises(ValueError):
            SandboxClient("localhost:80")
        with SandboxClient("unix:/no/such/socket") as client, self.assertRaises(errors.Unavailable):
            client.server()

    def test_a_refusal_before_everything_is_sent_is_told(self) -> None:
        answer = b'HTTP/1.1 404 Not Found\r\nContent-Length: 28\r\n\r\n{"code": 5, "message": "no"}'

        def refuse(server: socket.socket) -> None:
            for _ in range(2):
                with server.accept()[0] as c:
                    c.recv(1000)
                    c.sendall(answer)

        with tempfile.TemporaryDirectory() as d, socket.socket(socket.AF_UNIX) as server:
            server.bind(d + "/s")
            server.listen()
            threading.Thread(target=refuse, args=(server,), daemon=True).start()
            with SandboxClient("unix:" + d + "/s") as client:
                for body in (bytes(8 << 20), (bytes(1 << 20) for _ in range(8))):
                    with self.assertRaises(errors.NotFound):
                        client.upload_archive("cb", body)

    def test_a_certificate_that_is_not_trusted_is_named(self) -> None:
        error = ssl.SSLCertVerificationError(1, "certificate verify failed")
        error.verify_message = "self-signed certificate"
        told = _wire._lost(error)
        self.assertEqual(("certificate_not_trusted", False), (told.reason, told.retryable))
        self.assertIn("self-signed certificate", str(told))
        self.assertEqual("connection_lost", _wire._lost(ConnectionRefusedError()).reason)

    def test_errors_are_read_in_both_forms(self) -> None:
        connect = {"code": "not_found", "message": "m", "details": [{"type": "bailey.v1.Problem", "value": "CgZyZWFzb24SBnJlbWVkeRgBIgYKAWsSAXYqAnIx"}]}
        rest = {"code": 5, "message": "m", "details": [{"@type": "type.googleapis.com/bailey.v1.Problem", "reason": "reason", "remedy": "remedy", "retryable": True, "metadata": {"k": "v"}, "requestId": "r1"}]}
        for answer in (connect, rest):
            error = errors.from_answer(answer)
            self.assertIsInstance(error, errors.NotFound)
            self.assertEqual(("reason", "remedy", True, {"k": "v"}, "r1"), (error.reason, error.remedy, error.retryable, error.metadata, error.request_id))


if __name__ == "__main__":
    unittest.main()
