"""Faults: each changes one thing in the model for some time, and says what is then true."""
