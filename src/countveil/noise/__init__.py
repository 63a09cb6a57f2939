"""NOISE: its laws, the mechanisms a plan can use, their prices, and exact samplers."""
