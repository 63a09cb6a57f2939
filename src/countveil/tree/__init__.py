"""THE ONE TREE: what queries observe of the hierarchy, and messages up and down it.

In reading order: `tree_shape` says which units are alike; `attribute_parts`, `observed_levels` and
`subspaces` split the histogram into pieces that can be estimated on their own; `covariances` computes
what depends on the shape alone; `messages` carries one run of units up or down, and `tree_values` does
so for all of them, keeping rows in memory or on disk (`row_store`).
"""
