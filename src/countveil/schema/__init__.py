"""WHAT IS COUNTED: attributes, places, queries, and the plan file that names them."""
