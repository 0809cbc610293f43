"""Helpers of the sources: parsers of kernel and tool formats, and base classes of sources."""
