"""How many people a homogeneity attack on the published tables reveals, between two ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from countveil.assess.published.bounded_mean import Ends
from countveil.assess.published.many_releases import one_family
from countveil.assess.published.simulation_cost import affordable_draws, refuse_long
from countveil.assess.published.tables_homogeneity import (
    Attack,
    PublishedHomogeneity,
    published_attacks,
)
from countveil.base import words
from countveil.base.randomness import BitSource, Seeded
from countveil.errors import InputError
from countveil.plan.plans import Plan
from countveil.report.section_data import Section, SectionTable, Subject
from countveil.report.sections.published_section import (
    estimated_counts,
    made_up,
    refuse_no_example,
    simulation_table,
)

_SECONDS, _LEAST, _MOST = 2.0, 200, 1_000  # of simulation in a page, and how many releases it takes


def section(subject: Subject) -> Section | None:
    """Describe the attack on every attribute of a release, from its released estimates.

    The intruder knows all other attributes. Return None for a release that takes longer to simulate
    than a reader would wait, or that has no attribute with several values.
    """
    release, level = subject.release, subject.level or subject.plan.judged_level
    if release is None or "estimates" not in release.manifest:
        return None
    plan, geography = release.plan, release.geography
    attacks = every_attack(plan)
    if not attacks or plan.levels[-1] not in release.estimates.levels:
        return None
    if level not in plan.estimated_levels:
        return None
    read = {level: range(geography.units(level))}
    draws = affordable_draws(plan, geography, read, seconds=_SECONDS, least=_LEAST, most=_MOST)
    if draws == 0:
        return None
    counts = estimated_counts(release)
    if not counts.any():
        return None
    return section_of(
        published_attacks(
            plan,
            attacks,
            counts=counts,
            level=level,
            draws=draws,
            rng=Seeded(1),
            geography=geography,
            audience="public",
        )
    )


def every_attack(plan: Plan) -> list[Attack]:
    """Return the attack on each attribute by someone who knows all others."""
    names = [item.name for item in plan.schema.attributes]
    return [
        Attack(item.name, tuple(name for name in names if name != item.name))
        for item in plan.schema.attributes
        if len(item.categories) > 1
    ]


def example(
    plan: Plan,
    *,
    draws: int | None = None,
    rng: BitSource | None = None,
    progress: Callable[[int, int], None] = lambda done, all_: None,
) -> Section:
    """Return the section of a made-up example: someone alone in a place, ten people in the other.

    The intruder knows the place and all other attributes. No record is read.

    Parameters
    ----------
    plan : Plan
        The plan that is simulated.
    draws : int, optional
        How many releases are simulated; by default as many as a reader would wait for.
    rng : BitSource, optional
        The randomness of the simulation; a seed by default.
    progress : callable
        Called with the releases completed and all releases.

    Returns
    -------
    Section
        Both ends for each attribute, and the example in words.

    Raises
    ------
    InputError
        If there is nothing to learn, the plan's public facts name places, or it takes too long.
    """
    refuse_no_example(plan)
    attacks = every_attack(plan)
    if not attacks:
        raise InputError(
            f"{plan.name}: no attribute has several values, so there is nothing to learn"
        )
    places, (_, counts) = one_family(plan, 2), made_up(plan)
    level = plan.estimated_levels[-1]
    read = {level: range(places.units(level))}
    if draws is None:
        draws = affordable_draws(plan, places, read, seconds=_SECONDS, least=_LEAST, most=_MOST)
        if draws == 0:
            raise InputError(
                f"{plan.name}: takes too long to simulate while you wait; run `countveil assess "
                f"published-homogeneity {plan.name}`"
            )
    refuse_long(plan, places, read, draws)
    results = published_attacks(
        plan,
        attacks,
        counts=counts,
        level=level,
        draws=draws,
        rng=Seeded(1) if rng is None else rng,
        geography=places,
        audience="public",
        progress=progress,
    )
    lowest = plan.levels[-1]
    setting = (
        f"A made-up example: a person is alone in one {lowest}, and ten others are counted in the "
        f"only other {lowest}."
    )
    return section_of(results, setting=setting)


def section_of(attacks: Sequence[PublishedHomogeneity], *, setting: str = "") -> Section:
    """Return the section of some attacks on the same releases; the sentence is about the worst.

    `setting` is the made-up example that they are about, if any.
    """
    worst = max(attacks, key=lambda item: (item.upper, item.lower))
    source = "the records" if worst.audience == "internal" else "the released estimates"
    if setting:
        source = "the example"
    known = words.listed([worst.level, *worst.identifiers])
    sentence = (
        f"Someone who knows a person's {known}, and believes the {worst.sensitive} of that group where "
        f"the published tables show only one, would be right about {_range(worst.lower, worst.upper)} "
        f"of the people and wrong about {_range(*worst.misled)}, on average over releases; the "
        f"exact table would reveal it for {words.brief_percent(worst.before)}."
    )
    method = (
        f"The ends come from {worst.draws:,} simulated releases, as if {source} were the truth, and "
        f"hold with a confidence of {words.percent(worst.confidence)}."
    )
    more = ["The table lists the attacks on all attributes; all ends hold together."][
        : len(attacks) - 1
    ]
    return Section(
        "published-homogeneity",
        "Groups that the published tables show with one value",
        (*([setting] if setting else []), sentence, words.sentences(method, *more)),
        (_table(attacks), simulation_table(worst.draws, worst.confidence)),
        figures={
            "level": worst.level,
            "draws": worst.draws,
            "confidence": worst.confidence,
            "attacks": [_figures(item) for item in attacks],
        },
        audience=worst.audience,
    )


def _range(low: float, high: float) -> str:
    """Return both ends of a share in percent, rounded outwards so that they still hold."""
    if high < 0.001:
        return "fewer than 1 in 1,000"
    upper = words.rounded_up(100 * high)
    if low < 0.001:
        return f"at most {upper} %"
    return f"{words.rounded_down(100 * low)} % to {upper} %"


def _ends(low: float, high: float) -> tuple[str, str]:
    """Return both ends of a share for a table, rounded as in the sentence."""
    return f"{words.rounded_down(100 * low)} %", f"{words.rounded_up(100 * high)} %"


def _table(attacks: Sequence[PublishedHomogeneity]) -> SectionTable:
    return SectionTable(
        "Shares of people whose value is revealed, and to whom a wrong value is attributed",
        (
            *("Attacked", "Known", "Exact table", "Revealed, at least", "Revealed, at most"),
            *("Misled, at least", "Misled, at most"),
        ),
        tuple(
            (
                item.sensitive,
                words.listed([item.level, *item.identifiers]),
                words.brief_percent(item.before),
                *_ends(item.lower, item.upper),
                *_ends(*item.misled),
            )
            for item in attacks
        ),
    )


def _figures(item: PublishedHomogeneity) -> dict[str, Any]:
    misled: Ends = item.misled
    return {
        "sensitive": item.sensitive,
        "identifiers": list(item.identifiers),
        "lower": item.lower,
        "upper": item.upper,
        "misled": {"lower": misled.lower, "upper": misled.upper},
        "before": item.before,
    }
