"""The engine of docs/how-to/add-an-engine.md, taken from the page: the laws hold for it too."""

from __future__ import annotations

import re
import sys
import types
from pathlib import Path
from typing import Any

_PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "add-an-engine.md"


def documented_engine() -> Any:
    """Return the class that the page builds."""
    module = types.ModuleType("documented_engine")
    sys.modules[module.__name__] = module  # dataclasses look their module up
    (code, _) = re.findall(r"^```python\n(.*?)^```$", _PAGE.read_text(), re.MULTILINE | re.DOTALL)
    exec(compile(code, str(_PAGE), "exec", dont_inherit=True), module.__dict__)
    return module.__dict__["PlainEngine"]
