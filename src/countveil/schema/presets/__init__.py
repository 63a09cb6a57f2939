"""Plans to start from: each preset is a plan file without records."""
