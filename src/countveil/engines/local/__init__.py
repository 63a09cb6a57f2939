"""On one machine: records opened in DuckDB, queries checked before they run, and counted."""
