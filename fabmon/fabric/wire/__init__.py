"""What nodes send: decoding and checking the wire format."""
