"""Kazan and Reiter (papers 002 and 000): the Bayesian intruder and the 2020 census."""

from countveil.papers.kazan_reiter.supplement_items import illustrated_risk

__all__ = ["illustrated_risk"]
