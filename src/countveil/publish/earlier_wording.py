"""Sentences as earlier versions wrote them into release folders; `verify` accepts those too.

The facts around them are compared like any others. Words change with the version; a release does not.
"""

from __future__ import annotations

from countveil.congenial.guarantee.partial_privacy import PartialPrivacy, Theta


def earlier_codebook(markdown: str, unit: str, units: str) -> str:
    """Return a codebook with the introduction that earlier versions gave it."""
    title, _, _, *tables = markdown.split("\n\n")
    introduction = (
        f"Each table has one row per unit of each level, from the top down: the column `level` names "
        f"the level, `geocode` the unit, and the others are the variables below. All numbers are "
        f"estimates: noise was added to protect each {unit}, and then they were made consistent. A "
        f"line includes those below it that are indented further."
    )
    return "\n\n".join([title, introduction, f"Levels and their units: {units}.", *tables])


def earlier_guarantee(guarantee: PartialPrivacy) -> dict[str, str]:
    """Return the words of a guarantee as earlier manifests state them."""
    theta = guarantee.theta
    assumed, secrets = theta.identity or (theta.dependence, theta.secrets)
    low, high = guarantee.posterior_odds
    about = Theta(theta.public, assumed, secrets).sentence
    return {
        "assumed": assumed,
        "secrets": secrets,
        "sentence": f"Whoever sees the release changes his odds between the two secrets of a pair by "
        f"a factor from {low:.4g} to {high:.4g} (epsilon = {guarantee.epsilon_in_words}, beside public "
        f"information; this is not differential privacy). {about}",
    }
