"""Where ticks come from."""
