"""A visitor of the explorer: goes in by the printed address, and asks as the page does."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from tests.conftest import HANG

from countveil.explorer.server import Explorer

HEADERS = {
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "x-frame-options": "DENY",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


@dataclass(frozen=True)
class Reply:
    status: int
    headers: dict[str, str]
    text: str

    def document(self, status: int = 200) -> dict:
        assert self.status == status, self.text
        return json.loads(self.text)


def request(port: int, method: str, path: str, *, body: bytes | None = None, **headers) -> Reply:
    """Send one request; keyword `Host` replaces the usual one."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=HANG)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    try:
        connection.putrequest(method, path, skip_host="Host" in named)
        if body is not None:
            named["Content-Length"] = str(len(body))
        for name, value in named.items():
            connection.putheader(name, value)
        connection.endheaders(body)
        found = connection.getresponse()
        text = found.read().decode()
        return Reply(found.status, {k.lower(): v for k, v in found.getheaders()}, text)
    finally:
        connection.close()


def sealed(reply: Reply) -> Reply:
    """Return a reply once it is seen to have all headers."""
    policy = reply.headers["content-security-policy"]
    assert {name: reply.headers[name] for name in HEADERS} == HEADERS
    assert policy.startswith("default-src 'none'")
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert "server" not in reply.headers
    return reply


@dataclass(frozen=True)
class Visitor:
    address: str
    replies: list[Reply] = field(default_factory=list)

    @property
    def port(self) -> int:
        return urlsplit(self.address).port

    def enter(self) -> Visitor:
        parts = urlsplit(self.address)
        reply = request(self.port, "GET", f"{parts.path}?{parts.query}")
        assert reply.status == 303, reply.text
        cookie = reply.headers["set-cookie"].partition(";")[0]
        page = request(self.port, "GET", reply.headers["location"], Cookie=cookie)
        data = json.loads(page.text.partition('id="session">')[2].partition("</script>")[0])
        return Inside(self.address, [reply, page], cookie, page, data)


@dataclass(frozen=True)
class Inside(Visitor):
    cookie: str = ""
    page: Reply | None = None
    data: dict = field(default_factory=dict)

    def call(self, path: str, document: object, **headers: str) -> Reply:
        """Ask as the page's script does; headers given replace those it sends."""
        sent = {
            "Cookie": self.cookie,
            "X_Countveil_Key": self.data["key"],
            "Origin": f"http://127.0.0.1:{self.port}",
            "Sec_Fetch_Site": "same-origin",
            "Content_Type": "application/json",
        } | headers
        reply = request(
            self.port,
            "POST",
            self.data["base"] + path,
            body=json.dumps(document).encode(),
            **{name: value for name, value in sent.items() if value is not None},
        )
        self.replies.append(reply)
        return reply

    def ask(self, what: str, /, **changes: object) -> dict:
        """Ask for numbers, a chart or what the levels above add, with some settings changed."""
        settings = {**self.data["settings"], **changes}
        return self.call(f"/plans/{self.data['plan']}/{what}", settings).document()

    def save(self, name: str, *, replace: bool = False, **changes: object) -> dict:
        document = {
            "settings": {**self.data["settings"], **changes},
            "name": name,
            "replace": replace,
        }
        return self.call(f"/plans/{self.data['plan']}/save", document).document()


@contextmanager
def serving(plan: Path | None) -> Iterator[str]:
    """Serve a plan; yield the address that a terminal would show."""
    with running(plan) as explorer:
        yield explorer.address


@contextmanager
def running(plan: Path | None) -> Iterator[Explorer]:
    """Serve a plan; yield what serves it."""
    explorer = Explorer.start(plan)
    thread = threading.Thread(target=explorer.run)
    thread.start()
    try:
        yield explorer
    finally:
        explorer.stop()
        thread.join(timeout=HANG)
        assert not thread.is_alive()
