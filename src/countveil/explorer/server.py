"""The server: local only, one token, a few calls; computations run in threads."""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

import anyio
import uvicorn
from anyio.to_thread import run_sync
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.types import ASGIApp

from countveil.errors import CountveilError, InputError
from countveil.explorer import offered_charts
from countveil.explorer.explorer_page import Page, levels, lost_page, numbers, page
from countveil.explorer.guard import Guard, Secrets, TimedProtocol, as_table, json_of, text_at
from countveil.explorer.session import (
    NotOpen,
    Opened,
    Session,
    answered,
    answered_lenses,
    answered_levels,
    answered_published,
)
from countveil.explorer.settings import Malformed, Settings, controls_named_in

HOST = "127.0.0.1"
_AT_ONCE = 2  # computations; others wait their turn
_CONNECTIONS = 512  # further ones are asked to retry
_WAITING = 2048  # connections that may queue
_CLOSING = 2  # seconds for open calls at shutdown

_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True, eq=False)
class Explorer:
    """A server bound to its port; `run` serves until it is stopped.

    `address` is for the terminal to show; `opening` works once and is for starting a browser.
    """

    address: str
    opening: str
    _server: uvicorn.Server
    _socket: socket.socket

    @classmethod
    def start(cls, plan: Path | None, *, port: int = 0) -> Explorer:
        """Open a plan and bind a local port; 0 takes any free one."""
        session, first = Session.start(plan)
        listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((HOST, port))
            listening.listen(_WAITING)  # requests before `run` wait
        except (OSError, OverflowError) as error:
            listening.close()
            raise InputError(
                f"--port: cannot use {port} ({error}); choose another, or 0 for any free port"
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
        """The host and port it listens on."""
        host, port = self._socket.getsockname()
        return str(host), int(port)

    def run(self) -> None:
        """Serve until Ctrl-C or `stop`."""
        with self._socket:
            self._server.run(sockets=[self._socket])

    def stop(self) -> None:
        """Ask the server to stop."""
        self._server.should_exit = True


def application(session: Session, first: Opened, known: Secrets, port: int) -> ASGIApp:
    """Return the application, with the guard in front of it."""
    limiters = anyio.CapacityLimiter(_AT_ONCE), anyio.CapacityLimiter(1)
    calls = _Calls(session, first, known, *limiters)
    inner = [
        Route("/", calls.page, methods=["GET"]),
        Route("/open", calls.open, methods=["POST"]),
        Route("/plans/{plan}/numbers", calls.numbers, methods=["POST"]),
        Route("/plans/{plan}/levels", calls.levels, methods=["POST"]),
        Route("/plans/{plan}/lenses", calls.lenses, methods=["POST"]),
        Route("/plans/{plan}/published", calls.published, methods=["POST"]),
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
    """The calls that the page makes."""

    session: Session
    first: Opened
    known: Secrets
    limiter: anyio.CapacityLimiter
    simulating: anyio.CapacityLimiter

    async def page(self, request: Request) -> Response:
        identity = request.query_params.get("plan")
        try:
            opened = (
                self.session.kept(self.first)
                if identity is None
                else self.session.still_open(identity)
            )
        except NotOpen as error:
            return _html(lost_page(str(error), base=self.known.path), 404)
        plans = await self._in_thread(self.session.folder.names)
        return _html(page(opened, folder_plans=plans, base=self.known.path, key=self.known.key))

    async def numbers(self, request: Request) -> Response:
        opened = self._plan_of(request)
        settings = Settings.read(await json_of(request))
        answer = await self._in_thread(lambda: numbers(answered(opened, settings), settings))
        names = offered_charts.offered(settings)
        keys = {name: offered_charts.fingerprint(name, settings) for name in names}
        return JSONResponse({**answer, "charts": keys})

    async def levels(self, request: Request) -> Response:
        opened = self._plan_of(request)
        settings = Settings.read(await json_of(request))
        return JSONResponse(
            await self._in_thread(lambda: levels(answered_levels(opened, settings)))
        )

    async def lenses(self, request: Request) -> Response:
        opened = self._plan_of(request)
        settings = Settings.read(await json_of(request))
        return JSONResponse(await self._in_thread(lambda: answered_lenses(opened, settings)))

    async def published(self, request: Request) -> Response:
        opened = self._plan_of(request)
        settings = Settings.read(await json_of(request))
        # Simulations take seconds, so they wait for one another and never keep numbers waiting.
        return JSONResponse(
            await run_sync(lambda: answered_published(opened, settings), limiter=self.simulating)
        )

    async def draw_chart(self, request: Request) -> Response:
        opened = self._plan_of(request)
        settings = Settings.read(await json_of(request))
        name = request.path_params["name"]
        chart = await self._in_thread(lambda: self.session.drawn(opened, settings, name))
        return JSONResponse({**asdict(chart), "key": offered_charts.fingerprint(name, settings)})

    async def save(self, request: Request) -> Response:
        opened = self._plan_of(request)
        request_table = as_table(await json_of(request))
        settings = Settings.read(request_table.get("settings"))
        name = text_at(request_table, "name")
        replace = request_table.get("replace") is True
        commented = await self._in_thread(
            lambda: self.session.save(opened, settings, name, replace=replace)
        )
        without = "" if commented else " Its layout was unusual, so comments were lost."
        return JSONResponse({"message": f"Saved as {name}.{without}", "comments": commented})

    async def open(self, request: Request) -> Response:
        request_table = as_table(await json_of(request))
        name = text_at(request_table, "name")
        if "text" in request_table:
            text = text_at(request_table, "text")
            opened = await self._in_thread(lambda: self.session.open_text(name, text))
        else:
            opened = await self._in_thread(lambda: self.session.open_file(name))
        return JSONResponse({"plan": opened.identity})

    def _plan_of(self, request: Request) -> Opened:
        return self.session.still_open(request.path_params["plan"])

    async def _in_thread(self, compute: Callable[[], _Result]) -> _Result:
        """Compute in a thread, so that other requests are served meanwhile."""
        return await run_sync(compute, limiter=self.limiter)


def _html(rendered: Page, status: int = 200) -> Response:
    headers = {"Content-Security-Policy": rendered.policy}
    return HTMLResponse(rendered.html, status, headers=headers)


async def _refused(request: Request, error: Exception) -> Response:
    """Answer with the message of an error: the call was well-formed, its contents were not."""
    if isinstance(error, OSError):
        name = Path(str(error.filename or "a file")).name
        return JSONResponse({"refused": f"{name}: {error.strerror}; fix this and try again"})
    message, status = str(error), 200
    if isinstance(error, Malformed):
        status = 400
    elif isinstance(error, NotOpen):
        status = 404
    return JSONResponse({"refused": message, "fields": controls_named_in(message)}, status)


async def _gone(request: Request, error: Exception) -> Response:
    return Response(status_code=400)  # no one reads it: the client has disconnected


async def _fault(request: Request, error: Exception) -> Response:
    """Answer after a fault of ours; the terminal shows the details."""
    message = "internal error in the explorer; the terminal shows the details, please report it"
    return JSONResponse({"refused": message}, 500)
