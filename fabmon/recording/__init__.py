"""Recordings: the file format (docs/recording.md), the writer and the reader."""
