"""Time travel: the cursor, playback, and navigation between events."""
