"""Checks too heavy for the tests: `python -m benchmarks` lists them."""
