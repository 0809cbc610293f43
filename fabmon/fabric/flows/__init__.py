"""Queue pairs, and the flows between hosts that they form."""
