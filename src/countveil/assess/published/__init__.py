"""What the published tables reveal, as opposed to the measurements behind them.

`two_databases` releases two databases that differ in one person many times, with the real
post-processing (`many_releases`). `tables_risk` is how much a Bayesian intruder learns from the tables:
what they conclude is learned (`learned_posterior`) and tested on other releases (`bounded_mean`).
`unknown_siblings` sums over people whom they do not know. `tables_loss` is the epsilon of tables, and
`tables_homogeneity` the share of people whom the homogeneity attack on them reveals.
"""
