"""The bytes of a recording: frames, blocks, columns and records."""
