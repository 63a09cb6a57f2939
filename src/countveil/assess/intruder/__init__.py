"""The Bayesian intruder: what they know, what they see, what they conclude."""
