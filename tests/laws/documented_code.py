"""The engine and the mechanism that how-to pages build, run from the pages: the laws hold for them."""

from __future__ import annotations

import re
import sys
import types
from functools import cache
from pathlib import Path
from typing import Any

_PAGES = Path(__file__).parents[2] / "docs" / "how-to"


@cache
def documented_engine() -> Any:
    """Return the class that docs/how-to/add-an-engine.md builds."""
    return _first_block("add-an-engine").PlainEngine


@cache
def documented_mechanism() -> Any:
    """Return the class that docs/how-to/add-a-mechanism.md builds."""
    return _first_block("add-a-mechanism").DiscreteHuber


def _first_block(page: str) -> Any:
    path = _PAGES / f"{page}.md"
    module = types.ModuleType(f"documented_{page.replace('-', '_')}")
    sys.modules[module.__name__] = module  # dataclasses and pickle look their module up
    code = re.findall(r"^```python\n(.*?)^```$", path.read_text(), re.MULTILINE | re.DOTALL)[0]
    exec(compile(code, str(path), "exec", dont_inherit=True), module.__dict__)
    return module
