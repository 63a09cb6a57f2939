"""NOISE AND ITS LAW: how noise is distributed, what it costs, how it is drawn exactly."""
