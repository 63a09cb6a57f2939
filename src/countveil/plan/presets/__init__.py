"""Plans to start from. Every TOML file in this folder is a preset, known by its file name.

A preset is a plan without records and title. It may also have sections `[tables.NAME]`, which a plan
cannot: the lines of official tables, for every plan with the same categories (see
`countveil.plan.table_layouts`).
"""

from __future__ import annotations

import tomllib
from importlib import resources
from typing import Any

_FOLDER = resources.files(__name__)
_SUFFIX = ".toml"

PRESETS = tuple(
    sorted(
        item.name.removesuffix(_SUFFIX) for item in _FOLDER.iterdir() if item.name.endswith(_SUFFIX)
    )
)


def read_preset(name: str) -> dict[str, Any]:
    """Return the document of a preset, the layouts of its tables included."""
    return tomllib.loads(_FOLDER.joinpath(f"{name}{_SUFFIX}").read_text("utf-8"))
