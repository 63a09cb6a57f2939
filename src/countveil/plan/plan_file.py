"""The plan file: TOML, read into checked sections. Every error names the file and the key."""

from __future__ import annotations

import re
import reprlib
import tomllib
from collections.abc import Iterator
from fractions import Fraction
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    WithJsonSchema,
    model_validator,
)

from countveil.base.numerics import exact
from countveil.errors import InputError, PlanError
from countveil.plan.attributes import choices
from countveil.plan.presets import PRESETS, read_preset

# Depth and size are checked first: a parser would take memory or time in proportion.

MOST_PARTS = 16  # of a dotted key
MOST_BRACKETS = 16  # open at once
LONGEST_WORD = 1000  # characters of a number or a key without quotes
_TOKEN = re.compile(
    r"""
      (?P<text> \"{3} (?: [^"\\]++ | \\. | "(?!"") )*+ "{3,5}
              | '{3} (?: [^']++ | '(?!'') )*+ '{3,5}
              | "(?!"") (?: [^"\\\n]++ | \\[^\n] )*+ "
              | '(?!'') [^'\n]*+ ' )
    | (?P<unclosed> ["'] )
    | (?P<comment> \# [^\n]*+ )
    | (?P<word> [A-Za-z0-9_+:\-]++ )
    | (?P<dot> \. )
    | (?P<opening> [\[{] )
    | (?P<closing> [\]}] )
    | (?P<end> [\n,=] )
    """,
    re.VERBOSE | re.DOTALL,
)


def refuse_deep_nesting(text: str, name: str) -> None:
    """Refuse TOML text whose keys or brackets nest deeper than in any plan, except in strings."""
    dots = depth = 0
    for token in _TOKEN.finditer(text):
        kind = token.lastgroup
        if kind == "unclosed":
            # The parser stops here, too. Trying every later quote would take quadratic time.
            return
        if kind == "dot":
            dots += 1
        elif kind in ("opening", "closing", "end"):
            dots = 0
            depth = max(0, depth + (kind == "opening") - (kind == "closing"))
        if dots >= MOST_PARTS:
            fault = f"a key has more than {MOST_PARTS} parts; plans nest at most three deep"
        elif depth > MOST_BRACKETS:
            fault = f"more than {MOST_BRACKETS} nested brackets; plans nest at most three deep"
        elif kind == "word" and token.end() - token.start() > LONGEST_WORD:
            fault = f"a number or key has more than {LONGEST_WORD:,} characters; shorten it"
        else:
            continue
        line = text.count("\n", 0, token.start()) + 1
        raise PlanError(f"{name}: line {line}: {fault}")


def values_by_depth(document: Any) -> Iterator[int]:
    """Yield, for each depth, the number of values of a document down to that depth.

    A caller that stops at a limit uses no memory for deeper values.
    """
    layer: list[Any] = [document]
    values = 0
    while layer:
        tables = [item for item in layer if isinstance(item, dict | list)]
        values += sum(map(len, tables))
        yield values
        layer = [part for t in tables for part in (t.values() if isinstance(t, dict) else t)]


_LARGEST_FILE = 5_000_000
MOST_VALUES = 500_000  # categories, members of groups, shares and names of a plan
_DEEPEST = 16
_MOST_SHOWN = 20  # mistakes in one message
_SHORT = reprlib.Repr()  # shortens values in messages
_SHORT.maxstring = _SHORT.maxother = 60


def _fraction(value: Any) -> Fraction:
    try:
        return exact(value)
    except InputError as error:
        raise ValueError(str(error).removeprefix("value: ")) from None


def at_most(entries: int) -> BeforeValidator:
    """Refuse a table with more entries before checking any; `max_length` would check them all first."""

    def refuse(value: Any) -> Any:
        if isinstance(value, dict) and len(value) > entries:
            raise ValueError(f"has {len(value):,} entries; the limit is {entries:,}: remove some")
        return value

    return BeforeValidator(refuse)


def _few_wrong_texts(value: Any) -> Any:
    """Cut a list after more mistakes than are shown: each takes memory."""
    if not isinstance(value, list) or _all_text(value):
        return value
    wrong = (number for number, item in enumerate(value) if not isinstance(item, str))
    return value[: next(islice(wrong, _MOST_SHOWN, None), len(value)) + 1]


def _few_wrong_lists(value: Any) -> Any:
    """Cut a table of lists after more mistakes than are shown."""
    if not isinstance(value, dict):
        return value
    wrong = (number for number, item in enumerate(value.values()) if not _all_text(item))
    last = next(islice(wrong, _MOST_SHOWN, None), None)
    return value if last is None else dict(islice(value.items(), last + 1))


def _all_text(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _without_nul(text: str) -> str:
    if "\0" in text:
        raise ValueError("contains a NUL character, which texts and file names cannot; remove it")
    return text


def _known_preset(name: str) -> str:
    if name not in PRESETS:
        raise ValueError(f"unknown preset {name!r}; choose from {choices(PRESETS)}")
    return name


ExactNumber = Annotated[
    Fraction,
    BeforeValidator(_fraction),
    WithJsonSchema({"type": ["string", "integer"], "examples": ["2.56", "104/4099", "1e-10"]}),
]
PresetName = Annotated[
    str,
    AfterValidator(_known_preset),
    WithJsonSchema({"type": "string", "enum": list(PRESETS)}),
]
Name = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,63}$")]
Text = Annotated[str, Field(min_length=1, max_length=500), AfterValidator(_without_nul)]
Texts = Annotated[list[str], BeforeValidator(_few_wrong_texts)]
TextsByName = Annotated[dict[str, Texts], BeforeValidator(_few_wrong_lists)]
Sql = Annotated[str, Field(min_length=1, max_length=100_000)]
Shares = Annotated[dict[str, ExactNumber], at_most(10_000)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _few_unknown_keys(cls, value: Any) -> Any:
        """Drop unknown keys beyond those that are shown: each mistake takes memory."""
        if not isinstance(value, dict) or len(value) <= len(cls.model_fields) + _MOST_SHOWN:
            return value
        known = {key: item for key, item in value.items() if key in cls.model_fields}
        unknown = ((key, item) for key, item in value.items() if key not in known)
        return known | dict(islice(unknown, _MOST_SHOWN + 1))


class ReleaseSection(_Section):
    """What is released, about whom, and which databases count as neighbours."""

    title: Text
    unit: Text = Field(description="The unit of protection, such as person or household.")
    neighbors: Literal["change-one", "add-remove"] = Field(
        description="change-one: a person's row is replaced; add-remove: a person joins or leaves, "
        "which needs half the variance for the same rho but allows no invariants."
    )
    dataset: Text | None = Field(None, description="The data set the ledger is kept for.")
    purpose: Text | None = Field(None, description="What the release is for; shown in its report.")
    preset: PresetName | None = None


class RecordsSection(_Section):
    """Where the confidential records are."""

    path: Text | None = Field(None, description="A CSV or Parquet file, relative to the plan.")
    database: Text | None = Field(None, description="A DuckDB database file for `query`.")
    query: Sql | None = Field(None, description="A SELECT statement that returns the records.")
    public_tables: list[Text] = Field(
        default_factory=list,
        max_length=10_000,
        description="Files and tables in `query` without confidential data, as written there.",
    )
    each_person_alone: bool = Field(
        False,
        description="Attested by the curator: the rows that `query` returns for a person depend only "
        "on that person's records and on public tables. The attestation is published.",
    )
    counts: Text | None = Field(
        None, description="For data that is already tabulated: the column of counts."
    )
    columns: Annotated[dict[str, Text], at_most(1000)] = Field(
        default_factory=dict,
        description="Column names that differ from the names in the plan.",
    )
    one_row_per_person: bool | None = Field(
        None, description="Attested by the curator: no person has more than one row."
    )
    person_id: Text | None = Field(None, description="The column that identifies the person.")
    real_ids: list[Text] = Field(
        default_factory=list,
        max_length=10_000,
        description="Ids of real people that look like placeholders, such as 0; other placeholders are "
        "refused.",
    )
    max_rows: Annotated[int, Field(ge=1, le=1000)] | None = None
    redacted: bool = Field(
        False, description="Set in a published plan, which omits where the records are."
    )
    missing: Literal["refuse"] | Annotated[dict[str, str], at_most(1000)] = Field(
        "refuse", description="refuse, or per attribute the category to use for missing values."
    )


class GeographySection(_Section):
    """The crosswalk: one row per lowest unit, one column per level."""

    path: Text | None = None
    levels: list[Name] = Field(min_length=1, max_length=32)


class RecodeSection(_Section):
    """A coarser view of an attribute."""

    of: str
    groups: TextsByName
    omit: Texts = Field(default_factory=list)


class BudgetSection(_Section):
    """What a release may spend, and the shares of levels and queries."""

    rho: ExactNumber | None = Field(
        None, description="A zCDP budget; discrete Gaussian noise unless mechanism names another."
    )
    epsilon: ExactNumber | None = Field(
        None,
        description="With delta: converted to rho. Alone: pure DP, with discrete Laplace noise unless "
        "mechanism names another.",
    )
    delta: ExactNumber | None = None
    accounting: Literal["rho", "certified"] = Field(
        "rho",
        description="How epsilon with delta becomes rho. rho: by a conversion that holds for any noise "
        "with that rho; certified: by composing the privacy losses of the plan's own noise, which "
        "allows more rho. The ledger adds up rho either way.",
    )
    mechanism: Name | None = Field(
        None,
        description="The noise, such as discrete-gaussian; it must be priced in the currency of the "
        "budget.",
    )
    chosen_by: Text | None = Field(
        None, description="Who chose the budget, and why; shown in the report."
    )
    chosen_from: Literal["records"] | None = Field(
        None,
        description="If the budget was chosen by looking at records, as for a homogeneity risk: the "
        "guarantee does not cover that choice, and the manifest says so.",
    )
    targets: list[Text] = Field(
        default_factory=list,
        max_length=1000,
        description='Tables that matter, such as "county TOTAL within 50": `choose` splits the budget '
        "for them, and the report says how much the split wastes.",
    )
    levels: Shares = Field(
        default_factory=dict,
        description="Shares of the levels, which sum to 1; not for method congenial.",
    )
    queries: Annotated[dict[str, Shares], at_most(1000)] = Field(
        default_factory=dict,
        description='Shares of queries per level; "*" applies to levels without their own.',
    )


class InvariantSection(_Section):
    """A query that is public and published exactly; it costs no budget."""

    level: str
    query: str
    reason: Text


class ConstraintSection(_Section):
    """Public bounds on a query, from a file: one row per unit (or group of units) and cell."""

    level: str
    query: str
    path: Text = Field(
        description="A CSV file with a column named after the level (or `group`), one for each "
        "attribute of the query, and at_least, at_most or exactly."
    )
    members: Text | None = Field(
        None,
        description="For groups of siblings: a CSV file with a column group and one for the level.",
    )
    reason: Text


class StructuralZeroSection(_Section):
    """Cells in which no one can be: all combinations of the named categories."""

    cells: TextsByName
    reason: Text


class LevelPassesSection(_Section):
    """How the families of a level are estimated."""

    passes: list[str] = Field(
        default_factory=list,
        max_length=32,
        description="Queries to estimate, round and fix before the rest; each is nested in the next.",
    )
    look_below: bool = Field(
        False,
        description='For information = "level": let the pass over TOTAL use all measurements below.',
    )
    rounding: Literal["cells", "totals", "queries", "unbiased"] = Field(
        "queries",
        description="queries: keep every measured query and table within 1 of its estimate; totals: "
        "keep only the totals of units; cells: change each count as little as possible; unbiased: "
        "round at random, without bias.",
    )


class PostprocessSection(_Section):
    """What is done to the measurements."""

    method: Literal["none", "top-down", "congenial"] = Field(
        "none",
        description="none: publish measurements only; top-down: also publish consistent tables; "
        "congenial: draw one table that agrees with public totals, with a guarantee relative to "
        "those totals.",
    )
    information: Literal["tree", "level"] = Field(
        "tree",
        description="What the units of a level are estimated from: tree uses their own measurements "
        "and all those below them; level only their own.",
    )
    unmeasured: Literal["refuse", "label"] = Field(
        "refuse",
        description="Tables that measurements do not determine: refuse them before anything is "
        "charged, or publish them in columns that end in _unmeasured.",
    )
    levels: Annotated[dict[str, LevelPassesSection], at_most(1000)] = Field(
        default_factory=dict,
        description='Passes per level; "*" applies to levels without their own.',
    )
    tables: list[str] = Field(
        default_factory=list,
        max_length=1000,
        description="Tables to write: queries, or P1 to P5 and H1 if the schema has their attributes.",
    )
    confidence: Annotated[float, Field(ge=0, le=1 - 1e-9)] = Field(
        0.9,
        description="Confidence of the intervals published with standard errors; 0 omits both.",
    )
    residual: Annotated[float, Field(ge=1e-9, le=1e-3)] = Field(
        1e-9,
        description="How far from optimal a family's solution may be before rounding, relative to its "
        "largest count; raise it only if full precision was not reached.",
    )
    microdata: bool = Field(
        False, description="Write synthetic microdata, one row per person, that match the tables."
    )


class CongenialSection(_Section):
    """One table that agrees with public totals (paper 003), for method congenial."""

    level: str | None = Field(
        None, description="The level whose counts are released; default: the lowest."
    )
    part: TextsByName = Field(
        default_factory=dict,
        description="Categories to count separately, such as deaths among cases: released as a second "
        "count of each unit, never above the first.",
    )
    loss: Literal["L1", "L2", "squared L2"] = "L1"
    base: Literal["congenial", "naive"] = Field(
        "congenial",
        description="congenial: the table has the public totals and no negative counts; naive: any "
        "whole numbers.",
    )
    previous: Text | None = Field(
        None,
        description="The prior: a CSV or Parquet file of public counts of an earlier period, with a "
        "column named after the level (or geocode) and a column count.",
    )
    alpha: ExactNumber = Field(Fraction(1), description="The weight of a previous count.")
    pseudo_count: ExactNumber = Field(
        Fraction(0), description="Added to each previous count; required if one of them is 0."
    )
    people: Annotated[int, Field(ge=1, le=10_000_000)] = Field(
        1, description="Delta_z: the number of people whose rows may depend on each other."
    )


class IntruderSection(_Section):
    """The intruder that the plan is judged against."""

    priors: list[Annotated[float, Field(gt=0, lt=1)]] = Field(
        [0.5, 0.2, 0.1, 0.02], min_length=1, max_length=100
    )
    limit: Annotated[float, Field(gt=1)] | None = Field(
        None,
        description="The largest marginal risk to accept; above it, commands exit with status 1.",
    )
    knows: str | None = Field(
        None,
        description="The level of the largest unit in which the intruder knows everyone else; "
        "default: the lowest measured level.",
    )
    level: str | None = Field(None, description="The earlier name of knows.")
    siblings: Literal["flat"] | Annotated[float, Field(gt=0, le=1e9)] = Field(
        "flat",
        description="What the intruder believes about other units: nothing, or the number of people "
        "they expect in a cell of each (Poisson). Used for one released unit and for published "
        "tables.",
    )


class LedgerSection(_Section):
    """The ledger file and its limits, which are set once."""

    path: Text = Field(
        "ledger.sqlite",
        description="Relative to the plan; best kept outside the folder of the plan and its releases.",
    )
    currency: Literal["rho", "epsilon"] | None = Field(
        None, description="The currency of the ledger; default: that of the plan."
    )
    total: ExactNumber | None = Field(
        None, description="The limit for all releases together; default: the cost of this plan."
    )
    period: Literal["year", "quarter", "month"] | None = None
    period_limit: ExactNumber | None = None


class PlanFile(_Section):
    """A countveil plan."""

    release: ReleaseSection
    records: RecordsSection | None = None
    geography: GeographySection
    attributes: TextsByName
    recodes: Annotated[dict[str, RecodeSection], at_most(10_000)] = Field(default_factory=dict)
    budget: BudgetSection
    invariants: list[InvariantSection] = Field(default_factory=list, max_length=1000)
    constraints: list[ConstraintSection] = Field(default_factory=list, max_length=1000)
    structural_zeros: list[StructuralZeroSection] = Field(default_factory=list, max_length=1000)
    postprocess: PostprocessSection = PostprocessSection()
    congenial: CongenialSection | None = None
    intruder: IntruderSection = IntruderSection()
    ledger: LedgerSection = LedgerSection()


class CheckedPlan(NamedTuple):
    """The document of a plan, merged with its preset, and its checked sections."""

    document: dict[str, Any]
    sections: PlanFile


def read(path: Path) -> CheckedPlan:
    """Return the document of a plan file, merged with its preset, and its checked sections."""
    try:
        if path.stat().st_size > _LARGEST_FILE:
            raise PlanError(
                f"{path}: larger than {_LARGEST_FILE:,} bytes, the limit; name a plan file (TOML)"
            )
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise PlanError(
            f"{path}: {error.strerror}; name a plan file, or create one with `countveil init`"
        ) from error
    except UnicodeDecodeError as error:
        raise PlanError(
            f"{path}: not UTF-8 text (byte {error.start}); save the plan as UTF-8"
        ) from error
    return parse(text, str(path))


def parse(text: str, name: str = "plan") -> CheckedPlan:
    """Return the document and checked sections of a plan's text; messages begin with `name`."""
    refuse_deep_nesting(text, name)
    try:
        own = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise PlanError(f"{name}: not valid TOML: {error}") from error
    document = _over_preset(own, name)
    return CheckedPlan(document, check(document, name))


def check(document: dict[str, Any], name: str = "plan") -> PlanFile:
    """Return the checked sections of a document that is merged with its preset."""
    _refuse_bulk(document, name)
    try:
        return PlanFile.model_validate(document)
    except ValidationError as error:
        lines = [_explain(item, name) for item in error.errors()[:_MOST_SHOWN]]
        if error.error_count() > _MOST_SHOWN:
            lines.append(f"{name}: there are more mistakes; fix these first")
        raise PlanError("\n".join(lines)) from error


def _refuse_bulk(document: dict[str, Any], name: str) -> None:
    """Refuse a document that is larger or deeper than any plan, before checking takes memory."""
    for depth, values in enumerate(values_by_depth(document)):
        if values > MOST_VALUES:
            raise PlanError(
                f"{name}: has more than {MOST_VALUES:,} values, the limit; merge categories, or remove "
                f"recodes and queries"
            )
        if depth >= _DEEPEST:
            raise PlanError(
                f"{name}: nests more than {_DEEPEST} deep; plans nest at most three deep"
            )


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of plan files, for editors."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **PlanFile.model_json_schema(),
    }


def _over_preset(own: dict[str, Any], name: str) -> dict[str, Any]:
    """Merge a plan into its preset: key by key in each section, level by level in budget.queries."""
    section = own.get("release")
    preset = section.get("preset") if isinstance(section, dict) else None
    if not isinstance(preset, str):
        return own
    try:
        _known_preset(preset)
    except ValueError as error:
        raise PlanError(f"{name}: release.preset: {error}") from None
    merged = read_preset(preset)
    merged.pop("tables", None)  # layouts for all plans, not a section of a plan
    _keep_levels(merged, own.get("geography"))
    for key, value in own.items():
        below = merged.get(key)
        if isinstance(below, dict) and isinstance(value, dict):
            queries = below.get("queries") or {}
            merged[key] = {**below, **value}
            if key == "budget" and isinstance(value.get("queries"), dict):
                merged[key]["queries"] = {**queries, **value["queries"]}
        else:
            merged[key] = value
    if (
        isinstance(own.get("budget"), dict)
        and "epsilon" in own["budget"]
        and "rho" not in own["budget"]
    ):
        merged["budget"].pop("rho", None)
        if "delta" not in own["budget"]:
            merged["budget"].pop("delta", None)
    return merged


def _keep_levels(preset: dict[str, Any], geography: Any) -> None:
    """Drop the parts of a preset about levels that the plan lacks."""
    levels = geography.get("levels") if isinstance(geography, dict) else None
    if not isinstance(levels, list):
        return
    queries = preset["budget"]["queries"]
    preset["budget"]["queries"] = {k: v for k, v in queries.items() if k == "*" or k in levels}
    if "invariants" in preset:
        preset["invariants"] = [item for item in preset["invariants"] if item["level"] in levels]
    passes = preset.get("postprocess", {}).get("levels", {})
    for level in [key for key in passes if key != "*" and key not in levels]:
        del passes[level]


def _explain(error: Any, name: str) -> str:
    """Return a message: where the mistake is, what came, what is allowed, what to do."""
    where = ".".join(str(part)[:100] for part in error["loc"])
    came, kind = _SHORT.repr(error["input"]), error["type"]
    if kind == "extra_forbidden":
        parent, key = error["loc"][:-1], error["loc"][-1]
        allowed = choices(_keys_at(parent), most=20)
        return f"{name}: {where}: unknown key {_SHORT.repr(key)}; choose from {allowed}"
    if kind == "missing":
        return f"{name}: {_missing(error['loc'])}"
    if kind == "value_error":
        return f"{name}: {where}: {error['ctx']['error']}"
    if kind == "literal_error":
        return f"{name}: {where}: {came} is not allowed; choose from {error['ctx']['expected']}"
    shown = came if len(came) <= 60 else came[:57] + "…"
    rule = (
        error["msg"]
        .replace("Input should", "it should")
        .replace("String should", "the text should")
    )
    return f"{name}: {where}: {shown} is not allowed; {rule[0].lower()}{rule[1:]}"


_EXAMPLES = {
    "title": '"People by age and sex"',
    "unit": '"person"',
    "neighbors": '"change-one"',
    "levels": '["state", "county", "block"]',
    "level": '"state"',
    "query": '"TOTAL"',
    "path": '"bounds.csv"',
    "reason": '"published already"',
    "of": '"AGE"',
    "groups": '{ child = ["0-4", "5-17"], adult = ["18 and over"] }',
    "cells": '{ AGE = ["0-4"], MARRIED = ["yes"] }',
}


def _missing(location: tuple[Any, ...]) -> str:
    """Return a message about a missing section or key, with an example of the key."""
    *above, key = (str(part) for part in location)
    if not above:
        return f"[{key}] is missing. Add this section to the plan."
    names = [str(part) for part in location[:-1] if not isinstance(part, int)]
    section = ".".join(names)
    # A section that a file may have several times is written in double brackets.
    section = f"[{section}]" if len(names) == len(above) else f"[[{section}]]"
    example = f", for example {key} = {_EXAMPLES[key]}" if key in _EXAMPLES else ""
    return f"{'.'.join((*above, key))} is missing. Add it to {section}{example}."


def _keys_at(location: tuple[Any, ...]) -> list[str]:
    """Return the keys allowed in the section at `location`."""
    model: Any = PlanFile
    sections = {item.__name__: item for item in _Section.__subclasses__()}
    for part in location:
        if isinstance(part, int) or not hasattr(model, "model_fields"):
            continue
        if part in model.model_fields:
            note = str(model.model_fields[part].annotation)
            inner = [item for title, item in sections.items() if f".{title}" in note]
            model = inner[0] if inner else model
    return list(model.model_fields)
