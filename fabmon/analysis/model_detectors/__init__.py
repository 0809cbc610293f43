"""Four causes by the bottleneck model: in shadow of those in use, until they are better."""
