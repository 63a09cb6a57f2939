"""WHAT IT COSTS: exact costs, their conversions, the privacy-loss distribution, the ledger."""
