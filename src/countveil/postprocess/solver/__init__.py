"""Non-negative weighted least squares for one family, exact, with fixed sums and other bounds."""
