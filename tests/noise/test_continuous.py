import json

import numpy as np
import pytest
from scipy import stats
from tests.conftest import GOLDEN

from countveil.errors import InputError
from countveil.noise.continuous import Gaussian, Laplace


def test_calibrated_gaussians_of_paper_004():
    values = {
        item["id"]: item["exact"]
        for item in json.loads((GOLDEN / "gaussian_calibration.json").read_text())
    }
    assert len(values) == 2
    for key, exact in values.items():
        epsilon, delta = key.removeprefix("drha.sigma.eps").split(".delta")
        for kind, sigma in zip(("DP", "pDP"), exact, strict=True):
            noise = Gaussian.calibrated(epsilon=float(epsilon), delta=float(delta), kind=kind)
            assert noise.sigma == pytest.approx(sigma, rel=1e-12)


def test_calibration_refuses_what_is_not_proved():
    with pytest.raises(InputError, match=r"proved up to 1 only; choose kind=\"pDP\""):
        Gaussian.calibrated(epsilon=2, delta=1e-3, kind="DP")
    with pytest.raises(InputError, match='choose "DP" or "pDP"'):
        Gaussian.calibrated(epsilon=0.5, delta=1e-3, kind="dp")
    with pytest.raises(InputError, match="between 0 and 1"):
        Gaussian.calibrated(epsilon=0.5, delta=0, kind="DP")


def test_laws_agree_with_scipy():
    x = np.linspace(-20, 20, 81)
    for ours, theirs in (
        (Laplace(0.7), stats.laplace(scale=1 / 0.7)),
        (Gaussian(1.3), stats.norm(scale=1.3)),
    ):
        assert ours.log_density(x) == pytest.approx(theirs.logpdf(x), rel=1e-12)
        assert ours.survival(x) == pytest.approx(theirs.sf(x), rel=1e-12)
        assert ours.variance == pytest.approx(theirs.var())
