"""The guard: who gets in, what a request may hold, and how long it may take.

Only a browser on this machine with a token of this session gets in. A request that never arrives or
never ends is dropped; one that is not JSON of a known shape is refused with a reason.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from dataclasses import dataclass, field
from typing import Any

import anyio
import h11
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from countveil.base import storage
from countveil.explorer.plan_folder import LARGEST
from countveil.explorer.settings import Malformed

HEADER_SECONDS, BODY_SECONDS = 10.0, 20.0
KEY_HEADER = "X-Countveil-Key"
_COOKIE = "countveil"
_ALWAYS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_NOTHING = "default-src 'none'; frame-ancestors 'none'"
_WAY = (
    '<!doctype html><html lang="en"><meta charset="utf-8"><title>countveil explorer</title>'
    '<meta http-equiv="refresh" content="0; url={way}"><p><a href="{way}">Open the explorer</a></p>'
)


@dataclass(frozen=True, slots=True, repr=False)
class Secrets:
    """The secrets of a session: two tokens, the path, the cookie and the page's key.

    `token` is in the address that the terminal shows; `opening` is in the page that the browser is
    started with, and works once. Browsers send cookies to every port of a host, so the cookie is bound
    to a secret path. The key is in the page, and calls carry it in a header: another site can neither
    read nor send it.
    """

    token: str = field(default_factory=secrets.token_urlsafe)
    opening: str = field(default_factory=secrets.token_urlsafe)
    path: str = field(default_factory=lambda: f"/{secrets.token_urlsafe(12)}")
    cookie: str = field(default_factory=secrets.token_urlsafe)
    key: str = field(default_factory=secrets.token_urlsafe)


class Guard:
    """Refuse every request that is not this session's; add headers to every response.

    It is the outermost layer, so it also handles answers to a wrong path, a wrong method or a fault of
    the application.
    """

    def __init__(self, app: ASGIApp, *, known: Secrets, port: int) -> None:
        self._app = app
        self._known = known
        self._opening: str | None = known.opening
        self._hosts = {f"127.0.0.1:{port}", f"localhost:{port}"}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, pass on or refuse one request."""
        if scope["type"] != "http":
            return

        async def sealed(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(_ALWAYS)
                headers.setdefault("Content-Security-Policy", _NOTHING)
            await send(message)

        request = Request(scope)
        response = self._refused(request) or self._let_in(request)
        await (response or self._app)(scope, receive, sealed)

    def _refused(self, request: Request) -> Response | None:
        """Return a refusal if there is a reason for one."""
        if request.headers.getlist("host") not in [[host] for host in self._hosts]:
            # Another site may point its own host name at this machine (DNS rebinding).
            return _refusal(
                400,
                "unknown host; use 127.0.0.1 or localhost, as in the address that the terminal "
                "shows",
            )
        origin = request.headers.get("origin")
        if origin is not None and origin.removeprefix("http://") not in self._hosts:
            return _refusal(403, "requests from other sites are not allowed")
        entering = self._is_entering(request)
        if not _from_here(request) and not (entering and _opens_a_window(request)):
            return _refusal(
                403,
                "requests from other sites are not allowed; open the address that the terminal "
                "shows",
            )
        if entering:
            return None
        if not request.url.path.startswith(f"{self._known.path}/") or not _same(
            request.cookies.get(_COOKIE), self._known.cookie
        ):
            return _refusal(
                403, "not signed in; open the address that the terminal shows, with its token"
            )
        if request.method not in ("GET", "HEAD") and not _same(
            request.headers.get(KEY_HEADER), self._known.key
        ):
            return _refusal(403, "the page's key is missing; reload the page")
        return None

    def _is_entering(self, request: Request) -> bool:
        if request.url.path != "/" or request.method != "GET":
            return False
        return _same(request.query_params.get("token"), self._known.token) or self._is_opening(
            request
        )

    def _is_opening(self, request: Request) -> bool:
        return self._opening is not None and _same(
            request.query_params.get("opening"), self._opening
        )

    def _let_in(self, request: Request) -> Response | None:
        """Redirect a request with a token to the page, so that the token leaves the address bar."""
        if not self._is_entering(request):
            return None
        if self._is_opening(request):
            self._opening = None
        way = f"{self._known.path}/"
        response: Response = RedirectResponse(way, status_code=303)
        if not _from_here(request):
            # Browsers send strict cookies when our own page redirects, but not when another site does.
            response = HTMLResponse(_WAY.format(way=way))
        response.set_cookie(
            _COOKIE, self._known.cookie, path=self._known.path, httponly=True, samesite="strict"
        )
        return response


def _from_here(request: Request) -> bool:
    """Whether the user or this very page made the request; programs other than browsers do not say."""
    return request.headers.get("sec-fetch-site", "none") in ("same-origin", "none")


def _opens_a_window(request: Request) -> bool:
    fetch = [request.headers.get(f"sec-fetch-{name}") for name in ("mode", "dest")]
    return fetch == ["navigate", "document"]


def _same(value: str | None, known: str) -> bool:
    """Compare in constant time."""
    return value is not None and secrets.compare_digest(value.encode(), known.encode())


def _refusal(status: int, why: str) -> Response:
    return PlainTextResponse(f"{why}\n", status_code=status)


# What the page sends.


async def json_of(request: Request) -> Any:
    """Return the JSON of a request; refuse one that is larger than a plan, or too slow."""
    body = bytearray()
    try:
        with anyio.fail_after(BODY_SECONDS):
            async for chunk in request.stream():
                body += chunk
                if len(body) > 2 * LARGEST:
                    raise Malformed(f"the request is too large; a plan may have {LARGEST:,} bytes")
    except TimeoutError:
        raise Malformed("the request did not arrive in time; try again") from None
    try:
        document = json.loads(body, object_pairs_hook=storage.without_repeats)
        json.dumps(document, ensure_ascii=False).encode()  # half a character could not be sent back
    except (ValueError, RecursionError):
        raise Malformed("the request is not JSON; reload the page") from None
    return document


def as_table(content: Any) -> dict[str, Any]:
    """Return a JSON object; refuse anything else."""
    if not isinstance(content, dict):
        raise Malformed("the request is not a JSON object; reload the page")
    return content


def text_at(content: dict[str, Any], key: str) -> str:
    """Return a value that is text; refuse anything else."""
    value = content.get(key)
    if not isinstance(value, str):
        raise Malformed(f"{key} is missing or not text; reload the page")
    return value


# Connections with a time limit.


class TimedProtocol(H11Protocol):
    """HTTP in which a request must arrive within some seconds of its first byte or the connection.

    uvicorn itself only closes connections that are idle between requests.
    """

    _arriving: asyncio.TimerHandle | None = None

    def connection_made(  # type: ignore[override]
        self, transport: asyncio.Transport
    ) -> None:
        """Start waiting for the first request."""
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Take the data; keep waiting if the request is still incomplete."""
        super().data_received(data)
        if self.conn.their_state is h11.IDLE:
            self._wait()
        else:
            self._arrived()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._arrived()
        super().connection_lost(exc)

    def _wait(self) -> None:
        if self._arriving is None:
            self._arriving = self.loop.call_later(HEADER_SECONDS, self.transport.abort)

    def _arrived(self) -> None:
        if self._arriving is not None:
            self._arriving.cancel()
            self._arriving = None
