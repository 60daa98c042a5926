"""The way to the server: connections, requests, streams and retries.

Requests are Connect's, in JSON; files and archives go over REST as they are.
Nothing beyond the standard library is needed.
"""

from __future__ import annotations

import contextvars
import http.client
import json
import random
import socket
import ssl
import struct
import sys
import threading
import time
import urllib.parse
import uuid
from typing import IO, Any, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Tuple, Union

from . import errors

Body = Union[None, bytes, IO[bytes], Iterable[bytes]]

# What a request belongs to: a ``traceparent`` of W3C Trace Context, or what
# returns one for each request.
Traceparent = Union[None, str, Callable[[], Optional[str]]]

_ATTEMPTS = 4
_CONNECT_TIMEOUT = 10.0


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout: Optional[float]) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        try:
            self.sock.connect(self._path)
        except OSError:
            self.sock.close()
            raise


class Hangup:
    """A way to end the request that a thread is in, from another one. The server
    ends a command whose client has hung up."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wanted = False
        self._socket: Optional[socket.socket] = None

    def now(self) -> None:
        """End the request under way, or the next one. Those after it are not meant."""
        with self._lock:
            self._wanted = True
            if self._socket is not None:
                try:
                    # Not that of SSLSocket, which the other thread is using.
                    socket.socket.shutdown(self._socket, socket.SHUT_RDWR)
                except OSError:
                    pass  # it has just ended by itself

    def use(self, sock: Optional[socket.socket]) -> None:
        """Say which connection the request is on; none when it is over."""
        with self._lock:
            self._socket = sock

    def check(self) -> None:
        """Raise if the request is to end."""
        with self._lock:
            wanted, self._wanted, self._socket = self._wanted, False, None
        if wanted:
            raise errors.Canceled("the request was canceled", reason="canceled")


# hangup is the one of the requests that are made in a context.
hangup: "contextvars.ContextVar[Optional[Hangup]]" = contextvars.ContextVar("bailey_hangup", default=None)


def _check_hangup() -> None:
    current = hangup.get()
    if current is not None:
        current.check()


def _use(connection: Optional[http.client.HTTPConnection]) -> None:
    current = hangup.get()
    if current is not None:
        current.use(None if connection is None else connection.sock)


class Wire:
    """Connections to one server. Threads may share it."""

    def __init__(
        self, address: str, token: Optional[str] = None, context: Optional[ssl.SSLContext] = None, traceparent: Traceparent = None
    ) -> None:
        self.address = address
        self._token = token
        self._traceparent = traceparent
        self._context = context
        self._lock = threading.Lock()
        self._idle: List[http.client.HTTPConnection] = []
        self._closed = False
        parsed = urllib.parse.urlsplit(address)
        if address.startswith("unix:"):
            self._unix: Optional[str] = address[len("unix:") :]
        elif parsed.scheme in ("http", "https") and parsed.hostname:
            self._unix = None
        else:
            raise ValueError(f"{address!r} is no address: use unix:/PATH, http://HOST:PORT or https://HOST:PORT")
        self._parsed = parsed

    def close(self) -> None:
        """Close connections that nobody uses, and those in use once they are done."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def call(self, method: str, request: Mapping[str, Any], *, timeout: Optional[float] = None) -> Dict[str, Any]:
        """Call a method that answers once.

        It is sent again, with the same idempotency key, while the server cannot be
        reached or says that it may be: whatever it changes is changed once.
        """
        headers = {"Content-Type": "application/json", "Idempotency-Key": uuid.uuid4().hex}
        body = json.dumps(request).encode()
        for attempt in range(_ATTEMPTS):
            try:
                answer = self._once("POST", "/bailey.v1." + method, headers, body, timeout)
                result: Dict[str, Any] = json.loads(answer)
                return result
            except errors.BaileyError as error:
                if not error.retryable or attempt == _ATTEMPTS - 1:
                    raise
            wait(attempt)
        raise AssertionError("not reached")

    def stream(self, method: str, request: Mapping[str, Any]) -> Iterator[Dict[str, Any]]:
        """Call a method that answers with a stream. Nothing is sent again here."""
        message = json.dumps(request).encode()
        headers = {"Content-Type": "application/connect+json", "Connect-Protocol-Version": "1"}
        connection, response = self._send("POST", "/bailey.v1." + method, headers, struct.pack(">BI", 0, len(message)) + message, None)
        done = False
        try:
            if response.status != 200:
                raise _failure(response)
            while True:
                flags, content = _envelope(response)
                if flags & 2:
                    end = json.loads(content or b"{}")
                    if end.get("error"):
                        raise errors.from_answer(end["error"])
                    done = not response.read()
                    return
                yield json.loads(content)
        except (OSError, http.client.HTTPException) as error:
            _check_hangup()
            raise _lost(error) from error
        finally:
            self._release(connection, done)

    def send(self, method: str, path: str, query: Mapping[str, str], body: Body, kind: str = "application/octet-stream") -> Dict[str, Any]:
        """Send bytes over REST. A body that can be read only once is sent once."""
        answer = self._once(method, path + "?" + urllib.parse.urlencode(query), {"Content-Type": kind}, body, None)
        result: Dict[str, Any] = json.loads(answer)
        return result

    def fetch(self, path: str, query: Mapping[str, str], size: int = 1 << 18) -> Iterator[bytes]:
        """Receive bytes over REST."""
        connection, response = self._send("GET", path + "?" + urllib.parse.urlencode(query), {}, None, None)
        done = False
        try:
            if response.status != 200:
                raise _failure(response)
            while True:
                piece = response.read(size)
                if not piece:
                    done = True
                    return
                yield piece
        except (OSError, http.client.HTTPException) as error:
            _check_hangup()
            raise _lost(error) from error
        finally:
            self._release(connection, done)

    def _once(self, method: str, path: str, headers: Mapping[str, str], body: Body, timeout: Optional[float]) -> bytes:
        connection, response = self._send(method, path, headers, body, timeout)
        done = False
        try:
            content = response.read()
            done = True
        except (OSError, http.client.HTTPException) as error:
            _check_hangup()
            raise _lost(error) from error
        finally:
            self._release(connection, done)
        if response.status != 200:
            raise _failure(response, content)
        return content

    def _send(
        self, method: str, path: str, headers: Mapping[str, str], body: Body, timeout: Optional[float]
    ) -> Tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        sent = dict(headers)
        if self._token:
            sent["Authorization"] = "Bearer " + self._token
        _trace(sent, self._traceparent)
        source = None if body is None or isinstance(body, bytes) else _Source(body)
        if source is not None:
            sent["Transfer-Encoding"] = "chunked"
        while True:
            _check_hangup()
            connection, used = self._take()
            try:
                if connection.sock is None:
                    connection.connect()
                connection.sock.settimeout(timeout)
                _use(connection)
                connection.request(method, path, body=source or body, headers=sent, encode_chunked=source is not None)
                return connection, connection.getresponse()
            except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError) as error:
                response = _early(connection)
                if response is not None:
                    return connection, response
                connection.close()
                _check_hangup()
                if source is not None and source.failure is not None:
                    raise
                # The server may end a connection that was idle at the moment at which
                # it is used again; a fresh one tells whether it is still there.
                if not used or source is not None:
                    raise _lost(error) from error
            except (OSError, http.client.HTTPException) as error:
                connection.close()
                _check_hangup()
                if source is not None and source.failure is not None:
                    raise
                raise _lost(error) from error
            except BaseException:
                connection.close()
                raise

    def _take(self) -> Tuple[http.client.HTTPConnection, bool]:
        with self._lock:
            if self._closed:
                raise errors.Unavailable("the client is closed", reason="client_closed")
            if self._idle:
                return self._idle.pop(), True
        if self._unix is not None:
            return _UnixConnection(self._unix, _CONNECT_TIMEOUT), False
        assert self._parsed.hostname
        if self._parsed.scheme == "https":
            context = self._context or ssl.create_default_context()
            return http.client.HTTPSConnection(self._parsed.hostname, self._parsed.port, timeout=_CONNECT_TIMEOUT, context=context), False
        return http.client.HTTPConnection(self._parsed.hostname, self._parsed.port, timeout=_CONNECT_TIMEOUT), False

    def _release(self, connection: http.client.HTTPConnection, clean: bool) -> None:
        _use(None)
        with self._lock:
            if clean and not self._closed and connection.sock is not None:
                self._idle.append(connection)
                return
        connection.close()


def _early(connection: http.client.HTTPConnection) -> Optional[http.client.HTTPResponse]:
    """The answer of a server that did not want the rest of a request, if there is one.
    The connection is not used again."""
    try:
        response = connection.getresponse()
    except (OSError, http.client.HTTPException):
        return None
    if connection.sock is not None:
        connection.sock.close()  # the response has it open still
        connection.sock = None
    return response


class _Source:
    """A body that is made while it is sent. What goes wrong with making it is no
    error of the connection, and is told from those by ``failure``."""

    def __init__(self, body: Union[IO[bytes], Iterable[bytes]]) -> None:
        self._body = body
        self.failure: Optional[BaseException] = None

    def __iter__(self) -> Iterator[bytes]:
        try:
            read = getattr(self._body, "read", None)
            if read is None:
                yield from self._body
            else:
                yield from iter(lambda: read(1 << 18), b"")
        except GeneratorExit:
            raise
        except BaseException as error:
            self.failure = error
            raise


def _trace(headers: Dict[str, str], given: Traceparent) -> None:
    """Say which span a request belongs to: the given one, or the current one of a
    program that uses OpenTelemetry. One that has not imported it has none."""
    parent = given() if callable(given) else given
    if parent:
        headers["traceparent"] = parent
    elif given is None and "opentelemetry" in sys.modules:
        try:
            from opentelemetry import propagate  # type: ignore[import-not-found, unused-ignore]
        except ImportError:
            return
        propagate.inject(headers)


def wait(attempt: int) -> None:
    """Wait before another attempt, longer each time, and not all at once."""
    time.sleep(0.05 * 2**attempt * (0.5 + random.random()))


def _envelope(response: http.client.HTTPResponse) -> Tuple[int, bytes]:
    flags, length = struct.unpack(">BI", _exactly(response, 5))
    return flags, _exactly(response, length)


def _exactly(response: http.client.HTTPResponse, length: int) -> bytes:
    content = response.read(length)
    if len(content) != length:
        raise http.client.IncompleteRead(content, length - len(content))
    return content


def _failure(response: http.client.HTTPResponse, content: Optional[bytes] = None) -> errors.BaileyError:
    if content is None:
        content = response.read()
    try:
        answer = json.loads(content)
    except ValueError:
        answer = {"message": content.decode("utf-8", "replace").strip()}
    if not isinstance(answer, dict):
        answer = {}
    return errors.from_answer(answer, response.status)


def _lost(error: BaseException) -> errors.BaileyError:
    if isinstance(error, socket.timeout):
        return errors.DeadlineExceeded("the server did not answer in time", reason="client_timeout")
    if isinstance(error, ssl.SSLCertVerificationError):
        remedy = "give the client an ssl_context that trusts the server's certificate, or set SSL_CERT_FILE, and call the server by a name in it"
        return errors.Unavailable(f"the server's certificate is not trusted: {error.verify_message}", reason="certificate_not_trusted", remedy=remedy)
    return errors.Unavailable(f"the server cannot be reached: {error}", reason="connection_lost", remedy="see whether it runs: baileyd status", retryable=True)
