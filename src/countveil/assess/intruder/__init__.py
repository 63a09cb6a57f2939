"""The Bayesian intruder: what they know, what they see, what they conclude.

In reading order. What they know: `prior_knowledge`; how they decide: `decision`. One noisy count:
`one_level`, and `combined_loss` for several. The same cell at every level: `several_levels`;
`composition` for several releases. A whole plan: `attacks` on `targets`, and `whole_release` for all
levels; `ladder` and `summary` for readers. `assess.published` attacks the published tables.
"""
