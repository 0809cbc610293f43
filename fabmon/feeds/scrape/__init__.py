"""Metrics that others export: their text decoded, and what of it the catalog has."""
