"""Reading what the page sends: JSON of a known shape; anything else is refused with a reason."""

from __future__ import annotations

import json
from typing import Any

import anyio
from starlette.requests import Request

from countveil.base import storage
from countveil.explorer.plan_folder import LARGEST
from countveil.explorer.settings import Malformed

BODY_SECONDS = 20.0


async def document(request: Request) -> Any:
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


def table(content: Any) -> dict[str, Any]:
    """Return a JSON object; refuse anything else."""
    if not isinstance(content, dict):
        raise Malformed("the request is not a JSON object; reload the page")
    return content


def text(content: dict[str, Any], key: str) -> str:
    """Return a value that is text; refuse anything else."""
    value = content.get(key)
    if not isinstance(value, str):
        raise Malformed(f"{key} is missing or not text; reload the page")
    return value
