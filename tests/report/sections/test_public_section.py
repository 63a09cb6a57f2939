"""What is guaranteed given public totals: every row by hand."""

from fractions import Fraction

from tests.report import hand_plan
from tests.report import sections_of_hand as made
from tests.report.reading import table_rows


def test_what_remains_beside_public_counts(settled):
    """Where another must make up for a change, four people's rows differ: rho is 16 times as large."""
    section = made.public(settled)
    rows = {row["Secret"]: row for row in table_rows(section, "What is protected")}
    assert section.sentences[0] == ("Public: TOTAL of every area, exactly (known).")
    moved = rows["in which area a person is counted"]
    assert moved["People who must differ"] == 1 + hand_plan.ROWS
    assert moved["Guarantee"].startswith(f"rho = {Fraction(9, 10) * 16}")
    assert rows["SEX of a person"]["People who must differ"] == 1
    assert rows["SEX of a person"]["Guarantee"].startswith("rho = 9/10")
    assert {row["Odds, at most"] for row in rows.values()} == {"no bound"}


def test_nothing_public_is_said_to_be_nothing(hand):
    assert made.public(hand).sentences[0] == "Public: nothing."
