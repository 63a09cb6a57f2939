"""How deep and how large a plan is: checked before a parser that grows with it reads it."""

from __future__ import annotations

import re
import reprlib
import tomllib
from collections.abc import Iterator
from fractions import Fraction
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Literal

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
from countveil.plan.attributes import listed
from countveil.plan.presets import PRESETS, read_preset

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
    """Refuse a TOML text whose keys or brackets nest deeper than any plan; strings may hold both."""
    dots = depth = 0
    for token in _TOKEN.finditer(text):
        kind = token.lastgroup
        if kind == "unclosed":
            # The parser stops here too. Trying each later quote would scan the rest as often.
            return
        if kind == "dot":
            dots += 1
        elif kind in ("opening", "closing", "end"):
            dots = 0
            depth = max(0, depth + (kind == "opening") - (kind == "closing"))
        if dots >= MOST_PARTS:
            fault = f"a key of more than {MOST_PARTS} parts; a plan has tables three deep"
        elif depth > MOST_BRACKETS:
            fault = f"more than {MOST_BRACKETS} brackets nested; a plan has tables three deep"
        elif kind == "word" and token.end() - token.start() > LONGEST_WORD:
            fault = f"a number or key of more than {LONGEST_WORD:,} characters; write it shorter"
        else:
            continue
        line = text.count("\n", 0, token.start()) + 1
        raise PlanError(f"{name}: line {line}: {fault}")


def values_by_depth(document: Any) -> Iterator[int]:
    """Yield, layer by layer, how many values a document of tables and lists has down to there.

    A caller that stops at its limit takes no memory for what lies deeper.
    """
    layer: list[Any] = [document]
    values = 0
    while layer:
        tables = [item for item in layer if isinstance(item, dict | list)]
        values += sum(map(len, tables))
        yield values
        layer = [part for t in tables for part in (t.values() if isinstance(t, dict) else t)]


# The plan file: TOML read into checked sections, every error naming file and key.

_LARGEST_FILE = 5_000_000
MOST_VALUES = 500_000  # of a whole plan: its categories, members of groups, shares and names
_DEEPEST = 16
_MOST_SHOWN = 20  # mistakes in one message
_SHORT = reprlib.Repr()  # of what came, however long it is
_SHORT.maxstring = _SHORT.maxother = 60


def _fraction(value: Any) -> Fraction:
    try:
        return exact(value)
    except InputError as error:
        raise ValueError(str(error).removeprefix("value: ")) from None


def at_most(entries: int) -> BeforeValidator:
    """Refuse a table of more entries before any of them is checked; `max_length` does so after."""

    def refuse(value: Any) -> Any:
        if isinstance(value, dict) and len(value) > entries:
            raise ValueError(f"it has {len(value):,} entries; the limit is {entries:,}")
        return value

    return BeforeValidator(refuse)


def _few_wrong_texts(value: Any) -> Any:
    """Cut a list after more mistakes than are shown: memory is taken for each."""
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
        raise ValueError("it has a NUL character, which no text and no name of a file has")
    return text


def _known_preset(name: str) -> str:
    if name not in PRESETS:
        raise ValueError(f"unknown preset {name!r}; choose from {listed(PRESETS)}")
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
        """Drop unknown keys beyond those that are shown: each is a mistake, and takes memory."""
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
        "half the variance for the same rho, refused beside invariants."
    )
    dataset: Text | None = Field(None, description="The data set the ledger is kept for.")
    purpose: Text | None = Field(None, description="What it is for, as its report says.")
    preset: PresetName | None = None


class RecordsSection(_Section):
    """Where the confidential records are."""

    path: Text | None = Field(None, description="A CSV or Parquet file, relative to the plan.")
    database: Text | None = Field(None, description="A DuckDB database file for `query`.")
    query: Sql | None = Field(None, description="A SELECT that yields the records.")
    public_tables: list[Text] = Field(
        default_factory=list,
        max_length=10_000,
        description="Files and tables of `query` that hold nothing confidential, as it names them.",
    )
    each_person_alone: bool = Field(
        False,
        description="Attested by the curator: what `query` returns for one person depends on that "
        "person's records and public tables only. It is published.",
    )
    counts: Text | None = Field(
        None, description="For tables already tabulated: the column that holds the counts."
    )
    columns: Annotated[dict[str, Text], at_most(1000)] = Field(
        default_factory=dict,
        description="Column names where they differ from the plan's names.",
    )
    one_row_per_person: bool | None = Field(None, description="Attested by the curator.")
    person_id: Text | None = Field(None, description="The column that names the person.")
    real_ids: list[Text] = Field(
        default_factory=list,
        max_length=10_000,
        description="Ids of real people that look like placeholders, such as 0; all others that do "
        "are refused.",
    )
    max_rows: Annotated[int, Field(ge=1, le=1000)] | None = None
    redacted: bool = Field(
        False, description="Set in a published plan: where they are is left out."
    )
    missing: Literal["refuse"] | Annotated[dict[str, str], at_most(1000)] = Field(
        "refuse", description="refuse, or the category that stands for missing, per attribute."
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
    """What may be spent, and how it is shared among levels and queries."""

    rho: ExactNumber | None = Field(
        None, description="zCDP: discrete Gaussian noise unless mechanism says otherwise."
    )
    epsilon: ExactNumber | None = Field(
        None,
        description="With delta: calibrates rho. Alone: pure DP, discrete Laplace noise unless "
        "mechanism says otherwise.",
    )
    delta: ExactNumber | None = None
    mechanism: Name | None = Field(
        None,
        description="The noise, such as discrete-gaussian; its price must be in the currency of the "
        "budget.",
    )
    chosen_by: Text | None = Field(
        None, description="Who chose the budget, and why, as the report says."
    )
    chosen_from: Literal["records"] | None = Field(
        None,
        description="If the budget was chosen by looking at records, as by homogeneity risk: the "
        "guarantee does not cover that choice, and the manifest says so.",
    )
    levels: Shares = Field(
        default_factory=dict, description="Shares of the levels; not for method congenial."
    )
    queries: Annotated[dict[str, Shares], at_most(1000)] = Field(
        default_factory=dict,
        description='Shares per level; the table "*" serves levels without one of their own.',
    )


class InvariantSection(_Section):
    """A query published as counted: public, exact, never priced."""

    level: str
    query: str
    reason: Text


class ConstraintSection(_Section):
    """Public bounds on a query, from a file: one row per unit (or group of units) and cell."""

    level: str
    query: str
    path: Text = Field(
        description="A CSV file with a column named as the level (or `group`), one per attribute of "
        "the query, and at_least, at_most or exactly."
    )
    members: Text | None = Field(
        None, description="For groups of siblings: a CSV file with columns group and the level."
    )
    reason: Text


class StructuralZeroSection(_Section):
    """Cells where nobody can be: the cross-classification of the named categories."""

    cells: TextsByName
    reason: Text


class LevelPassesSection(_Section):
    """How the families of a level are estimated."""

    passes: list[str] = Field(
        default_factory=list,
        max_length=32,
        description="Queries estimated, rounded and then held, before all the rest; each nests in "
        "the next.",
    )
    look_below: bool = Field(
        False,
        description='For information = "level": let the pass over TOTAL use what was measured below.',
    )
    rounding: Literal["cells", "totals", "queries", "unbiased"] = Field(
        "queries",
        description="queries: every measured query and table ends within 1 of its estimate; totals: "
        "only the units' totals do; cells: least change of each count; unbiased: at random, right on "
        "average.",
    )


class PostprocessSection(_Section):
    """What is done to the measurements."""

    method: Literal["none", "top-down", "congenial"] = Field(
        "none",
        description="none publishes measurements only; top-down also consistent tables; congenial "
        "draws one table that agrees with public totals, beside which its guarantee holds.",
    )
    information: Literal["tree", "level"] = Field(
        "tree",
        description="What the units of a level are estimated from: tree uses their own measurements "
        "and all those below them; level only their own.",
    )
    levels: Annotated[dict[str, LevelPassesSection], at_most(1000)] = Field(
        default_factory=dict,
        description='Passes per level; the table "*" serves levels without one of their own.',
    )
    tables: list[str] = Field(
        default_factory=list,
        max_length=1000,
        description="Tables to write: queries, and P1 to P5 or H1 where the schema has them.",
    )
    confidence: Annotated[float, Field(ge=0, le=1 - 1e-9)] = Field(
        0.9,
        description="Of the interval that estimates carry beside their standard error; 0 leaves both "
        "out.",
    )
    residual: Annotated[float, Field(ge=1e-9, le=1e-3)] = Field(
        1e-9,
        description="How far from optimal a family's solution may be before it is rounded, relative to "
        "its largest count; give more only where full precision was not reached.",
    )
    microdata: bool = Field(
        False, description="Write synthetic microdata, one row a person, that tabulate the same."
    )


class CongenialSection(_Section):
    """One table drawn in agreement with what is public (paper 003); goes with method congenial."""

    level: str | None = Field(
        None, description="Whose counts are released; the lowest if not said."
    )
    part: TextsByName = Field(
        default_factory=dict,
        description="Categories counted beside all, such as deaths among cases: released as a second "
        "count of each unit, never above the first.",
    )
    loss: Literal["L1", "L2", "squared L2"] = "L1"
    base: Literal["congenial", "naive"] = Field(
        "congenial",
        description="congenial: releases have the public totals and no negative count; naive: all "
        "whole numbers.",
    )
    previous: Text | None = Field(
        None,
        description="A CSV or Parquet file of public counts of an earlier period, with a column named "
        "as the level (or geocode) and one named count: the prior.",
    )
    alpha: ExactNumber = Field(Fraction(1), description="How much a previous count weighs.")
    pseudo_count: ExactNumber = Field(
        Fraction(0), description="Added to each; needed where a previous count is 0."
    )
    people: Annotated[int, Field(ge=1, le=10_000_000)] = Field(
        1, description="Delta_z: how many people's rows may depend on each other."
    )


class IntruderSection(_Section):
    """Whom the plan is judged against."""

    priors: list[Annotated[float, Field(gt=0, lt=1)]] = Field(
        [0.5, 0.2, 0.1, 0.02], min_length=1, max_length=100
    )
    limit: Annotated[float, Field(gt=1)] | None = Field(
        None, description="Exit status 1 when the plan's marginal risk passes it."
    )
    level: str | None = Field(
        None, description="Where he knows everyone else; the lowest level if not said."
    )


class LedgerSection(_Section):
    """The ledger's file and limits, set once."""

    path: Text = Field(
        "ledger.sqlite",
        description="Relative to the plan; best outside the folder that holds the releases.",
    )
    currency: Literal["rho", "epsilon"] | None = Field(
        None, description="What it is kept in; the plan's own currency if not said."
    )
    total: ExactNumber | None = Field(None, description="The plan's own cost if not said.")
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


def read(path: Path) -> tuple[dict[str, Any], PlanFile]:
    """Read a plan file; return the merged document and its checked form."""
    try:
        if path.stat().st_size > _LARGEST_FILE:
            raise PlanError(f"{path}: over {_LARGEST_FILE:,} bytes; a plan is a small text file")
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise PlanError(
            f"{path}: {error.strerror}; name a plan file, or make one with `countveil init`"
        ) from error
    except UnicodeDecodeError as error:
        raise PlanError(
            f"{path}: not UTF-8 text (byte {error.start}); a plan is a TOML file"
        ) from error
    return parse(text, str(path))


def parse(text: str, name: str = "plan") -> tuple[dict[str, Any], PlanFile]:
    """Read the text of a plan; `name` stands in messages."""
    refuse_deep_nesting(text, name)
    try:
        own = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise PlanError(f"{name}: not valid TOML: {error}") from error
    document = _over_preset(own, name)
    return document, check(document, name)


def check(document: dict[str, Any], name: str = "plan") -> PlanFile:
    """Check a document that was laid over its preset."""
    _refuse_bulk(document, name)
    try:
        return PlanFile.model_validate(document)
    except ValidationError as error:
        lines = [_explain(item, name) for item in error.errors()[:_MOST_SHOWN]]
        if error.error_count() > _MOST_SHOWN:
            lines.append(f"{name}: and more mistakes; correct these first")
        raise PlanError("\n".join(lines)) from error


def _refuse_bulk(document: dict[str, Any], name: str) -> None:
    """Refuse a document of more values, or deeper, than any plan: checking it takes memory for each."""
    for depth, values in enumerate(values_by_depth(document)):
        if values > MOST_VALUES:
            raise PlanError(
                f"{name}: has more than {MOST_VALUES:,} values, the limit of a plan; merge "
                f"categories, or drop recodes and queries"
            )
        if depth >= _DEEPEST:
            raise PlanError(
                f"{name}: nests more than {_DEEPEST} deep; a plan has tables three deep"
            )


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of plan files, for editors."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **PlanFile.model_json_schema(),
    }


def _over_preset(own: dict[str, Any], name: str) -> dict[str, Any]:
    """Lay a plan over its preset: key by key in each section, level by level in budget.queries."""
    section = own.get("release")
    preset = section.get("preset") if isinstance(section, dict) else None
    if not isinstance(preset, str):
        return own
    try:
        _known_preset(preset)
    except ValueError as error:
        raise PlanError(f"{name}: release.preset: {error}") from None
    merged = read_preset(preset)
    merged.pop("tables", None)  # layouts for every plan, not a section of this one
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
    """Drop what a preset says of levels that the plan does not have."""
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
    """Say where, what came, and what is allowed."""
    where = ".".join(str(part)[:100] for part in error["loc"])
    came, kind = _SHORT.repr(error["input"]), error["type"]
    if kind == "extra_forbidden":
        parent, key = error["loc"][:-1], error["loc"][-1]
        allowed = listed(_keys_at(parent), most=20)
        return f"{name}: {where}: no key {_SHORT.repr(key)} here; choose from {allowed}"
    if kind == "missing":
        return f"{name}: {where}: is needed and not there"
    if kind == "value_error":
        return f"{name}: {where}: {error['ctx']['error']}"
    if kind == "literal_error":
        return f"{name}: {where}: {came} is not known; choose from {error['ctx']['expected']}"
    shown = came if len(came) <= 60 else came[:57] + "…"
    rule = (
        error["msg"]
        .replace("Input should", "it should")
        .replace("String should", "the text should")
    )
    return f"{name}: {where}: {shown} is not allowed; {rule[0].lower()}{rule[1:]}"


def _keys_at(location: tuple[Any, ...]) -> list[str]:
    """Return the keys allowed in the section at `location`."""
    model: Any = PlanFile
    sections = {item.__name__: item for item in _Section.__subclasses__()}
    for part in location:
        if isinstance(part, int) or not hasattr(model, "model_fields"):
            continue
        if part in model.model_fields:
            note = str(model.model_fields[part].annotation)
            found = [item for title, item in sections.items() if f".{title}" in note]
            model = found[0] if found else model
    return list(model.model_fields)
