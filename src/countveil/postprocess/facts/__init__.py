"""Public facts as bounds on families: read, added up the tree, checked for contradictions."""
