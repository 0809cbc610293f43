"""NCCL's RAS: which versions may be asked, and what they answer."""
