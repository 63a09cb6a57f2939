"""Sums of discrete Gaussian noise: Figures 7 and 8 of paper 002, Figures 2 and 3 of its supplement."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from countveil.noise.discrete_gaussian import DiscreteGaussian
from countveil.noise.summed_noise import SummedNoise
from countveil.papers.curves import evaluate_curves, log_spaced, long_table
from countveil.papers.item import Content, ItemChart, Setting, Value


def figure_7(_: Setting) -> Content:
    """Draw the variance of discrete Gaussian noise against its scale."""
    half = Fraction(1, 2)
    gap = float(half) - DiscreteGaussian(half).variance
    values = (Value("var_s.5", "scale minus variance at scale 1/2", "<0.002", gap),)
    return Content(values, (_variance(),), f"Above 1/2 the gap is at most {gap:.5f}.")


def figure_8(_: Setting) -> Content:
    """Draw sums of discrete Gaussian noise, and the discrete Gaussian of the summed scale."""
    values = tuple(
        Value(
            f"conv_tv_rho{rho}_n{count}",
            f"total variation distance, rho = {rho}, n = {count}",
            None,
            _distance(rho, count),
        )
        for rho in ("0.099", "1")
        for count in (5, 27)
    )
    return Content(values, _sums(), "The approximation is as good as the paper says.")


def figure_s2(_: Setting) -> Content:
    """Draw the variance again, with what the supplement says about it."""
    gap = 1 - DiscreteGaussian(1).variance
    values = (Value("var_s1", "scale minus variance at scale 1", "<1e-6", gap),)
    return Content(values, (_variance(),), "The same as Figure 7 of paper 002.")


def figure_s3(_: Setting) -> Content:
    """Draw the sums again."""
    note = "The same as Figure 8 of paper 002, which has the distances."
    return Content(charts=_sums(), note=note)


def _variance() -> ItemChart:
    """Draw the variance against the scale, and the line where they are equal."""
    of = {
        "variance": lambda s: DiscreteGaussian(Fraction(s)).variance,
        "equal to the scale": lambda s: s,
    }
    return ItemChart(
        "variance against scale",
        "lines",
        evaluate_curves("scale", "variance", "line", log_spaced(0.05, 10, 60), of),
        "scale",
        "variance",
        "line",
        "scale, 1/(2 rho)",
        "variance",
        True,
        True,
    )


def _sums() -> tuple[ItemChart, ...]:
    """Draw the two laws of a sum, for two values of rho and two numbers of summands."""
    charts = []
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
            table = long_table("sum", "probability", "law", rows)
            charts.append(
                ItemChart(title, "points", table, "sum", "probability", "law", "sum", "probability")
            )
    return tuple(charts)


def _distance(rho: str, count: int) -> float:
    """Return the distance of a sum from the discrete Gaussian, by adding draws one by one."""
    noise, k = DiscreteGaussian.from_rho(rho), np.arange(-60, 61)
    law = np.ones(1)
    for _ in range(count):
        law = np.convolve(law, np.exp(noise.log_pmf(k)))
    at = np.arange(len(law)) - len(law) // 2
    gaussian = np.exp(SummedNoise(noise, count, "gaussian").log_pmf(at))
    return float(np.abs(law - gaussian).sum() / 2)
