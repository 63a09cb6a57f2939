"""Posteriors of rates and shares, given a table that agrees with public totals."""
