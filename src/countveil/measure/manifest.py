"""The manifest of a release: plan, exact costs, noise, versions and hashes; nothing about records."""

from __future__ import annotations

import platform
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from countveil.base import storage
from countveil.base.numerics import decimal, rounded_up_text
from countveil.congenial.guarantee.partial_privacy import PartialPrivacy
from countveil.congenial.mechanism.wasserstein import Wasserstein
from countveil.errors import FolderError, InputError, VerificationError
from countveil.plan.one_table_plan import OneTablePlan
from countveil.plan.plan_file import at_most, values_by_depth
from countveil.plan.plans import MOST_QUERIES, AnyPlan, Plan
from countveil.privacy.costs import Cost

NAME = "manifest.json"
FORMAT = "countveil release 1"
Count = Annotated[int, Field(ge=0, lt=2**31)]
Work = Annotated[int, Field(ge=0, lt=2**63)]
MOST_NODES = 3_000_000  # values, lists and tables of a manifest; plans have at most 500,000
_MOST_LEVELS, _MOST_INVARIANTS = 32, 1_000  # of a plan
_MOST_SUBTOTALS = 2**18  # the most places that can be drawn
_MOST_FILES = 100_000  # 32 levels of 1,000 tables in two formats, and some others
Residual = Annotated[float, Field(ge=0)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,60}\z")]
Version = Annotated[str, Field(pattern=r"^[0-9][0-9A-Za-z.+!_-]{0,60}\z")]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}\z")]
FileName = Annotated[str, Field(pattern=r"^[^\x00-\x1f\x7f]+\z")]
_UNSAID = ("missing", "string_pattern_mismatch", "model_type")  # their messages do not help
_PARTS = ("numpy", "pyarrow", "duckdb", "cryptography")


def describe(
    plan: Plan,
    units: dict[str, int],
    *,
    release: str,
    randomness: str,
    publishable: bool,
    crosswalk_sha256: str,
) -> dict[str, Any]:
    """Return the manifest of a release of counts without its list of files."""
    return {
        **_beginning(plan, release, randomness, publishable),
        "cost": cost_document(plan.cost, plan),
        **({"budget_chosen_from": "records"} if plan.chosen_from_records else {}),
        **({"each_person_alone": "attested"} if plan.attests_each_person_alone else {}),
        "unit": plan.unit,
        "neighbors": plan.neighbors,
        "rows_per_person": plan.rows_per_person,
        "levels": [{"level": level, "units": units[level]} for level in plan.levels],
        "measurements": [
            {
                "level": item.level,
                "query": item.query.name,
                "cells": item.query.cells,
                "cost": cost_document(item.cost),
                "mechanism": {"name": mechanism.name, **mechanism.parameters},
                "variance": mechanism.variance,
            }
            for item in plan.allocations
            for mechanism in [item.mechanism]
        ],
        **_end(plan, crosswalk_sha256),
    }


def describe_table(
    plan: OneTablePlan,
    units: dict[str, int],
    mechanism: Wasserstein,
    guarantee: PartialPrivacy,
    *,
    release: str,
    randomness: str,
    publishable: bool,
    crosswalk_sha256: str,
) -> dict[str, Any]:
    """Return the manifest of one table that agrees with public totals, without its list of files."""
    return {
        **_beginning(plan, release, randomness, publishable),
        "guarantee": {
            "currency": "beside public information",
            "epsilon": str(guarantee.epsilon),
            "public": list(guarantee.theta.public),
            "assumed": guarantee.theta.dependence,
            "secrets": guarantee.theta.secrets,
            "coupling": guarantee.coupling_digest,
            "sentence": guarantee.sentence,
        },
        **({"budget_chosen_from": "records"} if plan.chosen_from_records else {}),
        **({"each_person_alone": "attested"} if plan.attests_each_person_alone else {}),
        "unit": plan.unit,
        "neighbors": plan.neighbors,
        "rows_per_person": plan.rows_per_person,
        "levels": [{"level": level, "units": units[level]} for level in plan.levels],
        "measurements": [],
        "table": {
            "level": plan.level,
            "mechanism": "wasserstein exponential",
            "loss": mechanism.loss,
            "base": mechanism.base,
            "people": mechanism.delta_z,
            "sigma": str(mechanism.sigma),
            "rate": str(mechanism.rate),
            "total": mechanism.total,
            "subtotals": [
                {"units": list(group.members), "total": group.total}
                for group in mechanism.subtotals
            ],
        },
        **_end(plan, crosswalk_sha256),
    }


class _Stated(BaseModel):
    """A part of a manifest: keys that are read have a type, and there may be others."""

    model_config = ConfigDict(strict=True, frozen=True, extra="allow")


class _Level(_Stated):
    level: str
    units: Count


class _Measurement(_Stated):
    level: str
    query: str
    cells: Count
    mechanism: dict[str, str]
    variance: float


class _Subtotal(_Stated):
    units: list[Count]
    total: Count


class _TableRecord(_Stated):
    level: str
    total: Count | None
    subtotals: Annotated[list[_Subtotal], Field(max_length=_MOST_SUBTOTALS)]


class _Exact(_Stated):
    """A part of a manifest that may have no other keys."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid", allow_inf_nan=False)


class _File(_Exact):
    sha256: str
    bytes: Annotated[int, Field(ge=0, lt=2**63)]


class _Certificate(_Exact):
    level: str
    families: Annotated[int, Field(ge=1, lt=2**63)]
    kkt_residual: Residual
    consistency_gap: Residual
    objective: float
    iterations: Work
    most_iterations: Work
    fallbacks: Work
    moved_parents: Work = 0
    largest_departure: dict[str, Residual] = Field(default_factory=dict, max_length=10_000)

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.most_iterations > self.iterations:
            raise ValueError("one family has more iterations than all families")
        return self


class _Errors(_Exact):
    confidence: Annotated[float, Field(gt=0, lt=1)] | None = None
    none: Annotated[str, Field(min_length=1)] | None = None

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if len(self.model_fields_set) != 1 or (self.confidence is None and self.none is None):
            raise ValueError("it must have either a confidence or a reason for having no errors")
        return self


class _Estimates(_Exact):
    certificate: Annotated[list[_Certificate], Field(max_length=_MOST_LEVELS)]
    method: str = ""
    tables: list[str] = []
    microdata: bool = False
    information: str = "level"
    errors: _Errors = _Errors(none="not stated")


class _Manifest(_Stated):
    release: Annotated[str, Field(pattern=r"^[A-Za-z0-9-]{1,80}\z")]
    title: str
    publishable: bool
    randomness: str
    unit: str
    neighbors: str
    rows_per_person: Count
    levels: Annotated[list[_Level], Field(min_length=1, max_length=_MOST_LEVELS)]
    measurements: Annotated[list[_Measurement], Field(max_length=MOST_QUERIES)]
    invariants: Annotated[list[dict[str, str]], Field(max_length=_MOST_INVARIANTS)]
    plan_sha256: Sha256
    crosswalk_sha256: Sha256
    versions: Annotated[dict[Name, Version], at_most(100)]
    files: Annotated[dict[FileName, _File], Field(min_length=1), at_most(_MOST_FILES)]
    cost: dict[str, str | float | list[dict[str, str]]] | None = None
    guarantee: dict[str, Any] | None = None
    table: _TableRecord | None = None
    estimates: _Estimates | None = None

    @field_validator("versions")
    @classmethod
    def _ours(cls, value: dict[str, str]) -> dict[str, str]:
        if not {"countveil", "python"} <= set(value):
            raise ValueError("it must name the versions of countveil and Python")
        return value

    @field_validator("estimates")
    @classmethod
    def _there_or_not(cls, value: _Estimates | None) -> _Estimates | None:
        if value is None:
            raise ValueError("it may be missing, but not null")
        return value


def read(folder: str | Path) -> dict[str, Any]:
    """Return the manifest of a finished release; refuse missing keys and wrong types."""
    path = Path(folder) / NAME
    try:
        document = storage.read_json(path)
    except OSError as error:
        raise VerificationError(f"{folder}: {_missing(Path(folder), error)}") from error
    except FolderError as error:
        raise VerificationError(str(error)) from error
    except ValueError as error:
        raise VerificationError(
            f"{path}: not readable as JSON ({error}); restore the release"
        ) from error
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise VerificationError(f"{path}: not a manifest of format {FORMAT!r}; restore the release")
    if not isinstance(document.get("plan"), dict):
        raise VerificationError(f"{path}: its plan is not valid: it is not a table")
    _refuse_bulk(document, path)
    try:
        _Manifest.model_validate(document)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part)[:100] for part in first["loc"])
        what = "" if first["type"] in _UNSAID else f": {first['msg'].lower()}"
        raise VerificationError(
            f"{folder}: {where!r} is missing or invalid in {NAME}{what}; restore the release"
        ) from error
    return document


def _missing(folder: Path, error: OSError) -> str:
    """Say why a folder has no manifest, and what to do."""
    from countveil.measure.run import internal_of  # which imports this module

    if not folder.exists():
        return "not found; name a release folder"
    if not folder.is_dir():
        return "is a file; name a release folder"
    if isinstance(error, FileNotFoundError) and not internal_of(folder).is_dir():
        return f"not a finished release: it has no {NAME}; name a release folder"
    return (
        f"not a finished release ({NAME}: {error.strerror}); to finish it, run `countveil release` "
        f"again"
    )


def _refuse_bulk(document: dict[str, Any], path: Path) -> None:
    """Refuse a document with more values than any manifest, before checking takes memory."""
    if any(values >= MOST_NODES for values in values_by_depth(document)):
        raise VerificationError(
            f"{path}: has more than {MOST_NODES:,} values, the limit; restore the release"
        )


def _beginning(plan: AnyPlan, release: str, randomness: str, publishable: bool) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "release": release,
        "title": plan.title,
        "publishable": publishable,
        "randomness": randomness,
    }


def _end(plan: AnyPlan, crosswalk_sha256: str) -> dict[str, Any]:
    return {
        "invariants": [
            {"level": item.level, "query": item.query.name, "reason": item.reason}
            for item in plan.invariants
        ],
        "plan": plan.public_document,
        "plan_sha256": plan.digest,
        "crosswalk_sha256": crosswalk_sha256,
        "versions": {
            "countveil": metadata.version("countveil"),
            "python": platform.python_version(),
            **{name: metadata.version(name) for name in _PARTS},
        },
    }


def cost_document(cost: Cost, plan: Plan | None = None) -> dict[str, Any]:
    """Return a cost as exact text; for a whole plan, also as epsilon at its delta."""
    document: dict[str, Any] = {cost.currency: str(cost.amount)}
    if plan is not None and cost.pure_epsilon is None:
        document |= {
            "epsilon": plan.epsilon,
            "delta": str(plan.delta),
            "implied_epsilon": cost.implied_epsilon,
        }
        if plan.certified:
            document["certified"] = [
                {"epsilon": decimal(point.epsilon), "delta": rounded_up_text(point.delta)}
                for point in plan.certified
            ]
    return document


def refuse_unwritable(plan: AnyPlan, document: dict[str, Any]) -> None:
    """Refuse a manifest with a number that JSON cannot represent, before anything is charged."""
    try:
        storage.as_json(document)
    except ValueError as error:
        raise InputError(
            f"{plan.name}: a number in the manifest would be too large or too small for JSON "
            f"({error}); choose a budget and shares closer to 1"
        ) from error


def list_files(folder: Path, names: list[str]) -> dict[str, dict[str, Any]]:
    """Return the hash and size of each file."""
    return {
        name: {"sha256": storage.sha256(folder / name), "bytes": (folder / name).stat().st_size}
        for name in names
    }
