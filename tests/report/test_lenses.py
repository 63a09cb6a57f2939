"""What the sentences of all lenses share."""

import re

from tests.report import sections_of_hand as made


def test_no_sentence_of_a_lens_has_a_wrong_article(hand, settled):
    for release in (hand, settled):
        plan = release.plan
        for section in (
            made.error(plan),
            made.loss(plan),
            made.homogeneity(plan),
            made.public(release),
        ):
            text = " ".join(
                [*section.sentences, *(p.caption + p.alt for p in section.charts)]
                + [item.caption for item in section.tables]
            )
            assert not re.findall(r"\ba [aeio]\w+", text)
            assert not re.findall(r"\ban [^aeioAEIO]\w+", text)
