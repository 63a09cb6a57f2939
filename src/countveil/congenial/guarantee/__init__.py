"""The promise that holds next to public information, and what it means."""
