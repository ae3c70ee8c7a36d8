"""HTTP transport: authentication, retries, errors as exceptions, conditional polling.

Retried are refused and reset connections, timeouts, and the answers 429, 502, 503 and 504, of
requests that are safe to repeat: reads, uploads named by their digest, changes of a job by its id,
and submits with an ``Idempotency-Key``. The others, such as a new token, have ``once``: they are
sent again only if they cannot have been carried out. Retries are bounded in time, back off with
jitter, honour ``Retry-After``, and are reported.

Not here: the requests (``client.api``), which may be repeated and when (``client.retries``).
"""

from __future__ import annotations

import json as encoding
import random
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self, TypeVar

import httpx2
from pydantic import BaseModel, ValidationError

from lockstep.client import retries, silence
from lockstep.client.answers import CachedResponse, no_address, problem_of, refused, why_of
from lockstep.client.errors import ChangedError, UnreachableError, UsageError, refusal
from lockstep.client.expiry import ExpiryWarning
from lockstep.client.tls import tls_error, verification

V = TypeVar("V", bound=BaseModel)

Params = Sequence[tuple[str, str]]

STREAM_TIMEOUT: Final = httpx2.Timeout(60.0, connect=5.0)
"""A stream without news shows a sign of life every 15 seconds."""
EVENT_BYTES_MAX: Final = 64 * 1024 * 1024
TIMEOUT: Final = httpx2.Timeout(30.0, connect=5.0)
UPLOAD_TIMEOUT: Final = httpx2.Timeout(300.0, connect=5.0)
"""For bodies of any size, both ways: of one block, not of the whole."""
SAID_AGAIN_SECONDS: Final = 10.0
"""Between two lines about a server that stays silent."""
REMEMBERED_ANSWERS_MAX: Final = 64
"""Answers kept for conditional requests: a follower polls one or two addresses."""
REMEMBERED_BYTES_MAX: Final = 4 * 1024 * 1024
"""Size limit of the cached answers together: pages of a long log are not requested twice."""


class Transport:
    """Connection to one server.

    Parameters
    ----------
    url : str
        Address of the server, such as ``http://127.0.0.1:8470``.
    token : str or None
    patience_seconds : float
        Time limit for the retries of a request. May be changed at any time.
    say : callable
        Receives one line per retry, for the user.
    sleep, clock, draw : callable
        ``time.sleep``, ``time.monotonic`` and ``random.random``; tests give their own.
    """

    def __init__(
        self,
        url: str,
        token: str | None,
        *,
        patience_seconds: float,
        say: Callable[[str], None],
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
        draw: Callable[[], float] = random.random,
    ):
        self.url = url.rstrip("/")
        self.patience_seconds = patience_seconds
        self._say = say
        self._sleep = sleep
        self._clock = clock
        self._draw = draw
        self._token = token
        self._answers: OrderedDict[tuple[str, tuple[tuple[str, str], ...]], CachedResponse] = (
            OrderedDict()
        )
        self._kept_bytes = 0
        headers = {"Accept": "application/json"}
        if token is not None:
            if not (token and token.isascii() and token.isprintable() and " " not in token):
                raise UsageError(
                    "the bearer token is empty, or contains a space, a line break or an invalid "
                    "character",
                    next_step="copy it again; `lockstep up` prints the path of the token file",
                )
            headers["Authorization"] = f"Bearer {token}"
        try:
            # trust_env=False: a proxy meant for the internet must not see the traffic to a server
            # on loopback, and a .netrc must not replace the token. SSL_CERT_FILE and SSL_CERT_DIR
            # are read by client.tls.
            self._http = httpx2.Client(
                base_url=self.url,
                headers=headers,
                event_hooks={"response": [ExpiryWarning(say)]},
                timeout=TIMEOUT,
                trust_env=False,
                verify=verification(self.url),
                follow_redirects=False,
            )
        except (httpx2.InvalidURL, ValueError) as error:
            raise no_address(url, error) from None

    def close(self) -> None:
        self._http.close()

    def twin(self) -> Self:
        """Another connection to the same server, for another thread."""
        twin = type(self)(
            self.url,
            self._token,
            patience_seconds=self.patience_seconds,
            say=self._say,
            sleep=self._sleep,
            clock=self._clock,
            draw=self._draw,
        )
        twin._http.event_hooks = self._http.event_hooks
        return twin

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def get(self, path: str, view: type[V], params: Params = ()) -> V:
        """Read ``path`` as ``view``.

        An answer with an ``ETag`` is asked for again only if it has changed.
        """
        key = (path, tuple(params))
        known = self._answers.get(key)
        headers = {"If-None-Match": known.etag} if known else {}
        response = self.send("GET", path, params=params, headers=headers)
        if response.status_code == 304 and known is not None and isinstance(known.answer, view):
            self._answers.move_to_end(key)
            return known.answer
        answer = self._read(response, view)
        if known is not None:
            self._kept_bytes -= self._answers.pop(key).size
        size = len(response.content)
        if (etag := response.headers.get("ETag")) and size <= REMEMBERED_BYTES_MAX:
            self._answers[key] = CachedResponse(etag, answer, size)
            self._kept_bytes += size
            while (
                len(self._answers) > REMEMBERED_ANSWERS_MAX
                or self._kept_bytes > REMEMBERED_BYTES_MAX
            ):
                self._kept_bytes -= self._answers.popitem(last=False)[1].size
        return answer

    def post(
        self,
        path: str,
        view: type[V],
        document: object = None,
        headers: Mapping[str, str] | None = None,
        params: Params = (),
        *,
        once: str = "",
    ) -> V:
        """Send a JSON document, or nothing, and read the answer as ``view``.

        ``once`` is that of :meth:`send`.
        """
        headers = headers or {}
        sent = self.send("POST", path, params=params, headers=headers, json=document, once=once)
        return self._read(sent, view)

    def change(
        self, method: str, path: str, view: type[V], document: object = None, params: Params = ()
    ) -> V:
        """Send a JSON document, or nothing, with a method, and read the answer as ``view``."""
        return self._read(self.send(method, path, params=params, headers={}, json=document), view)

    def put_file(self, path: str, view: type[V], file: Path, media_type: str) -> V:
        """Send a file's bytes. The file is reopened for each try."""

        def body() -> dict[str, Any]:
            return {"content": file.open("rb"), "timeout": UPLOAD_TIMEOUT}

        headers = {"Content-Type": media_type, "Content-Length": str(file.stat().st_size)}
        return self._read(self.send("PUT", path, headers=headers, body=body), view)

    def send(
        self,
        method: str,
        path: str,
        *,
        params: Params = (),
        headers: Mapping[str, str],
        json: object = None,
        body: Callable[[], dict[str, Any]] | None = None,
        once: str = "",
    ) -> httpx2.Response:
        """One request with its retries.

        ``once`` marks a request that must not be carried out twice, and is how to look whether it
        was.

        Raises
        ------
        UncertainError
            If a request with ``once`` may have been carried out.
        UnreachableError
            If no answer came within the patience.
        RefusedError
            If the answer is an error.
        """
        try:
            encoding.dumps(json, allow_nan=False)
        except ValueError:
            raise UsageError("expected finite numbers, got nan or inf; nothing was sent") from None

        def attempt() -> httpx2.Response:
            if body is None:
                with silence.reported(self.url, f"{method} {path}", self._say):
                    return self._http.request(
                        method, path, params=list(params), headers=dict(headers), json=json
                    )
            opened = body()
            with opened["content"]:
                return self._http.request(
                    method, path, params=list(params), headers=dict(headers), **opened
                )

        if once:
            request = f"{method} {self.url}{path}"
            return self._patiently(lambda: retries.sent_once(attempt, request, look=once))
        return self._patiently(attempt)

    def events(self, path: str, *, params: Params = ()) -> Iterator[httpx2.ServerSentEvent]:
        """Server-sent events as they come, until the connection ends, for whatever reason.

        Nothing is tried again.

        Raises
        ------
        RefusedError
            If the answer is an error.
        """
        try:
            with self._http.stream(
                "GET",
                path,
                params=list(params),
                headers={"Accept": "text/event-stream"},
                timeout=STREAM_TIMEOUT,
            ) as response:
                if response.is_error:
                    response.read()
                    raise refusal(problem_of(response))
                yield from httpx2.EventSource(response, max_event_size=EVENT_BYTES_MAX)
        except httpx2.TransportError:
            return  # The caller continues with another request, which reports the fault.

    def download(
        self,
        path: str,
        take: Callable[[bytes], object],
        *,
        params: Params = (),
        size: int,
        tag: str,
    ) -> None:
        """Read a file of ``size`` bytes; after a broken connection go on where it stopped.

        Parameters
        ----------
        path : str
        take : callable
            Gets the bytes in order, each once.
        params : sequence of (name, value)
        size : int
            Bytes of the whole file, as the server announced them.
        tag : str
            Its entity tag: the rest is taken only of the same file.

        Raises
        ------
        UnreachableError
            If nothing more came within the patience.
        ChangedError
            If another file is there by now.
        RefusedError
            If the answer is an error.
        """
        received = 0

        def attempt() -> httpx2.Response:
            nonlocal received
            before = received
            # Not compressed on the way: the digest is of the file as it is.
            headers = {"Accept-Encoding": "identity"}
            if received:
                headers |= {"Range": f"bytes={received}-", "If-Range": tag}
            with self._http.stream(
                "GET", path, params=list(params), headers=headers, timeout=UPLOAD_TIMEOUT
            ) as response:
                if response.is_error:
                    response.read()
                    return response
                if response.headers.get("ETag") != tag or (
                    received and response.status_code != 206
                ):
                    raise ChangedError(
                        f"{self.url}{path} changed during the download",
                        next_step="request it again",
                    )
                try:
                    for block in response.iter_bytes():
                        received += len(block)
                        take(block)
                except httpx2.TransportError:
                    # Received bytes are kept and the time limit restarts: a long download survives
                    # many short interruptions.
                    if received == before:
                        raise
                return response

        while received < size:
            before = received
            self._patiently(attempt)
            if received == before:
                raise UnreachableError(
                    f"{self.url}{path} ended after {received} of {size} bytes",
                    next_step="request it again",
                )

    def _patiently(self, attempt: Callable[[], httpx2.Response]) -> httpx2.Response:
        """The answer of ``attempt``, which is called again for as long as it may pass."""
        started = self._clock()
        said_at = float("-inf")
        tries = 0
        while True:
            tries += 1
            why: str
            response: httpx2.Response | None = None
            try:
                response = attempt()
            except (
                httpx2.UnsupportedProtocol,
                httpx2.LocalProtocolError,
                httpx2.InvalidURL,
            ) as error:
                raise no_address(self.url, error) from None
            except httpx2.TransportError as error:
                if (wrong := tls_error(self.url, error)) is not None:
                    raise wrong from None
                why = why_of(error)
            else:
                if response.status_code not in retries.RETRIED_STATUS:
                    break
                busy = response.status_code == 429
                why = "too many requests" if busy else f"it answered {response.status_code}"
            delay = retries.delay(tries, response, self._draw)
            if self._clock() - started + delay > self.patience_seconds:
                if response is not None:
                    break
                raise UnreachableError(
                    f"{self.url} does not answer: {why}",
                    next_step="start the service with `lockstep up`, or give another address with "
                    "--url or LOCKSTEP_URL",
                )
            if self._clock() - said_at >= SAID_AGAIN_SECONDS:
                said_at = self._clock()
                is_busy = response is not None and response.status_code == 429
                what = "asks to wait" if is_busy else "does not answer"
                self._say(f"{self.url} {what} ({why}); retrying for {self._left(started):.0f} s")
            self._sleep(delay)
        if response.is_error:
            raise refused(self.url, response)
        return response

    def _left(self, started: float) -> float:
        """Seconds of patience that are left."""
        return self.patience_seconds - (self._clock() - started)

    def _read(self, response: httpx2.Response, view: type[V]) -> V:
        try:
            return view.model_validate_json(response.content)
        except ValidationError as error:
            line = error.errors()[0]
            where = ".".join(map(str, line["loc"])) or "the answer"
            raise UnreachableError(
                f"{self.url} sent an unexpected response to {response.request.url.path}: {where}: "
                f"{line['msg']}",
                next_step="check that the address belongs to Lockstep, and that server and client have "
                "the same version",
            ) from None
