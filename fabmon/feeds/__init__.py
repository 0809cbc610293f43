"""Feeds: live nodes, Prometheus, recordings and the demo, each an async iterator of ticks."""
