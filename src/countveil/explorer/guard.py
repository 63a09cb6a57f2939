"""Who may ask: this machine's browser, with a token of this session, and nobody else."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

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
    """What opens a session: two tokens, the path, the cookie, the page's key.

    `token` is in the address that the terminal shows; `opening` is in the page that a browser is
    started with, and good once. Browsers send cookies to every port of a host, so the cookie is bound
    to a path nobody else knows. The key is in the page, and calls carry it in a header: another site
    can neither read nor send it.
    """

    token: str = field(default_factory=secrets.token_urlsafe)
    opening: str = field(default_factory=secrets.token_urlsafe)
    path: str = field(default_factory=lambda: f"/{secrets.token_urlsafe(12)}")
    cookie: str = field(default_factory=secrets.token_urlsafe)
    key: str = field(default_factory=secrets.token_urlsafe)


class Guard:
    """Refuse every request that is not this session's; add headers to every response.

    It is the outermost: what the application answers to a wrong path, a wrong method or by a fault of
    its own goes through it, too.
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
        answered = self._refused(request) or self._let_in(request)
        await (answered or self._app)(scope, receive, sealed)

    def _refused(self, request: Request) -> Response | None:
        """Return a refusal, where there is a reason."""
        if request.headers.getlist("host") not in [[host] for host in self._hosts]:
            # Another name that leads here: a site that points its own at this machine.
            return _refusal(400, "this address is served under 127.0.0.1 and localhost only")
        origin = request.headers.get("origin")
        if origin is not None and origin.removeprefix("http://") not in self._hosts:
            return _refusal(403, "another site may not ask")
        entering = self._is_entering(request)
        if not _from_here(request) and not (entering and _opens_a_window(request)):
            return _refusal(
                403, "another site may not ask; open the address that the terminal shows"
            )
        if entering:
            return None
        if not request.url.path.startswith(f"{self._known.path}/") or not _same(
            request.cookies.get(_COOKIE), self._known.cookie
        ):
            return _refusal(403, "open the address that the terminal shows, with its token")
        if request.method not in ("GET", "HEAD") and not _same(
            request.headers.get(KEY_HEADER), self._known.key
        ):
            return _refusal(403, "the page's own key is missing; load the page again")
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
        """Return the way to the page, for who comes with a token: it then leaves the address."""
        if not self._is_entering(request):
            return None
        if self._is_opening(request):
            self._opening = None
        way = f"{self._known.path}/"
        found: Response = RedirectResponse(way, status_code=303)
        if not _from_here(request):
            # Browsers send strict cookies where our own page leads, not where another's call is led.
            found = HTMLResponse(_WAY.format(way=way))
        found.set_cookie(
            _COOKIE, self._known.cookie, path=self._known.path, httponly=True, samesite="strict"
        )
        return found


def _from_here(request: Request) -> bool:
    """Whether a browser says that its user or this very page asks; other programs say nothing."""
    return request.headers.get("sec-fetch-site", "none") in ("same-origin", "none")


def _opens_a_window(request: Request) -> bool:
    said = [request.headers.get(f"sec-fetch-{name}") for name in ("mode", "dest")]
    return said == ["navigate", "document"]


def _same(given: str | None, known: str) -> bool:
    """Compare in a time that does not tell how much is right."""
    return given is not None and secrets.compare_digest(given.encode(), known.encode())


def _refusal(status: int, why: str) -> Response:
    return PlainTextResponse(f"{why}\n", status_code=status)
