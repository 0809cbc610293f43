"""How steady bandwidth is: spread, steps, drift, and whether two runs differ."""
