"""The server: this machine only, one token, a few calls; computing happens in threads beside it."""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

import anyio
import uvicorn
from anyio.to_thread import run_sync
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.types import ASGIApp

from countveil.errors import CountveilError, InputError
from countveil.explorer import offered_charts, request_body
from countveil.explorer.explorer_page import levels, lost_page, numbers, page
from countveil.explorer.guard import Guard, Secrets
from countveil.explorer.session import (
    NotOpen,
    Opened,
    Session,
    answered,
    answered_above,
    answered_lenses,
    answered_levels,
)
from countveil.explorer.settings import Malformed, Settings, blamed
from countveil.explorer.timed_connections import TimedProtocol

HOST = "127.0.0.1"
_AT_ONCE = 2  # computations; others wait their turn
_CONNECTIONS = 512  # more are told to come later
_WAITING = 2048  # connections before they are taken up
_CLOSING = 2  # seconds that open calls have when it ends

_Found = TypeVar("_Found")


@dataclass(frozen=True, slots=True, eq=False)
class Explorer:
    """A server that is bound to its port; `run` serves until it is stopped.

    `address` is for the terminal to show; `opening` leads in once, and is for starting a browser.
    """

    address: str
    opening: str
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
            http=TimedProtocol,
            ws="none",
            limit_concurrency=_CONNECTIONS,
            timeout_graceful_shutdown=_CLOSING,
        )
        entry = f"http://{HOST}:{port}/"
        return cls(
            f"{entry}?token={known.token}",
            f"{entry}?opening={known.opening}",
            uvicorn.Server(config),
            listening,
        )

    @property
    def bound(self) -> tuple[str, int]:
        """The address and the port that it listens at."""
        host, port = self._socket.getsockname()
        return str(host), int(port)

    def run(self) -> None:
        """Serve until stopped, by Ctrl-C or by `stop`."""
        with self._socket:
            self._server.run(sockets=[self._socket])

    def stop(self) -> None:
        """Ask the server to end."""
        self._server.should_exit = True


def application(session: Session, first: Opened, known: Secrets, port: int) -> ASGIApp:
    """Return the application; the guard stands before all of it."""
    calls = _Calls(session, first, known, anyio.CapacityLimiter(_AT_ONCE))
    inner = [
        Route("/", calls.page, methods=["GET"]),
        Route("/open", calls.open, methods=["POST"]),
        Route("/plans/{plan}/numbers", calls.numbers, methods=["POST"]),
        Route("/plans/{plan}/levels", calls.levels, methods=["POST"]),
        Route("/plans/{plan}/above", calls.above, methods=["POST"]),
        Route("/plans/{plan}/lenses", calls.lenses, methods=["POST"]),
        Route("/plans/{plan}/charts/{name}", calls.draw_chart, methods=["POST"]),
        Route("/plans/{plan}/save", calls.save, methods=["POST"]),
    ]
    behind = Starlette(
        routes=[Mount(known.path, routes=inner)],
        exception_handlers={
            CountveilError: _refused,
            OSError: _refused,
            ClientDisconnect: _gone,
            Exception: _fault,
        },
    )
    return Guard(behind, known=known, port=port)


@dataclass(frozen=True, slots=True, eq=False)
class _Calls:
    """What the page may ask."""

    session: Session
    first: Opened
    known: Secrets
    limiter: anyio.CapacityLimiter

    async def page(self, request: Request) -> Response:
        identity = request.query_params.get("plan")
        try:
            opened = (
                self.session.kept(self.first) if identity is None else self.session.opened(identity)
            )
        except NotOpen as error:
            html, policy = lost_page(str(error), base=self.known.path)
            return HTMLResponse(html, 404, headers={"Content-Security-Policy": policy})
        html, policy = page(
            opened,
            folder_plans=await self._beside(self.session.folder.names),
            base=self.known.path,
            key=self.known.key,
        )
        return HTMLResponse(html, headers={"Content-Security-Policy": policy})

    async def numbers(self, request: Request) -> Response:
        opened, settings = (
            self._opened(request),
            Settings.read(await request_body.document(request)),
        )
        found = await self._beside(lambda: numbers(answered(opened, settings), settings))
        names = offered_charts.offered(settings)
        keys = {name: offered_charts.fingerprint(name, settings) for name in names}
        return JSONResponse({**found, "charts": keys})

    async def levels(self, request: Request) -> Response:
        opened, settings = (
            self._opened(request),
            Settings.read(await request_body.document(request)),
        )
        return JSONResponse(await self._beside(lambda: levels(answered_levels(opened, settings))))

    async def above(self, request: Request) -> Response:
        opened, settings = (
            self._opened(request),
            Settings.read(await request_body.document(request)),
        )
        if settings.siblings is None:
            raise Malformed("units beside his: say how many, for what the levels above add")

        def told() -> dict[str, Any]:
            from countveil.explorer.answer_text import above_sentence

            found = answered_above(opened, settings)
            return {"sentence": above_sentence(found, settings), **asdict(found)}

        return JSONResponse(await self._beside(told))

    async def lenses(self, request: Request) -> Response:
        opened = self._opened(request)
        settings = Settings.read(await request_body.document(request))
        return JSONResponse(await self._beside(lambda: answered_lenses(opened, settings)))

    async def draw_chart(self, request: Request) -> Response:
        opened, settings = (
            self._opened(request),
            Settings.read(await request_body.document(request)),
        )
        name = request.path_params["name"]
        found = await self._beside(lambda: self.session.drawn(opened, settings, name))
        return JSONResponse({**asdict(found), "key": offered_charts.fingerprint(name, settings)})

    async def save(self, request: Request) -> Response:
        opened, wanted = (
            self._opened(request),
            request_body.table(await request_body.document(request)),
        )
        settings, name = Settings.read(wanted.get("settings")), request_body.text(wanted, "name")
        replace = wanted.get("replace") is True
        commented = await self._beside(
            lambda: self.session.save(opened, settings, name, replace=replace)
        )
        without = "" if commented else " Its layout was unusual: comments are gone."
        return JSONResponse({"message": f"Saved as {name}.{without}", "comments": commented})

    async def open(self, request: Request) -> Response:
        wanted = request_body.table(await request_body.document(request))
        name = request_body.text(wanted, "name")
        if "text" in wanted:
            text = request_body.text(wanted, "text")
            opened = await self._beside(lambda: self.session.open_text(name, text))
        else:
            opened = await self._beside(lambda: self.session.open_file(name))
        return JSONResponse({"plan": opened.identity})

    def _opened(self, request: Request) -> Opened:
        return self.session.opened(request.path_params["plan"])

    async def _beside(self, compute: Callable[[], _Found]) -> _Found:
        """Compute in a thread, so that others are heard meanwhile."""
        return await run_sync(compute, limiter=self.limiter)


async def _refused(request: Request, error: Exception) -> Response:
    """Answer with an error's own message: the call was fine, what it asked for is not."""
    if isinstance(error, OSError):
        name = Path(str(error.filename or "a file")).name
        return JSONResponse({"refused": f"{name}: {error.strerror}; mend that and try again"})
    said, status = str(error), 200
    if isinstance(error, Malformed):
        status = 400
    elif isinstance(error, NotOpen):
        status = 404
    return JSONResponse({"refused": said, "fields": blamed(said)}, status)


async def _gone(request: Request, error: Exception) -> Response:
    return Response(status_code=400)  # to nobody: who asked has left


async def _fault(request: Request, error: Exception) -> Response:
    """Answer where we are at fault; the terminal shows what it is."""
    said = "a fault in the explorer, which the terminal shows; please report it"
    return JSONResponse({"refused": said}, 500)
