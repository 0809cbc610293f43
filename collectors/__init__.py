"""The node half of fabmon: reads counters on the machine that it runs on."""

__version__ = "0.1.0"
