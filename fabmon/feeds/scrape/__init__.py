"""Pages of Prometheus exporters: text format, mapping to the catalog, values."""
