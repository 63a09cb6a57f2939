"""Sums of discrete Gaussian noise: Figures 7 and 8 of paper 002, Figures 2 and 3 of its supplement."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from countveil import DiscreteGaussian
from countveil.assess.summed_noise import SummedNoise
from countveil.papers.curves import evaluated, long, spaced
from countveil.papers.item import Content, Entry, Picture, Setting, Value


def figure_7(_: Setting) -> Content:
    """Draw the variance of discrete Gaussian noise against its scale."""
    half = Fraction(1, 2)
    off = float(half) - DiscreteGaussian(half).variance
    values = (Value("var_s.5", "scale minus variance at scale 1/2", "<0.002", off),)
    return Content(values, (_variance(),), f"Above 1/2 the gap is at most {off:.5f}.")


def figure_8(_: Setting) -> Content:
    """Draw sums of discrete Gaussian noise beside the discrete Gaussian of the summed scale."""
    values = tuple(
        Value(
            f"conv_tv_rho{rho}_n{count}",
            f"distance in total variation, rho = {rho}, n = {count}",
            None,
            _distance(rho, count),
        )
        for rho in ("0.099", "1")
        for count in (5, 27)
    )
    return Content(values, _sums(), "The approximation is as good as the paper says.")


def supplement_figure_2(_: Setting) -> Content:
    """Draw the variance again, with what the supplement says of it."""
    off = 1 - DiscreteGaussian(1).variance
    values = (Value("var_s1", "scale minus variance at scale 1", "<1e-6", off),)
    return Content(values, (_variance(),), "The same as Figure 7 of paper 002.")


def supplement_figure_3(_: Setting) -> Content:
    """Draw the sums again."""
    note = "The same as Figure 8 of paper 002, which has the distances."
    return Content(pictures=_sums(), note=note)


def _variance() -> Picture:
    """Return variance against scale, and the line on which they are equal."""
    of = {
        "variance": lambda s: DiscreteGaussian(Fraction(s)).variance,
        "equal to the scale": lambda s: s,
    }
    return Picture(
        "variance against scale",
        "lines",
        evaluated("scale", "variance", "line", spaced(0.05, 10, 60), of),
        "scale",
        "variance",
        "line",
        "scale, 1/(2 rho)",
        "variance",
        True,
        True,
    )


def _sums() -> tuple[Picture, ...]:
    """Return the two laws of a sum, for two rho and two numbers of summands."""
    pictures = []
    for rho in ("0.099", "1"):
        for count in (27, 5):
            noise = DiscreteGaussian.from_rho(rho)
            laws = {
                "the sum": SummedNoise(noise, count),
                "discrete Gaussian": SummedNoise(noise, count, "gaussian"),
            }
            reach = math.ceil(3 * math.sqrt(count * noise.variance))
            rows = [
                (k, math.exp(float(law.log_pmf(np.array(k)))), name)
                for name, law in laws.items()
                for k in range(-reach, reach + 1)
            ]
            title = f"sum of {count} draws, rho = {rho}"
            table = long("sum", "probability", "law", rows)
            pictures.append(
                Picture(title, "points", table, "sum", "probability", "law", "sum", "probability")
            )
    return tuple(pictures)


def _distance(rho: str, count: int) -> float:
    """Return how far a sum is from the discrete Gaussian, by adding draws one by one."""
    noise, k = DiscreteGaussian.from_rho(rho), np.arange(-60, 61)
    added = np.ones(1)
    for _ in range(count):
        added = np.convolve(added, np.exp(noise.log_pmf(k)))
    at = np.arange(len(added)) - len(added) // 2
    gaussian = np.exp(SummedNoise(noise, count, "gaussian").log_pmf(at))
    return float(np.abs(added - gaussian).sum() / 2)


ENTRIES = (
    Entry("002", "Figure 7", "Variance of the noise against its scale", figure_7),
    Entry("002", "Figure 8", "Sums of noise", figure_8),
    Entry("000", "Figure 2", "Variance of the noise against its scale", supplement_figure_2),
    Entry("000", "Figure 3", "Sums of noise", supplement_figure_3),
)
