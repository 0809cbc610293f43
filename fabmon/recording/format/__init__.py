"""The on-disk format: frames, sections, blocks of counters, minutes and JSON records."""
