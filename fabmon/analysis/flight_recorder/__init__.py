"""PyTorch's Flight Recorder: which collectives each rank had enqueued, started and completed."""
