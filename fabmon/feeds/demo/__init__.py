"""The demo feed: a simulated fabric, with the list of faults that it contains."""
