"""Counters into rates, and the last minutes of them."""
