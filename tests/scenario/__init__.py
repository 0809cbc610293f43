"""Simulated fabrics with what must be said of them, and nothing else."""
