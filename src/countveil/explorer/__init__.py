"""The explorer: a local page on which a plan's risk, error and cost follow its settings."""
