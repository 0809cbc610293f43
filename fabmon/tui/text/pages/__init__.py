"""The text of each screen."""
