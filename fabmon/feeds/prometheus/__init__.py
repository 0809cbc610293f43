"""The feed from a Prometheus-compatible server: its scraped metrics, read by the query API."""
