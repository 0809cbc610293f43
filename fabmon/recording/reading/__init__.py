"""Reading recordings: ticks, states, tiers and notes of one file or of several."""
