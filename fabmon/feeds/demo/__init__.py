"""The demo feed: a fabric that is simulated, and the truth about what is wrong with it."""
