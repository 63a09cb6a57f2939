"""The door for means and regressions: once, charged, refused where it cannot be drawn."""

import json
from fractions import Fraction

import numpy as np
import pytest
from tests.conftest import parts_of

from countveil import Ledger, Secure, Seeded, measure
from countveil.congenial import KNormGradient, Theta
from countveil.errors import FolderError, InputError, Interrupted, LedgerError, VerificationError
from countveil.measure import one_estimate
from countveil.measure.parts import Parts

THETA = Theta(("how many people there are",), "people are independent", "one person's number")
MEAN = KNormGradient("mean", epsilon="1", bounds=[(0, 1)], box=[(0, 1)], points=101)
DATA = np.linspace(0.2, 0.8, 400).round(3)


def drawn(folder, *, data=DATA, mechanism=MEAN, rng=None):
    ledger = Ledger(
        folder / "ledger.sqlite", "d", "person", "change-one", None, beside_public=Fraction(1)
    )
    return measure.draw_estimate(
        mechanism,
        data,
        title="A mean",
        theta=THETA,
        coupling="one record replaced",
        rng=rng or Secure(),
        ledger=None if rng else ledger,
        to=folder / "out",
    )


def test_a_mean_is_drawn_charged_and_read_back(tmp_path):
    found = drawn(tmp_path)
    assert found.shape == (1,)
    assert abs(found[0] - 0.5) < 0.2
    assert np.array_equal(measure.read_estimate(tmp_path / "out"), found)
    assert np.array_equal(drawn(tmp_path), found)
    document = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert document["guarantee"]["epsilon"] == "1"
    assert document["publishable"]
    assert "0.237" not in (tmp_path / "out" / "manifest.json").read_text()


def test_it_is_charged_once_along_its_coupling(tmp_path):
    drawn(tmp_path)
    (tmp_path / "other").mkdir()
    ledger = Ledger(
        tmp_path / "ledger.sqlite", "d", "person", "change-one", None, beside_public=Fraction(1)
    )
    assert len(ledger.charges()) == 1
    with pytest.raises(LedgerError, match="only 0 is left"):
        measure.draw_estimate(
            MEAN,
            DATA,
            title="Again",
            theta=THETA,
            coupling="one record replaced",
            rng=Secure(),
            ledger=ledger,
            to=tmp_path / "again",
        )
    assert not (tmp_path / "again-internal").exists()


def test_a_crash_keeps_the_draw(tmp_path, monkeypatch):
    real = one_estimate.storage.make_folder

    def full(path, *rest):
        if path.name == "out":
            raise OSError(28, "No space left on device")
        real(path, *rest)

    monkeypatch.setattr(one_estimate.storage, "make_folder", full)
    with pytest.raises(Interrupted):
        drawn(tmp_path)
    kept = json.loads(Parts(parts_of(tmp_path / "out")).read("estimate", 0))
    monkeypatch.undo()
    assert drawn(tmp_path).tolist() == kept


def test_other_data_or_another_mechanism_are_another_release(tmp_path):
    drawn(tmp_path)
    with pytest.raises(FolderError, match="other records"):
        drawn(tmp_path, data=DATA[::-1].copy() * 0.5)
    finer = KNormGradient("mean", epsilon="1", bounds=[(0, 1)], box=[(0, 1)], points=201)
    with pytest.raises(FolderError, match="another plan"):
        drawn(tmp_path, mechanism=finer)


def test_data_outside_the_bounds_charge_nothing(tmp_path):
    with pytest.raises(InputError, match="outside the bounds"):
        drawn(tmp_path, data=DATA + 1)
    assert not (tmp_path / "ledger.sqlite").exists()
    assert not (tmp_path / "out-internal").exists()


def test_a_real_release_needs_a_ledger_and_a_changed_one_is_refused(tmp_path):
    with pytest.raises(InputError, match="ledger: missing; a release is charged to one"):
        measure.draw_estimate(
            MEAN, DATA, title="t", theta=THETA, coupling="c", rng=Secure(), ledger=None, to=tmp_path
        )
    drawn(tmp_path, rng=Seeded(3))
    (tmp_path / "out" / "estimate.json").write_text("[0.5]\n")
    with pytest.raises(VerificationError, match="changed since"):
        measure.read_estimate(tmp_path / "out")
    with pytest.raises(VerificationError, match="not a finished estimate"):
        measure.read_estimate(tmp_path / "nothing")
