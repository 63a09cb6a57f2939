"""The explorer's page, its style and its script."""
