"""THE FIVE PAPERS, REPRODUCED: every table and figure by the public API, next to what is printed.

They are cited by number: 000 and 002 Kazan & Reiter, 001 Petti & Flaxman, 003 Seeman, Reimherr &
Slavkovic, 004 Liu & Zhao.
"""

from countveil.papers.catalogue import items, reproduce
from countveil.papers.item import Entry, Item, ItemChart, ReferenceLine, Value

__all__ = ["Entry", "Item", "ItemChart", "ReferenceLine", "Value", "items", "reproduce"]
