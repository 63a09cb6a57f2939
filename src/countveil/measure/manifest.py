"""The manifest of a release: plan, exact costs, noise, versions, hashes; nothing of the records."""

from __future__ import annotations

import platform
from importlib import metadata
from pathlib import Path
from typing import Any

from countveil import storage
from countveil.congenial.guarantee import PartialPrivacy
from countveil.congenial.wasserstein_mechanism import Wasserstein
from countveil.measure.strategy import mechanism_for
from countveil.privacy.costs import Cost, PureDP
from countveil.schema.plan import Plan

NAME = "manifest.json"
FORMAT = "countveil release 1"
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
    """Return the manifest of a release of this plan, but for its files."""
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
            for mechanism in [mechanism_for(item)]
        ],
        **_end(plan, crosswalk_sha256),
    }


def describe_table(
    plan: Plan,
    units: dict[str, int],
    mechanism: Wasserstein,
    guarantee: PartialPrivacy,
    *,
    release: str,
    randomness: str,
    publishable: bool,
    crosswalk_sha256: str,
) -> dict[str, Any]:
    """Return the manifest of one table drawn beside public information, but for its files."""
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
            "level": None if plan.one_table is None else plan.one_table.level,
            "mechanism": "wasserstein exponential",
            "loss": mechanism.loss,
            "base": mechanism.base,
            "people": mechanism.people,
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


def _beginning(plan: Plan, release: str, randomness: str, publishable: bool) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "release": release,
        "title": plan.title,
        "publishable": publishable,
        "randomness": randomness,
    }


def _end(plan: Plan, crosswalk_sha256: str) -> dict[str, Any]:
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
    """Return a cost as exact text, and for a whole plan also as epsilon at its delta."""
    if isinstance(cost, PureDP):
        return {"epsilon": str(cost.epsilon)}
    document: dict[str, Any] = {"rho": str(cost.rho)}
    if plan is not None:
        document |= {
            "epsilon": cost.epsilon(plan.delta),
            "delta": str(plan.delta),
            "implied_epsilon": cost.implied_epsilon,
        }
    return document


def list_files(folder: Path, names: list[str]) -> dict[str, dict[str, Any]]:
    """Return hash and size of files of a release."""
    return {
        name: {"sha256": storage.sha256(folder / name), "bytes": (folder / name).stat().st_size}
        for name in names
    }
