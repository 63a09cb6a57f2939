"""The page of the gallery and its style."""
