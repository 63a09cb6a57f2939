"""The way in: one address, one opening, connections that end; and the command that shows it."""

import ipaddress
import os
import re
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack, contextmanager, suppress
from urllib.parse import urlsplit

import pytest
from tests.conftest import HANG, wait_until
from tests.explorer.visiting import Visitor, request, running, sealed, serving

from countveil.errors import InputError
from countveil.explorer import guard, server


def test_it_listens_on_this_machine_s_own_address_alone(tiny):
    with running(tiny) as explorer:
        host, port = explorer.bound
        assert ipaddress.ip_address(host).is_loopback
        assert urlsplit(explorer.address).port == port
        elsewhere = [
            info[4][0]
            for info in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)
            if not ipaddress.ip_address(info[4][0]).is_loopback
        ]
        for address in elsewhere:
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection((address, port), timeout=HANG)


def test_the_opening_token_leads_in_once_and_from_another_place(tiny):
    with running(tiny) as explorer:
        port, parts = explorer.bound[1], urlsplit(explorer.opening)
        token = urlsplit(explorer.address).query.removeprefix("token=")
        way = f"{parts.path}?{parts.query}"
        from_a_file = {
            "Sec_Fetch_Site": "cross-site",
            "Sec_Fetch_Mode": "navigate",
            "Sec_Fetch_Dest": "document",
        }
        assert token not in explorer.opening
        for wrong in (
            {"Host": "evil.example"},
            {"Origin": "http://evil.example"},
            from_a_file | {"Sec_Fetch_Mode": "cors"},
            from_a_file | {"Sec_Fetch_Dest": "iframe"},
            from_a_file | {"Sec_Fetch_Dest": "image"},
        ):
            assert sealed(request(port, "GET", way, **wrong)).status in (400, 403)
        assert request(port, "HEAD", way).status == 403
        entered = sealed(request(port, "GET", way, **from_a_file))
        assert entered.status == 200  # a page of ours leads on, and then its cookie is sent
        assert "SameSite=strict" in entered.headers["set-cookie"]
        (path,) = set(
            re.findall(r'(?:url|href)="?=?([^">]+)', entered.text.replace("url=", "url="))
        )
        cookie = entered.headers["set-cookie"].partition(";")[0]
        assert request(port, "GET", path, Cookie=cookie).status == 200
        assert parts.query.removeprefix("opening=") not in entered.text
        for again in (from_a_file, {}, {"Cookie": cookie}):
            assert sealed(request(port, "GET", way, **again)).status == 403
        assert Visitor(explorer.address).enter().ask("numbers")  # the printed one goes on


def test_a_request_that_does_not_come_or_end_is_not_waited_for(tiny, monkeypatch):
    """Limits are long while a connection has something left to do, so that only its end is hurried."""
    monkeypatch.setattr(guard, "HEADER_SECONDS", HANG)
    monkeypatch.setattr(guard, "BODY_SECONDS", HANG)
    with serving(tiny) as address:
        inside = Visitor(address).enter()
        where = ("127.0.0.1", inside.port)
        host = f"Host: 127.0.0.1:{inside.port}\r\n"
        with ExitStack() as open_ones:

            def connect() -> socket.socket:
                return open_ones.enter_context(socket.create_connection(where, timeout=HANG))

            second, body = connect(), connect()
            second.sendall(f"GET / HTTP/1.1\r\n{host}\r\n".encode())
            assert b"403 Forbidden" in second.recv(65536)
            monkeypatch.setattr(guard, "BODY_SECONDS", 0.1)
            body.sendall(
                f"POST {inside.data['base']}/open HTTP/1.1\r\n{host}Cookie: {inside.cookie}\r\n"
                f"X-Countveil-Key: {inside.data['key']}\r\nContent-Length: 100\r\n\r\n{{".encode()
            )
            told = b""
            while b"did not arrive in time" not in told:
                found = body.recv(65536)
                assert found, told
                told += found
            monkeypatch.setattr(guard, "HEADER_SECONDS", 0.1)
            silent, slow = connect(), connect()
            for kept, sent in (
                (silent, b""),
                (slow, b"GET / HTTP/1.1\r\nHost: "),
                (second, b"GET / HT"),
            ):
                with suppress(ConnectionError):  # it may have been ended already
                    kept.sendall(sent)
                    while kept.recv(65536):
                        pass
            monkeypatch.setattr(guard, "HEADER_SECONDS", HANG)
            monkeypatch.setattr(guard, "BODY_SECONDS", HANG)
        assert inside.ask("numbers")


def test_more_connections_than_it_can_hold_get_status_503(tiny, monkeypatch):
    monkeypatch.setattr(server, "_CONNECTIONS", 20)
    monkeypatch.setattr(guard, "HEADER_SECONDS", HANG)  # none of them is ended before the last
    with serving(tiny) as address:
        inside = Visitor(address).enter()
        held = [socket.create_connection(("127.0.0.1", inside.port)) for _ in range(20)]
        path = f"{inside.data['base']}/"

        def status() -> int:
            return request(inside.port, "GET", path, Cookie=inside.cookie).status

        wait_until(lambda: status() == 503, "a refusal")
        for connection in held:
            connection.close()
        wait_until(lambda: status() == 200, "an answer")


PROGRAM = """
import sys
from countveil.cli import explore_command, main
sys.argv = ["countveil", "explore", *sys.argv[1:]]
try:
    main()
finally:
    print(*sorted(name for name in sys.modules), file=sys.stderr)
"""


@contextmanager
def start(*arguments, cwd=None, browser=False, env=None):
    options = [] if browser else ["--no-browser"]
    found = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *options, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=cwd,
        env=env,
    )
    with found:
        try:
            yield found
        finally:
            found.kill()  # if it did not end by itself


BROWSER = """#!{python}
import os, re, stat, sys, time
page = sys.argv[1].removeprefix("file://")
modes = [oct(stat.S_IMODE(os.stat(name).st_mode)) for name in (page, os.path.dirname(page))]
address = re.search('url=([^"]+)', open(page).read())[1]
told = [" ".join(sys.argv[1:]), *modes, address]
with open("{told}.part", "w") as file:
    file.write("\\n".join(told))
os.rename("{told}.part", "{told}")
os.closerange(0, 3)
started_by = os.getppid()
while os.getppid() == started_by:  # some stay until their window is closed
    time.sleep(0.1)
"""


def test_the_browser_is_started_without_a_secret_on_its_command_line(tmp_path, tiny):
    program, told = tmp_path / "browser", tmp_path / "told"
    program.write_text(BROWSER.format(python=sys.executable, told=told))
    program.chmod(0o700)
    places = tmp_path / "temporary"
    places.mkdir()
    environment = os.environ | {"BROWSER": str(program), "TMPDIR": str(places)}
    with start(tiny, browser=True, env=environment) as command:
        shown = re.search(r"\?token=(\S{43})", command.stdout.readline())[1]
        wait_until(told.exists, "the browser is started")
        line, file_mode, folder_mode, address = told.read_text().splitlines()
        assert line.startswith("file://")
        assert (file_mode, folder_mode) == ("0o600", "0o700")
        opening = address.partition("opening=")[2]
        assert len(opening) == 43
        for secret in (shown, opening):
            assert secret not in line
        parts = urlsplit(address)
        assert request(parts.port, "GET", f"/?{parts.query}").status == 303
        assert request(parts.port, "GET", f"/?{parts.query}").status == 403  # it was good once
        command.send_signal(signal.SIGINT)
        assert command.communicate(timeout=HANG)[0].endswith("The explorer has stopped.\n")
    assert list(places.iterdir()) == []  # the page is gone


def test_the_command_ends_when_asked_to(tmp_path):
    with start(cwd=tmp_path) as command:
        assert "The explorer is at http://127.0.0.1:" in command.stdout.readline()
        command.send_signal(signal.SIGTERM)
        assert command.communicate(timeout=HANG)[0].endswith("The explorer has stopped.\n")
        assert command.returncode == 0


def test_the_command_shows_an_address_answers_and_ends_by_control_c(tmp_path):
    with start(cwd=tmp_path) as command:
        line = command.stdout.readline()
        address = re.search(r"http://127\.0\.0\.1:\d+/\?token=\S{43}", line)[0]
        inside = Visitor(address).enter()
        assert inside.ask("numbers")["numbers"]["cost"] == "rho = 1"
        assert "<svg" in inside.ask("charts/risk-by-rho")["svg"]
        command.send_signal(signal.SIGINT)
        out, err = command.communicate(timeout=HANG)
        assert command.returncode == 0, err
    assert out.endswith("The explorer has stopped.\n")
    loaded = set(err.split())
    assert "countveil.explorer.server" in loaded
    for name in ("countveil.engines.local", "countveil.pipeline", "countveil.demo.starter"):
        assert name not in loaded  # nothing that reads records
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_served_is_said_at_once(tmp_path, tiny):
    with start(tmp_path / "absent.toml") as command:
        assert "name a plan file" in command.communicate(timeout=HANG)[1]
        assert command.returncode == 2
    with (
        running(tiny) as explorer,
        pytest.raises(InputError, match="--port: cannot use .*; choose another, or 0"),
    ):
        server.Explorer.start(tiny, port=explorer.bound[1])


def test_without_its_packages_it_says_what_to_install():
    program = (
        "import sys; sys.modules['uvicorn'] = None\n"
        "from countveil.cli import explore_command, main\n"
        "sys.argv = ['countveil', 'explore', '--no-browser']\nmain()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=HANG
    )
    assert done.returncode == 2
    assert "pip install 'countveil[explore]'" in done.stderr


def test_what_it_needs_is_not_loaded_before():
    for program in ("import countveil", "from countveil.cli import explore_command"):
        code = f"{program}\nimport sys; print(*sys.modules)"
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        )
        for name in ("starlette", "uvicorn", "anyio", "countveil.explorer", "numpy", "jinja2"):
            assert name not in done.stdout.split()
