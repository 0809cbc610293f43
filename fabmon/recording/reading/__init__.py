"""Opens and reads recordings."""
