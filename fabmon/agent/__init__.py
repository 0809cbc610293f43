"""The agent: a node's counters over HTTP, for consoles (`/stream`) and Prometheus (`/metrics`)."""
