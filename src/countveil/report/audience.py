"""Whom a section or a chart is for: anyone, or only those who may see the records."""

from __future__ import annotations

from typing import Literal

Audience = Literal["public", "internal"]
INTERNAL = "INTERNAL: computed from confidential counts; not to be published."
