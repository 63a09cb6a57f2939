"""WHAT IT COSTS: exact costs and their conversions, privacy-loss distributions, the ledger."""
