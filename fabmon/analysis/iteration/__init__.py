"""Iterations of training jobs, measured from byte counters alone."""
