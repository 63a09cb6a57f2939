"""List all databases of a small unit, and all numbers about them from definitions alone."""

from itertools import combinations_with_replacement

import numpy as np


def databases(masks, cells, answers, people):
    """Return every histogram of `people` in `cells` whose lines have the given counts."""
    every = []
    for places in combinations_with_replacement(range(cells), people):
        histogram = np.bincount(np.array(places, int), minlength=cells)
        sums = [int(sum(histogram[c] for c in range(cells) if mask >> c & 1)) for mask in masks]
        if sums == list(answers):
            every.append(histogram)
    return np.array(every).reshape(-1, cells)


def widest(every):
    return int((every.max(axis=0) - every.min(axis=0)).max())


def certain(every):
    return int(every.min(axis=0).sum())


def differing(every, known):
    return np.abs(every - known).sum(axis=1).max() / 2
