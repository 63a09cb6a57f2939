"""THE FIVE PAPERS, REPRODUCED: every table and figure by the public API, beside what is printed."""

from countveil.papers.catalogue import items, reproduce
from countveil.papers.item import Entry, Item, Picture, Rule, Value

__all__ = ["Entry", "Item", "Picture", "Rule", "Value", "items", "reproduce"]
