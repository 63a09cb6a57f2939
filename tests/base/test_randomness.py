import multiprocessing
import os
import pickle

import numpy as np
import pytest

from countveil.base.randomness import Secure, Seeded
from countveil.errors import InputError
from countveil.noise.discrete_gaussian import DiscreteGaussian

NOISE = DiscreteGaussian("5")


def test_secure_bits_are_keyed_from_the_operating_system(monkeypatch):
    asked = []
    monkeypatch.setattr(os, "urandom", lambda n: asked.append(n) or bytes(n))
    first, second = Secure().begin(64), Secure().begin(64)
    assert asked == [32, 16, 32, 16]
    assert (first == second).all(), "with the same key the cipher is deterministic"


def test_secure_sources_never_repeat_each_other():
    draws = [Secure().begin(1000).tobytes() for _ in range(4)]
    assert len(set(draws)) == 4


def test_a_forked_child_takes_a_new_key():
    rng = Secure()
    rng.begin(8)
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    children = [
        context.Process(target=lambda: queue.put(rng.begin(1000).tobytes())) for _ in range(2)
    ]
    for child in children:
        child.start()
    seen = {queue.get(), queue.get(), rng.begin(1000).tobytes()}
    for child in children:
        child.join()
    assert len(seen) == 3


def test_a_pickled_copy_has_its_own_key():
    rng = Secure()
    copy = pickle.loads(pickle.dumps(rng))
    assert rng.begin(100).tobytes() != copy.begin(100).tobytes()


def test_secure_bits_are_uniform():
    words = Secure().begin(4_000_000)
    counts = np.bincount(words, minlength=65536)
    chi2 = ((counts - counts.mean()) ** 2 / counts.mean()).sum()
    assert abs(chi2 - 65535) < 6 * np.sqrt(2 * 65535)


def test_seeded_streams_do_not_depend_on_batching():
    codes = [f"B{i}" for i in range(50)]
    rng = Seeded(7)
    whole = NOISE.sample(50 * 400, rng=rng.for_units("block", codes, "Q")).reshape(50, 400)
    for some in ([0], [3, 4], [49, 7, 21]):
        part = NOISE.sample(
            len(some) * 400, rng=rng.for_units("block", [codes[i] for i in some], "Q")
        )
        assert (part.reshape(len(some), 400) == whole[some]).all()


def test_seeded_streams_differ_by_seed_level_unit_query_and_call():
    base = Seeded(7).for_unit("block", "B1", "Q")
    draws = [
        base.begin(100),
        base.begin(100),
        Seeded(8).for_unit("block", "B1", "Q").begin(100),
        Seeded(7).for_unit("tract", "B1", "Q").begin(100),
        Seeded(7).for_unit("block", "B2", "Q").begin(100),
        Seeded(7).for_unit("block", "B1", "R").begin(100),
        Seeded(7).begin(100),
    ]
    assert len({draw.tobytes() for draw in draws}) == 7


def test_seeded_draws_stay_the_same_from_version_to_version():
    values = DiscreteGaussian("100").sample(8, rng=Seeded(7))
    assert values.tolist() == KNOWN


KNOWN = [-1, 5, -2, -2, 9, -7, -7, 1]


def test_seeded_deeper_bits_belong_to_their_draw():
    rng = Seeded(3)
    rng.begin(1000)
    all_ = rng.deepen(np.arange(1000), 0)
    assert (rng.deepen(np.array([7, 500]), 0) == all_[[7, 500]]).all()
    assert not (rng.deepen(np.arange(1000), 1) == all_).any()


def test_units_must_share_draws_evenly():
    with pytest.raises(InputError, match="7 draws cannot be split evenly among 2 units"):
        Seeded(1).for_units("l", ["a", "b"], "q").begin(7)


@pytest.mark.parametrize("bad", [1.5, "7", True, None])
def test_a_seed_is_a_whole_number(bad):
    with pytest.raises(InputError, match="not a whole number"):
        Seeded(bad)
