"""SOMETHING TO TRY: the starter plan and a synthetic population."""
