"""Who may ask: this machine's browser, with the token that the terminal printed, and nobody else."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
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


@dataclass(frozen=True, slots=True, repr=False)
class Secrets:
    """What opens a session: the token of the printed address, the path, the cookie, the page's key.

    Browsers send cookies to every port of a host, so the cookie is bound to a path nobody else knows.
    The key is in the page, and calls carry it in a header: another site can neither read nor send it.
    """

    token: str = field(default_factory=secrets.token_urlsafe)
    path: str = field(default_factory=lambda: f"/{secrets.token_urlsafe(12)}")
    cookie: str = field(default_factory=secrets.token_urlsafe)
    key: str = field(default_factory=secrets.token_urlsafe)


class Guard:
    """Refuse every request that is not this session's; add headers to every response."""

    def __init__(self, app: ASGIApp, *, known: Secrets, port: int) -> None:
        self._app = app
        self._known = known
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

        answered = self._refused(Request(scope)) or self._let_in(Request(scope))
        await (answered or self._app)(scope, receive, sealed)

    def _refused(self, request: Request) -> Response | None:
        """Return a refusal, where there is a reason."""
        if request.headers.getlist("host") not in [[host] for host in self._hosts]:
            # Another name that leads here: a site that points its own at this machine.
            return _refusal(400, "this address is served under 127.0.0.1 and localhost only")
        origin = request.headers.get("origin")
        if origin is not None and origin.removeprefix("http://") not in self._hosts:
            return _refusal(403, "another site may not ask")
        if request.headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
            return _refusal(403, "another site may not ask")
        if self._has_token(request):
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

    def _has_token(self, request: Request) -> bool:
        entering = request.url.path == "/" and request.method == "GET"
        return entering and _same(request.query_params.get("token"), self._known.token)

    def _let_in(self, request: Request) -> Response | None:
        """Return the way to the page, for who comes with the token: it then leaves the address."""
        if not self._has_token(request):
            return None
        found = RedirectResponse(f"{self._known.path}/", status_code=303)
        found.set_cookie(
            _COOKIE, self._known.cookie, path=self._known.path, httponly=True, samesite="strict"
        )
        return found


def _same(given: str | None, known: str) -> bool:
    """Compare in a time that does not tell how much is right."""
    return given is not None and secrets.compare_digest(given.encode(), known.encode())


def _refusal(status: int, why: str) -> Response:
    return PlainTextResponse(f"{why}\n", status_code=status)
