"""What NCCL Inspector measured of collectives: read from its files, here and on the nodes."""
