"""Mechanisms that draw, exactly, tables that agree with public totals."""
