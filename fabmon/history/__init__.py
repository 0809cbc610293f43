"""Counters become rates, and the last minutes of them are kept."""
