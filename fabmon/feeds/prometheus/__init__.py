"""A Prometheus-compatible engine as a feed: what it scrapes already, read by its query API."""
