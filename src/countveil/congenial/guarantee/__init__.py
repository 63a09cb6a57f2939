"""The promise that holds given public information, and what it means."""
