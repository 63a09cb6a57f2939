"""How charts look and speak: colours and labels that are told apart, numbers in words."""

from itertools import combinations

import numpy as np
from tests.report.chart_cases import PRIORS, drawn

from countveil.base import words
from countveil.report.charts import theme


def test_colours_dashes_and_shapes_differ():
    for items in (theme.COLOURS, theme.DASHES, theme.SHAPES):
        assert len(set(items)) == len(items) == theme.MOST_SERIES
    svg = drawn("risk by rho").svg()
    for number in range(len(PRIORS)):
        assert theme.COLOURS[number] in svg
        if number:
            assert f'stroke-dasharray="{",".join(map(str, theme.DASHES[number]))}"' in svg


def _linear(colour):
    value = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)


def test_colour_blind_readers_can_distinguish_the_colours():
    # Machado, Oliveira & Fernandes (2009), severity 1.
    sights = {
        "all": np.eye(3),
        "deutan": [
            [0.367322, 0.860646, -0.227968],
            [0.280085, 0.672501, 0.047413],
            [-0.01182, 0.04294, 0.968881],
        ],
        "protan": [
            [0.152286, 1.052583, -0.204868],
            [0.114503, 0.786281, 0.099216],
            [-0.003882, -0.048116, 1.051998],
        ],
    }
    weights = np.array([0.2126, 0.7152, 0.0722])
    for colour in (*theme.COLOURS, theme.FAINT, theme.INK, theme.INTERNAL_COLOUR):
        contrast = 1.05 / (weights @ _linear(colour) + 0.05)
        assert contrast >= (3 if colour in theme.COLOURS else 4.5)
    # Four series are told apart by colour alone; beyond, dash and shape are needed.
    for sight in sights.values():
        for one, other in combinations(theme.COLOURS[:4], 2):
            seen = [np.clip(np.array(sight) @ _linear(c), 0, 1) ** (1 / 2.2) for c in (one, other)]
            assert np.linalg.norm(seen[0] - seen[1]) > 0.15


def test_words():
    assert words.number(1234.5) == "1,234"
    assert words.number(12) == "12"
    assert words.number(0.012341) == "0.01234"
    assert words.percent(0.02) == "2 %"
    assert words.percent(0.9995) == "99.95 %"
    assert words.figure(0.1 + 0.2) == "0.3"
    assert words.figure(0.3004) == "0.30"
    assert words.figure(0.1249) == "0.12"
    assert words.figure(0.02) == "0.02"
    assert words.figure(12.34) == "12"
    assert words.figure(12345.6) == "12,346"
    assert words.percent(1.0) == "100 %"
    assert words.upwards(17.151) == "17.16"
    assert words.listed(["a", "b", "c"]) == "a, b and c"


def test_labels_keep_their_distance():
    moved = theme.move_apart([0.5, 0.5, 0.51, 0.9], 0.1, 0.0, 1.0)
    assert np.diff(sorted(moved)).min() >= 0.1 - 1e-12
    assert max(theme.move_apart([1.0, 1.0, 1.0], 0.1, 0.0, 1.0)) <= 1.0
    assert theme.move_apart([0.1, 0.9], 0.1, 0.0, 1.0) == [0.1, 0.9]
