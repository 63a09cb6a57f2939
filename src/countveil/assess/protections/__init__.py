"""Protections other than noise, as seeded reference implementations to compare a plan with."""
