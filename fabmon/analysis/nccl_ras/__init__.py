"""NCCL's RAS: which versions may be asked, what they answer, and what follows from an answer."""
