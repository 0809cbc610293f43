"""Logs of training jobs: what NCCL, PyTorch and nccl-tests write, and which ports it is about."""
