"""The report page, its style and its script."""
