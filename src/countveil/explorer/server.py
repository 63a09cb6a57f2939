"""The server: this machine only, one token, a few calls; computing happens in threads beside it."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

import anyio
import uvicorn
from anyio.to_thread import run_sync
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Mount, Route

from countveil.errors import CountveilError, InputError
from countveil.explorer import pictures
from countveil.explorer.guard import Guard, Secrets
from countveil.explorer.page import numbers, page
from countveil.explorer.plan_folder import LARGEST
from countveil.explorer.session import Opened, Session, answered, answered_above
from countveil.explorer.settings import Settings

HOST = "127.0.0.1"
_AT_ONCE = 2  # computations; others wait their turn
_WAITING = 2048  # connections before they are taken up
_CLOSING = 2  # seconds that open calls have when it ends

_Found = TypeVar("_Found")


@dataclass(frozen=True, slots=True, eq=False)
class Explorer:
    """A server that is bound to its port; `run` serves until it is stopped."""

    address: str
    _server: uvicorn.Server
    _socket: socket.socket

    @classmethod
    def start(cls, plan: Path | None, *, port: int = 0) -> Explorer:
        """Open a plan and bind a port of this machine, any free one if it is 0."""
        session, first = Session.start(plan)
        listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((HOST, port))
            listening.listen(_WAITING)  # whoever comes early waits
        except (OSError, OverflowError) as error:
            listening.close()
            raise InputError(
                f"--port: {port} cannot be used ({error}); name another, or 0 for any free one"
            ) from error
        port, known = listening.getsockname()[1], Secrets()
        config = uvicorn.Config(
            application(session, first, known, port),
            log_level="warning",
            access_log=False,
            server_header=False,
            lifespan="off",
            ws="none",
            timeout_graceful_shutdown=_CLOSING,
        )
        address = f"http://{HOST}:{port}/?token={known.token}"
        return cls(address, uvicorn.Server(config), listening)

    def run(self) -> None:
        """Serve until stopped, by Ctrl-C or by `stop`."""
        with self._socket:
            self._server.run(sockets=[self._socket])

    def stop(self) -> None:
        """Ask the server to end."""
        self._server.should_exit = True


def application(session: Session, first: Opened, known: Secrets, port: int) -> Starlette:
    """Return the application; every path of it lies behind the guard."""
    calls = _Calls(session, first, known, anyio.CapacityLimiter(_AT_ONCE))
    inner = [
        Route("/", calls.page, methods=["GET"]),
        Route("/open", calls.open, methods=["POST"]),
        Route("/plans/{plan}/numbers", calls.numbers, methods=["POST"]),
        Route("/plans/{plan}/above", calls.above, methods=["POST"]),
        Route("/plans/{plan}/pictures/{name}", calls.picture, methods=["POST"]),
        Route("/plans/{plan}/save", calls.save, methods=["POST"]),
    ]
    return Starlette(
        routes=[Mount(known.path, routes=inner)],
        middleware=[Middleware(Guard, known=known, port=port)],
        exception_handlers={CountveilError: _refused, OSError: _refused},
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Calls:
    """What the page may ask."""

    session: Session
    first: Opened
    known: Secrets
    limiter: anyio.CapacityLimiter

    async def page(self, request: Request) -> Response:
        asked = request.query_params.get("plan")
        opened = self.first if asked is None else self.session.opened(asked)
        html, policy = page(
            opened,
            folder_plans=await self._beside(self.session.folder.names),
            base=self.known.path,
            key=self.known.key,
        )
        return HTMLResponse(html, headers={"Content-Security-Policy": policy})

    async def numbers(self, request: Request) -> Response:
        opened, settings = self._opened(request), Settings.read(await _document(request))
        found = await self._beside(lambda: numbers(answered(opened, settings), settings))
        names = pictures.offered(settings)
        keys = {name: pictures.fingerprint(name, settings) for name in names}
        return JSONResponse({**found, "pictures": keys})

    async def above(self, request: Request) -> Response:
        opened, settings = self._opened(request), Settings.read(await _document(request))

        def told() -> dict[str, Any]:
            from countveil.explorer.wording import above_sentence

            rho, risk = answered_above(opened, settings)
            sentence = above_sentence(rho, risk, settings)
            return {"sentence": sentence, "effective_rho": rho, "marginal_risk": risk}

        return JSONResponse(await self._beside(told))

    async def picture(self, request: Request) -> Response:
        opened, settings = self._opened(request), Settings.read(await _document(request))
        name = request.path_params["name"]
        found = await self._beside(lambda: self.session.drawn(opened, settings, name))
        return JSONResponse({**asdict(found), "key": pictures.fingerprint(name, settings)})

    async def save(self, request: Request) -> Response:
        opened, asked = self._opened(request), _table(await _document(request))
        settings, name = Settings.read(asked.get("settings")), _text(asked, "name")
        replace = asked.get("replace") is True
        commented = await self._beside(
            lambda: self.session.save(opened, settings, name, replace=replace)
        )
        without = "" if commented else " Its layout was unusual: comments are gone."
        return JSONResponse({"message": f"Saved as {name}.{without}", "comments": commented})

    async def open(self, request: Request) -> Response:
        asked = _table(await _document(request))
        name = _text(asked, "name")
        if "text" in asked:
            text = _text(asked, "text")
            opened = await self._beside(lambda: self.session.open_text(name, text))
        else:
            opened = await self._beside(lambda: self.session.open_file(name))
        return JSONResponse({"plan": opened.identity})

    def _opened(self, request: Request) -> Opened:
        return self.session.opened(request.path_params["plan"])

    async def _beside(self, compute: Callable[[], _Found]) -> _Found:
        """Compute in a thread, so that others are heard meanwhile."""
        return await run_sync(compute, limiter=self.limiter)


async def _document(request: Request) -> Any:
    """Return the JSON that was sent; refuse more than a plan can be."""
    read = bytearray()
    async for chunk in request.stream():
        read += chunk
        if len(read) > 2 * LARGEST:
            raise InputError(f"over {LARGEST:,} bytes; a plan is a small text file")
    try:
        return json.loads(read)
    except (ValueError, RecursionError):
        raise InputError("what was sent is not JSON; load the page again") from None


def _table(document: Any) -> dict[str, Any]:
    if not isinstance(document, dict):
        raise InputError("what was sent is no table of names and values; load the page again")
    return document


def _text(asked: dict[str, Any], key: str) -> str:
    found = asked.get(key)
    if not isinstance(found, str):
        raise InputError(f"{key}: is needed, as text")
    return found


async def _refused(request: Request, error: Exception) -> Response:
    """Answer with an error's own message: the call was fine, what it asked for is not."""
    if isinstance(error, OSError):
        name = Path(str(error.filename or "a file")).name
        return JSONResponse({"refused": f"{name}: {error.strerror}; mend that and try again"})
    return JSONResponse({"refused": str(error)})
