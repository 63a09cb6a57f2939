"""The same cell at every level: `hierarchy`, described by `hierarchy_level`.

It is solved by `two_levels` or `many_levels`, both with `count_chain` and `lowest_count`; `near_ties`
decides where doubles cannot. `paper_sampler` reproduces a paper.
"""
