"""Proof too heavy for the tests: `python -m benchmarks` lists what can be run."""
