"""WHAT PEOPLE SEE: results turned into sections, charts, pages and terminal output."""
