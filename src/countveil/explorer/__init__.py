"""The explorer: a page on this machine where a plan's risk, error and cost move with its settings."""
