"""The error of released counts, by releasing them again: replicates, their errors and intervals."""
