"""What a prediction starts from: a model, a workload, a cluster and a plan, each a frozen object that checks itself.

Conventions, the same in every module of this package. Sizes are in bytes and seconds, FLOPs count a multiply and
an add as 2, GB is 10**9 and GiB 2**30 bytes. State takes 16 bytes a parameter (ZeRO, Rajbhandari et al. 2020,
arXiv 1910.02054, section 3.1): 2 for the parameter, 2 for its gradient, 12 for Adam (master copy, two moments,
fp32 each). Names of axes are torch's; GPUs = dp * tp * pp * cp, and an ep group lies inside dp, as in Megatron-LM.
Ranks are laid out tp first, then cp, dp, pp: neighbours in tp are neighbours in a node.

Left out: stages of unequal depth, sequences of unequal length, optimizers other than Adam.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from utils.cost import AlphaBeta
from utils.planner.model import Model, require_one_of, require_whole

__all__ = ["CHECKPOINTS", "PRECISION_BYTES", "SCHEDULES", "Cluster", "Efficiency", "Model", "Plan", "Workload"]

CHECKPOINTS = ("none", "selective", "full")
SCHEDULES = ("gpipe", "1f1b", "interleaved")
PRECISION_BYTES = {"bf16": 2, "fp16": 2, "fp32": 4}


@dataclass(frozen=True)
class Workload:
    """What one step trains on, and how numbers are kept.

    global_batch, micro_batch: sequences in a step, and in one pass of one replica; seq: tokens a sequence. precision
    bf16, fp16 (both 16 bytes a parameter, the module's convention) or fp32 (4 + 4 + 8 bytes). gradient_bytes: 2 for
    the convention's 16 bytes, 4 for gradients kept in fp32 only (18 bytes a parameter, Megatron-LM), 6 for a
    second copy in fp32 beside them (20 bytes, Ultra-Scale Playbook). checkpoint: activation recomputation (激活重计算)
    none, selective (the core of attention, arXiv 2205.05198) or full (whole layers). flash_attention: scores never
    reach memory and the backward pass makes them anew (FlashAttention, arXiv 2205.14135). dropout: masks are kept.

    >>> Workload(global_batch=1536, micro_batch=1, seq=2048).state_bytes
    (2, 2, 12)
    """

    global_batch: int
    micro_batch: int = 1
    seq: int = 2048
    precision: str = "bf16"
    checkpoint: str = "none"
    gradient_bytes: int | None = None
    flash_attention: bool = False
    dropout: bool = True

    def __post_init__(self) -> None:
        require_whole(self, "global_batch", "micro_batch", "seq")
        require_one_of(self, "precision", tuple(PRECISION_BYTES))
        require_one_of(self, "checkpoint", CHECKPOINTS)
        if self.gradient_bytes is None:
            object.__setattr__(self, "gradient_bytes", self.value_bytes)
        require_one_of(self, "gradient_bytes", (2, 4, 6) if self.value_bytes == 2 else (4,))

    @property
    def value_bytes(self) -> int:
        """Bytes of one parameter or activation in this precision."""
        return PRECISION_BYTES[self.precision]

    @property
    def state_bytes(self) -> tuple[int, int, int]:
        """Bytes a parameter of (parameters, gradients, optimizer)."""
        return self.value_bytes, self.gradient_bytes, 12 if self.value_bytes == 2 else 8

    @property
    def reduced_bytes(self) -> int:
        """Bytes a parameter in which gradients travel: fp32 where they are kept in fp32, else the precision's."""
        return self.value_bytes if self.gradient_bytes == 2 else 4

    @property
    def tokens(self) -> int:
        """Tokens in one step."""
        return self.global_batch * self.seq


@dataclass(frozen=True)
class Cluster:
    """A machine: gpus in all, in nodes of gpus_per_node, and two levels of links.

    flops: the peak of one GPU in FLOP/s for the precision in use; memory_bytes of one GPU, memory_bandwidth in
    bytes a second. node: the link of one GPU inside a node, between: its share of the link between nodes, each
    one way. hardware names the kind of machine, by which efficiency parameters are kept.

    >>> dgx = Cluster("2 nodes", 16, 8, 312e12, 80e9, 2.0e12, AlphaBeta(5e-6, 1 / 300e9), AlphaBeta(1e-5, 1 / 25e9))
    >>> dgx.level(8), dgx.level(2, stride=8), dgx.level(1)
    ('node', 'between', 'node')
    """

    name: str
    gpus: int
    gpus_per_node: int
    flops: float
    memory_bytes: float
    memory_bandwidth: float
    node: AlphaBeta
    between: AlphaBeta
    hardware: str = "A100"

    def __post_init__(self) -> None:
        require_whole(self, "gpus", "gpus_per_node")
        for name in ("flops", "memory_bytes", "memory_bandwidth"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} is {getattr(self, name)!r}; it must be above 0")
        if self.gpus > self.gpus_per_node and self.gpus % self.gpus_per_node:
            raise ValueError(f"gpus = {self.gpus} do not fill nodes of gpus_per_node = {self.gpus_per_node}")

    def level(self, ranks: int, stride: int = 1) -> str:
        """'node' where a group of `ranks` ranks, `stride` apart, lies inside one node, else 'between'."""
        return "node" if (ranks - 1) * stride < self.gpus_per_node else "between"

    def link(self, level: str) -> AlphaBeta:
        """The link of a level, 'node' or 'between'."""
        return {"node": self.node, "between": self.between}[level]


@dataclass(frozen=True)
class Efficiency:
    """What a kind of hardware gives of its peaks, as shares between 0 and 1, and what its software hides.

    gemm: of FLOP/s in matrix products; memory: of memory bandwidth in everything else; node, between: of the
    bandwidth of links. dp_overlap: how well dp's collectives run beside the backward pass, 0 one after the other, 1
    as if neither knew of the other; `beside` is the law. tp_overlap: whether tp's collectives of the backward pass
    run behind products of gradients. The first four belong to hardware, the others to software.

    >>> Efficiency(gemm=0.65, memory=0.7, node=0.9, between=0.65).dp_overlap
    1.0
    """

    gemm: float = 1.0
    memory: float = 1.0
    node: float = 1.0
    between: float = 1.0
    dp_overlap: float = 1.0
    tp_overlap: bool = False

    def __post_init__(self) -> None:
        for name in ("gemm", "memory", "node", "between"):
            if not 0 < getattr(self, name) <= 1:
                raise ValueError(f"{name} is {getattr(self, name)!r}; a share of the peak is above 0 and at most 1")
        if not 0 <= self.dp_overlap <= 1:
            raise ValueError(f"dp_overlap is {self.dp_overlap!r}; it is 0 (none) to 1 (perfect)")

    def beside(self, work: float, traffic: float) -> float:
        """Seconds of work and traffic that run side by side: (work^k + traffic^k)^(1/k) with k = 1/(1 - dp_overlap).

        0 gives their sum, 1 the longer one. In between they hinder each other most where both take equally long.

        >>> Efficiency(dp_overlap=0.5).beside(3.0, 4.0), Efficiency(dp_overlap=0).beside(3.0, 4.0)
        (5.0, 7.0)
        """
        longer, shorter = max(work, traffic), min(work, traffic)
        if self.dp_overlap == 1 or not shorter:
            return longer
        power = 1 / (1 - self.dp_overlap)
        return longer * (1 + (shorter / longer) ** power) ** (1 / power)

    def link(self, cluster: Cluster, level: str) -> AlphaBeta:
        """The cluster's link of this level at the bandwidth that it really gives."""
        peak = cluster.link(level)
        return AlphaBeta(peak.alpha, peak.beta / (self.node if level == "node" else self.between))


@dataclass(frozen=True)
class Plan:
    """How a model is spread: the size of each axis, the ZeRO stage, the pipeline's schedule.

    zero: 0 none, 1 optimizer state, 2 and gradients, 3 and parameters, each spread over dp (and cp). chunks: v model
    chunks a rank, above 1 for the interleaved schedule only. ep: expert groups inside dp, which need no GPUs of their
    own.

    >>> Plan(dp=60, tp=8, pp=8).gpus, Plan(dp=60, tp=8, pp=8).model_parallel
    (3840, 64)
    """

    dp: int = 1
    tp: int = 1
    pp: int = 1
    cp: int = 1
    ep: int = 1
    zero: int = 0
    sequence_parallel: bool = False
    schedule: str = "1f1b"
    chunks: int = 1

    def __post_init__(self) -> None:
        require_whole(self, "dp", "tp", "pp", "cp", "ep", "chunks")
        require_one_of(self, "zero", (0, 1, 2, 3))
        require_one_of(self, "schedule", SCHEDULES)
        if (self.schedule == "interleaved") != (self.chunks > 1):
            raise ValueError(f"schedule {self.schedule} with chunks = {self.chunks}: interleaved has 2 or more, else 1")
        if self.schedule == "interleaved" and self.pp == 1:
            raise ValueError("schedule interleaved with pp = 1: there is no pipeline to interleave")
        if self.sequence_parallel and self.tp == 1:
            raise ValueError("sequence_parallel with tp = 1: it shards over the ranks of tp")
        if self.dp % self.ep:
            raise ValueError(f"ep = {self.ep} does not divide dp = {self.dp}: expert groups lie inside dp")

    @property
    def gpus(self) -> int:
        """dp * tp * pp * cp."""
        return self.dp * self.tp * self.pp * self.cp

    @property
    def model_parallel(self) -> int:
        """GPUs that share one copy of the parameters: tp * pp."""
        return self.tp * self.pp

    @property
    def shards(self) -> int:
        """Over how many ranks ZeRO spreads state: dp * cp, all that hold the same parameters."""
        return self.dp * self.cp

    def strides(self) -> dict[str, int]:
        """How far apart in rank two neighbours of a group are, for each axis."""
        inside = {"tp": 1, "cp": self.tp, "ep": self.tp * self.cp, "dp": self.tp * self.cp}
        return {**inside, "pp": self.tp * self.cp * self.dp}

    def micro_batches(self, workload: Workload) -> int:
        """m, the micro-batches of one replica in one step."""
        return workload.global_batch // (self.dp * workload.micro_batch)


def filling(gpus: int, **chosen: Any) -> Plan:
    """A plan of these choices whose dp fills the GPUs; no choice stands where it would mean nothing.

    Chunks ask for the interleaved schedule, one stage for no pipeline at all, tp = 1 for no sequence parallelism.
    ValueError where an axis does not divide the GPUs.

    >>> filling(64, tp=2, pp=4, chunks=2).dp, filling(64, tp=2, pp=4, chunks=2).schedule
    (8, 'interleaved')
    """
    rest = gpus
    for axis in ("tp", "pp", "cp"):
        size = chosen.get(axis, 1)
        if type(size) is not int or size < 1 or rest % size:
            raise ValueError(f"{axis} = {size} does not divide the {gpus} GPUs")
        rest //= size
    if chosen.get("chunks", 1) > 1 and chosen.get("schedule", "1f1b") == "1f1b":
        chosen["schedule"] = "interleaved"
    if chosen.get("pp", 1) == 1:
        chosen |= {"schedule": "1f1b", "chunks": 1}
    chosen["sequence_parallel"] = bool(chosen.get("sequence_parallel")) and chosen.get("tp", 1) > 1
    return Plan(dp=rest, **chosen)
