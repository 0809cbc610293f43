"""The bottleneck model: which link holds which senders, and why it is believed."""
