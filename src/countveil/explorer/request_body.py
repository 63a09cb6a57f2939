"""What the page sends: JSON of a known shape, or a refusal that says what is wrong with it."""

from __future__ import annotations

import json
from typing import Any

import anyio
from starlette.requests import Request

from countveil.explorer.plan_folder import LARGEST
from countveil.explorer.settings import Malformed

BODY_SECONDS = 20.0


async def document(request: Request) -> Any:
    """Return the JSON that was sent; refuse more than a plan can be, and what takes too long."""
    read = bytearray()
    try:
        with anyio.fail_after(BODY_SECONDS):
            async for chunk in request.stream():
                read += chunk
                if len(read) > 2 * LARGEST:
                    raise Malformed(f"over {LARGEST:,} bytes; a plan is a small text file")
    except TimeoutError:
        raise Malformed("what was sent did not arrive in time; try again") from None
    try:
        found = json.loads(read)
        json.dumps(found, ensure_ascii=False).encode()  # half a character could not be said back
    except (ValueError, RecursionError):
        raise Malformed("what was sent is not JSON; load the page again") from None
    return found


def table(found: Any) -> dict[str, Any]:
    """Return a table of names and values."""
    if not isinstance(found, dict):
        raise Malformed("what was sent is no table of names and values; load the page again")
    return found


def text(asked: dict[str, Any], key: str) -> str:
    """Return a value that is text."""
    found = asked.get(key)
    if not isinstance(found, str):
        raise Malformed(f"{key}: is needed, as text")
    return found
