"""The findings on packet-level scenes: counters that a simulator of packets made, and the truth."""
