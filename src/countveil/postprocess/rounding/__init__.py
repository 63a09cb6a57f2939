"""From fractions to integers: controlled rounding, which moves least, and unbiased rounding."""
