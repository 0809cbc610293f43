"""Arithmetic of data-parallel training: the traffic and the operations of one step.

Traffic. GPUs are numbered as in Megatron-LM: tensor-parallel ranks first, then data-parallel ranks,
then pipeline stages, so that a node holds whole tensor-parallel groups and, with what is left of
it, several ranks of one data-parallel group. NCCL reduces among these over NVLink; between nodes
each rail carries an equal part. For a payload P (a gradient for every parameter of a GPU) and n
nodes that hold a group, a node sends for that group:

    all-reduce, ring or tree    2(n-1)/n P     (NVIDIA nccl-tests, doc/PERFORMANCE.md)
    FSDP, ZeRO stage 3          3(n-1)/n P     all-gather forward, all-gather backward and
                                               reduce-scatter (Rajbhandari et al. 2020, section 7)
    SHARP                       P              once up; the switches reduce, and the result comes
                                               down once (NVIDIA SHARP, in-network reduction)

Operations. A step of a dense transformer takes 6 N + 12 L h s floating-point operations for each
token: N parameters, L layers of width h, sequences of s tokens (Chowdhery et al. 2022, PaLM,
appendix B). Recomputed activations do not count.
"""

from __future__ import annotations

import math

import msgspec

DELIVERED = 0.8
"""Share of line rate that a healthy network delivers to collectives."""

BACKWARD_SHARE = 2 / 3
"""Share of computing in the backward pass, which has twice the operations of the forward pass
(Kaplan et al. 2020, section 2.1). Gradients exist only from then on."""

DTYPE_BYTES = {"fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2, "fp8": 1}

PEAK_TFLOPS = {
    "A100": 312.0,
    "H100": 989.0,
    "H200": 989.0,
    "B200": 2250.0,
    "GB200": 2500.0,
    "MI250X": 383.0,
    "MI300X": 1307.0,
    "MI325X": 1307.0,
}
"""Dense BF16 peak of a GPU, 10^12 operations a second, from the vendors' data sheets; of the SXM
and OAM modules."""

_WIDTH_PER_LAYER = 128
"""Width of a layer over the number of layers: 128 in GPT-3 175B, Llama 3 8B and 405B, 102 in Llama
3 70B."""


class JobHints(msgspec.Struct, frozen=True, kw_only=True):
    """What the user gave on the command line.

    `params` of the model, data type of the gradients, `dp`, `tp` and `pp` ranks, GPUs of a node.
    `fsdp`: parameters are sharded too. `sharp`: switches reduce. `seq_len` and `global_batch` (0:
    not given) are tokens of a sequence and sequences of a step. `peak_tflops` is that of one GPU, 0
    where unknown.
    """

    params: float
    dtype: str = "bf16"
    dp: int = 1
    tp: int = 1
    pp: int = 1
    gpus_per_node: int = 8
    fsdp: bool = False
    sharp: bool = False
    seq_len: int = 0
    global_batch: int = 0
    peak_tflops: float = 0.0

    @property
    def gpus(self) -> int:
        """The number of GPUs of the job."""
        return self.dp * self.tp * self.pp


class ExpectedTraffic(msgspec.Struct, frozen=True):
    """What a rail and a GPU should do in an iteration, by the hints.

    `bytes` are sent by a rail; `comm_s` is the time for them at 80 % of line rate, None where the
    line rate is unknown. `gpus` is the number of GPUs of the job, `nodes` that of the nodes over
    which one data-parallel group is spread, `groups` the number of such groups in a node. `payload`
    are the bytes of a GPU's gradients. `flops` are a GPU's operations, 0 where the sequence length
    or the batch is unknown; `peak_tflops` is 0 where unknown.
    """

    bytes: float
    comm_s: float | None
    gpus: int
    nodes: int
    flops: float = 0.0
    peak_tflops: float = 0.0
    payload: float = 0.0
    groups: float = 1.0

    def compute_s(self, mfu: float) -> float | None:
        """Seconds that computing takes at an MFU (0 to 1) of the peak; None where unknown."""
        if self.flops <= 0 or self.peak_tflops <= 0:
            return None
        return self.flops / (self.peak_tflops * 1e12 * mfu)

    def needed_bps(self, compute_s: float) -> float:
        """The rate of a rail at which its bytes take no longer than some computing."""
        return self.bytes * 8 / compute_s

    def tflops(self, step_s: float) -> float | None:
        """10^12 operations a second of each GPU; None where its operations are unknown."""
        return self.flops / step_s / 1e12 if self.flops > 0 else None

    def mfu(self, step_s: float) -> float | None:
        """Model FLOPs utilisation, 0 to 1: the share of the GPU's peak; None where unknown."""
        tflops = self.tflops(step_s)
        return tflops / self.peak_tflops if tflops is not None and self.peak_tflops > 0 else None


def expected_traffic(hints: JobHints, line_rate_bps: float, rails: int = 0) -> ExpectedTraffic:
    """The traffic of one exchange of all gradients, and the operations, in an iteration.

    A line rate of 0 is unknown. `rails` is the number of NICs of a node; 0: one per GPU. Traffic of
    tensor and pipeline parallelism is not included.
    """
    ranks, groups = _ranks_in_a_node(hints)
    nodes = math.ceil(hints.dp / ranks)
    payload = hints.params * DTYPE_BYTES[hints.dtype] / (hints.tp * hints.pp)
    count = payload * groups * _share_of_payload(hints, nodes) / (rails or hints.gpus_per_node)
    comm_s = count * 8 / (DELIVERED * line_rate_bps) if line_rate_bps > 0 else None
    flops = step_flops(hints.params, hints.seq_len, hints.global_batch) / hints.gpus
    peak = hints.peak_tflops
    return ExpectedTraffic(count, comm_s, hints.gpus, nodes, flops, peak, payload, groups)


def _ranks_in_a_node(hints: JobHints) -> tuple[int, float]:
    """The ranks of one data-parallel group in a node, and the number of such groups in it.

    Where a tensor-parallel group is as large as a node or larger, each GPU of a node belongs to
    another group.
    """
    gpus = min(hints.gpus_per_node, hints.gpus)
    ranks = max(1, min(hints.dp, gpus // hints.tp))
    return ranks, gpus / ranks


def _share_of_payload(hints: JobHints, nodes: int) -> float:
    """The share of the payload that a node sends for each of its data-parallel groups."""
    if nodes > 1 and hints.sharp:
        return 1.0
    return all_reduce_share(nodes) * (1.5 if hints.fsdp else 1.0)


def all_reduce_share(ranks: int) -> float:
    """The share of the payload that each of n ranks sends: 2(n-1)/n, 0 for a single one."""
    return 2 * (ranks - 1) / ranks if ranks > 1 else 0.0


def step_flops(params: float, seq_len: int, global_batch: int) -> float:
    """Floating-point operations of all GPUs in a step; 0 where length or batch is 0 (unknown).

    The attention term needs layers L and width h: with 12 L h² parameters (Kaplan et al. 2020,
    section 2.1) and h = 128 L, 12 L h is 12 h² / 128. For Llama 3 8B, 70B and 405B this is within
    16 % of the exact term, which is 8 to 21 % of the sum at 8,192 tokens.
    """
    width: float = (params * _WIDTH_PER_LAYER / 12) ** (1 / 3)
    attention = 12 * width * width / _WIDTH_PER_LAYER * seq_len
    return (6 * params + attention) * seq_len * global_batch
