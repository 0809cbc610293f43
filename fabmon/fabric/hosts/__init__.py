"""The hosts file: node sets, keys and how to reach each node."""
