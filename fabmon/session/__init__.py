"""Puts a run together: hosts, topology, feed, history, analysis, recording and output."""
