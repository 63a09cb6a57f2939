"""WHAT PEOPLE SEE: results turned into tables and sentences; nothing is computed here."""
