"""Transports: how a node is reached or polled, one module for each `via` of the hosts file."""
