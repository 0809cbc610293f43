"""Readers of kernel interfaces and tool output; the sources use them."""
