"""The sections of a report, a lens each: computed once, shown everywhere."""
