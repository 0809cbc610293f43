"""Fluctuation: from counters to the answer."""
