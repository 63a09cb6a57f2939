"""Start a browser without exposing a secret on its command line, which other users can read."""

from __future__ import annotations

import html
import os
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="referrer" content="no-referrer">
<meta http-equiv="refresh" content="0; url={address}">
<title>countveil explorer</title>
</head>
<body><p><a href="{address}">Open the explorer</a></p></body>
</html>
"""


@contextmanager
def leading_page(address: str) -> Iterator[Path]:
    """Write a page that redirects to an address; only its owner can read it. Delete it at the end."""
    with TemporaryDirectory(prefix="countveil-explore-") as folder:  # readable by its owner only
        path = Path(folder) / "open.html"
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(_PAGE.format(address=html.escape(address)))
        yield path


@contextmanager
def browser_at(address: str) -> Iterator[None]:
    """Open a browser at an address in a thread: some commands return only when it is closed."""
    with leading_page(address) as page:
        Thread(target=webbrowser.open, args=[page.as_uri()], daemon=True).start()
        yield
