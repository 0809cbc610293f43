"""fabmon: a live terminal view of a GPU cluster's fabric."""

__version__ = "0.1.0"
