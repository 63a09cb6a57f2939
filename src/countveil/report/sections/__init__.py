"""The sections of a report, one per lens: computed once, shown everywhere."""
