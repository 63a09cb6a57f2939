"""Tables that matter, and how accurate they should be."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from countveil.errors import InputError

_CONFIDENCE = 0.95
_TEXT = re.compile(
    r"\s*(?P<level>\S+)\s+(?P<query>\S+)"
    r"(\s+(within\s+|±|\+/-|\+-)\s*(?P<width>\d+(\.\d+)?)\s*((?P<percent>%)(\s+of\s+(?P<size>\d[\d,]*))?)?"
    r"(\s+people)?)?(\s+at\s+(?P<confidence>\d+(\.\d+)?)\s*%)?(\s+weight\s+(?P<weight>\d+(\.\d+)?))?\s*"
)
EXAMPLES = '"county TOTAL", "zip Diagnosis within 5" or "county RACE within 2 % of 20,000 at 90 %"'


@dataclass(frozen=True, slots=True)
class Target:
    """A table that matters, and how much.

    Attributes
    ----------
    query : str
        The table: TOTAL, or attributes and recodes joined by `*`.
    level : str
        The level at which it matters.
    margin : float, optional
        The margin of error to reach, in people. Where errors are weighed against each other, it is
        the unit in which this one counts; without it, today's error is.
    weight : float
        Its importance.
    confidence : float
        How often the count is within its margin.

    """

    query: str
    level: str
    margin: float | None = None
    weight: float = 1.0
    confidence: float = _CONFIDENCE

    def __post_init__(self) -> None:
        if self.margin is not None and not (math.isfinite(self.margin) and self.margin > 0):
            raise InputError(
                f"target: a margin of {self.margin:g} is not possible; it must be above 0"
            )
        if not (math.isfinite(self.weight) and self.weight > 0):
            raise InputError(
                f"target: a weight of {self.weight:g} is not possible; it must be above 0"
            )
        if not 0 < self.confidence < 1:
            raise InputError(
                f"target: a confidence of {self.confidence:g} is not possible; give one between 0 and 1"
            )

    @classmethod
    def parse(cls, text: str) -> Target:
        """Return the target that a text names.

        Parameters
        ----------
        text : str
            A level and a query, then what is wanted: "county TOTAL", "zip Diagnosis within 5", "county
            RACE within 2 % of 20,000 at 90 %", "block TOTAL weight 3".

        Returns
        -------
        Target
            With its margin in people.

        Examples
        --------
        >>> Target.parse("county RACE within 2 % of 20,000").margin
        400.0

        """
        parts = _TEXT.fullmatch(text)
        if parts is None:
            raise InputError(f"target: {text!r} is not understood; write it like {EXAMPLES}")
        margin = None if parts["width"] is None else float(parts["width"])
        if margin is not None and parts["percent"]:
            if parts["size"] is None:
                raise InputError(
                    f"target: {text!r} says percent, but not of how many people; write for example "
                    f'"{parts["level"]} {parts["query"]} within {parts["width"]} % of 20,000"'
                )
            margin *= int(parts["size"].replace(",", "")) / 100
        confidence = (
            _CONFIDENCE if parts["confidence"] is None else float(parts["confidence"]) / 100
        )
        weight = 1.0 if parts["weight"] is None else float(parts["weight"])
        return cls(parts["query"], parts["level"], margin, weight, confidence)

    @property
    def name(self) -> str:
        """How messages name it."""
        return f"{self.level} {self.query}"

    @property
    def standard_error(self) -> float | None:
        """The standard error at which the margin is reached."""
        if self.margin is None:
            return None
        return self.margin / _deviations(self.confidence)

    def margin_at(self, standard_error: float) -> float:
        """Return the margin of error that goes with a standard error."""
        return standard_error * _deviations(self.confidence)


def _deviations(confidence: float) -> float:
    """Return the standard errors of a normal interval."""
    from scipy.special import ndtri

    return float(ndtri((1 + confidence) / 2))
