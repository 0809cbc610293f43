"""The job: a few steps of data-parallel training, under torchrun or mpirun; torch, numpy, tqdm.

The environment says what goes wrong in it, in which rank and at which step (`tests.corpus.faults`);
each rank writes its pid into a file, so that others can break it.
"""

from __future__ import annotations

import os
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from tqdm import tqdm

for theirs, ours in (("RANK", "RANK"), ("SIZE", "WORLD_SIZE")):
    if f"OMPI_COMM_WORLD_{theirs}" in os.environ:
        os.environ[ours] = os.environ[f"OMPI_COMM_WORLD_{theirs}"]
RANK = int(os.environ["RANK"])
STEPS = int(os.environ["JOB_STEPS"])
PACE_S = 0.2
ASLEEP_S = 600.0


def is_due(fault: str, step: int) -> bool:
    """Whether this rank has the fault now."""
    wanted = os.environ.get("JOB_FAULT"), os.environ.get("JOB_RANK"), os.environ.get("JOB_STEP")
    return wanted == (fault, str(RANK), str(step))


class Samples:
    """Random batches; a read may take long, or fail."""

    def __len__(self) -> int:
        """One for each step."""
        return STEPS

    def __getitem__(self, step: int) -> torch.Tensor:
        """The batch of a step."""
        time.sleep(PACE_S)
        if is_due("asleep", step):
            time.sleep(ASLEEP_S)
        if is_due("unreadable", step):
            raise OSError(5, "Input/output error", f"/data/shard-{RANK:05d}.tar")
        return torch.randn(8, 64)


def main() -> None:
    """Train; rank 0 reports."""
    Path(os.environ["JOB_PIDS"], str(RANK)).write_text(str(os.getpid()))
    if is_due("late", 0):
        time.sleep(ASLEEP_S)
    dist.init_process_group("gloo", timeout=timedelta(seconds=float(os.environ["JOB_TIMEOUT_S"])))
    check = os.environ.get("JOB_CHECK")
    model: torch.nn.Module = torch.nn.Linear(64, 64)
    if check != "detail":  # With which 2.13 of this model ends by SIGSEGV.
        model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    bar = os.environ.get("JOB_PROGRESS") == "1" and RANK == 0
    for step, batch in enumerate(
        tqdm(DataLoader(Samples(), None), "train", STEPS, disable=not bar)
    ):
        if check == "barrier":
            dist.monitored_barrier()
        if is_due("mismatch", step):
            dist.all_reduce(torch.zeros(3))
        loss = model(batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        if check == "detail":
            for each in model.parameters():
                dist.all_reduce(each.grad)
        optimizer.step()
        if RANK == 0 and not bar:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
        Path(os.environ["JOB_PIDS"], "step").write_text(str(step))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
