"""THE FIVE PAPERS, REPRODUCED: every table and figure by the public API, next to what is printed."""

from countveil.papers.catalogue import items, reproduce
from countveil.papers.item import Entry, Item, ItemChart, ReferenceLine, Value

__all__ = ["Entry", "Item", "ItemChart", "ReferenceLine", "Value", "items", "reproduce"]
