"""What is printed: a table, JSON lines."""
