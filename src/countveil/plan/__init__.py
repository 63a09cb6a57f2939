"""WHAT IS COUNTED, AND FOR WHAT BUDGET: the plan file, attributes, places, queries, public facts."""
