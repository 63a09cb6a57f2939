"""The reading of a homogeneity attack, against one cell at a time."""

import numpy as np
import pytest

from countveil.assess.homogeneity.single_values import read_tables


@pytest.mark.parametrize(("values", "groups"), [(2, 1), (3, 2), (5, 4)])
def test_tables_are_read_cell_by_cell(values, groups):
    rng = np.random.default_rng(values)
    exact = rng.poisson(0.5, (6, groups * values))
    shown = rng.poisson(0.4, (40, 6, groups * values))
    found = read_tables(exact, shown, values)
    for number in range(len(shown)):
        right = wrong = cells_right = cells_wrong = 0
        for truth, table in zip(
            exact.reshape(-1, values).tolist(),
            shown[number].reshape(-1, values).tolist(),
            strict=True,
        ):
            named = [value for value, count in enumerate(table) if count]
            if len(named) == 1 and sum(truth):
                right += truth[named[0]]
                wrong += sum(truth) - truth[named[0]]
                cells_right += truth[named[0]] > 0
                cells_wrong += truth[named[0]] == 0
        assert [int(item[number]) for item in found] == [right, wrong, cells_right, cells_wrong]
    assert found.cells_wrong.any()
    assert found.wrong.any()
