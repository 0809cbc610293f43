"""Writing recordings: the recorder thread, rotation, and copies of a range of time."""
