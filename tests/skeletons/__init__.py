"""Skeletons of what is added often."""
