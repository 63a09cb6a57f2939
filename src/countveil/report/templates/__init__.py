"""The page and its style and script."""
