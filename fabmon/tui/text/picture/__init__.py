"""What a finding looks like: one file a kind of picture."""
