"""Variability of bandwidth: spread, steps, drift, and whether two runs differ."""
