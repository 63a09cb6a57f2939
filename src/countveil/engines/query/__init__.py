"""A query in [records], judged before it runs: it only reads, and each person's rows stand alone."""

from countveil.engines.query.accepted import accept

__all__ = ["accept"]
