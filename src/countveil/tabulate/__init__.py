"""RECORDS → COUNTS: exact, confidential, sparse."""
