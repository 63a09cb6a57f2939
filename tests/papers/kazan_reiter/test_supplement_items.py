"""The supplement's illustration of post-processing, with the other way to round halves."""

import pytest

from countveil import DiscreteGaussian, Intruder, assess
from countveil.papers.kazan_reiter import illustrated_risk


def test_the_illustration_of_post_processing_rounds_halves_up_too(truth):
    noise = DiscreteGaussian.from_rho("1666368/16793603")
    level = assess.Level(noise, 27)
    checked = 0
    for key, item in truth.items():
        if key.startswith("s6_R_x"):
            up = float(item["note"].split("half up: ")[1].split(")")[0])
            value = illustrated_risk(
                level,
                released_parent=int(key[6:]),
                parent=1,
                intruder=Intruder(prior=0.5),
                rounding="half up",
            ).value
            assert value == pytest.approx(up, abs=6e-7)
            checked += 1
    assert checked == 10
    # Not bounded by the risk of X1* alone, as the supplement says, but by that of X1* and Y1*.
    alone, at_200, joint = (truth[f"s6_{key}"]["exact"] for key in ("nopp", "R_x200", "joint"))
    assert alone < at_200 < joint
