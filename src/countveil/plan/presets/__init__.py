"""Presets: plans to start from. Every TOML file in this folder is one, named after the file.

A preset is a plan without records and title. Unlike a plan, it may have sections `[tables.NAME]`: the
lines of official tables, for all plans with the same categories (see `countveil.plan.table_layouts`).
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
    """Return the document of a preset, including the layouts of its tables."""
    return tomllib.loads(_FOLDER.joinpath(f"{name}{_SUFFIX}").read_text("utf-8"))
