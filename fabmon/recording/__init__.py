"""What was seen, kept: the file format (docs/recording.md), its writer and its reader."""
