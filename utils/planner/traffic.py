"""The collectives of one step as one rank sees them: how many, how large, on which links, how long.

Per layer and micro-batch tensor parallelism sends 8 b s h (t-1)/t values, forward and backward (Narayanan et al. 2021,
arXiv 2104.04473, section 3.2), as all-reduces or, with sequence parallelism, as all-gathers and reduce-scatters with
one more all-gather in the backward pass (Korthikanti et al. 2022, arXiv 2205.05198, section 4.2.2). A pipeline sends
b s h values between stages, 1/t of them where t ranks share the work (section 4.1 of the former). Data
parallelism sends 2P values, ZeRO-3 3P (Rajbhandari et al. 2020, arXiv 1910.02054, section 7). Times are those of
rings over alpha-beta links, at the slowest link of the group: one stage whose neighbour is on another node sets the
pace of a pipeline, and a ring crosses a node's border over one GPU's share of the network. Left
out: trees, in-network reduction, congestion (the simulation has it).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from utils.cost import AlphaBeta, bus_factor
from utils.planner.model import Model
from utils.planner.shards import rank_parameters, stage_layers
from utils.planner.spec import Cluster, Efficiency, Plan, Workload


@dataclass(frozen=True)
class Message:
    """One kind of collective of a step.

    axis: dp, tp, pp, cp or ep; op: torch's name, or send; phase: forward, backward or recompute of layers, embedding,
    output, or step (once a step); ranks: size of the group; nbytes: the buffer, the larger of a rank's input and
    output; count: how many in one step; level: node or between; seconds: of one. hidden: "compute" for what software
    can run while the GPU computes, else "".

    >>> Message("tp", "all_reduce", "forward", 4, 1000.0, 6, "node", 1e-3, "").sent
    1500.0
    """

    axis: str
    op: str
    phase: str
    ranks: int
    nbytes: float
    count: int
    level: str
    seconds: float
    hidden: str = ""

    @property
    def sent(self) -> float:
        """Bytes that one rank sends in one of them: the buffer times the bus factor."""
        return self.nbytes if self.op == "send" else self.nbytes * bus_factor(self.op, self.ranks)

    @property
    def total_sent(self) -> float:
        """Bytes that one rank sends in one step."""
        return self.sent * self.count

    @property
    def total_seconds(self) -> float:
        """Seconds of all of them, one after the other."""
        return self.seconds * self.count


def ring_seconds(op: str, nbytes: float, ranks: int, link: AlphaBeta) -> float:
    """Seconds of a collective over a ring: (p-1) steps of 1/p of the buffer, twice as many for all_reduce.

    op send is one message. A group of one rank takes no time.

    >>> ring_seconds("all_reduce", 4e6, 4, AlphaBeta(1e-5, 1e-9))
    0.00606
    """
    if op == "send":
        return link.time(nbytes)
    steps = (2 if op == "all_reduce" else 1) * (ranks - 1)
    return steps * link.time(nbytes / ranks)


class _Wires:
    """Makes messages: knows the links of a cluster and at which level a group lies."""

    def __init__(self, cluster: Cluster, plan: Plan, efficiency: Efficiency) -> None:
        self.links = {level: efficiency.link(cluster, level) for level in ("node", "between")}
        self.cluster, self.strides = cluster, plan.strides()

    def make(
        self, axis: str, op: str, phase: str, ranks: int, nbytes: float, count: int, hidden: str = "", stride: int = 0
    ) -> Message:
        level = self.cluster.level(ranks, stride or self.strides[axis])
        return Message(axis, op, phase, ranks, nbytes, count, level,
                       ring_seconds(op, nbytes, ranks, self.links[level]), hidden)  # fmt: skip


def messages(
    model: Model,
    workload: Workload,
    plan: Plan,
    cluster: Cluster,
    efficiency: Efficiency | None = None,
    stage: int | None = None,
) -> list[Message]:
    """All collectives of one step for a rank of a stage; of an inner stage (the last of two) where none is asked for.

    efficiency None takes links at their peak. What belongs to the first and last stage only: the sum of the
    embedding over tp, and of the gradient of what enters the output product.

    Worked example, ZeRO-3 on 4 ranks sends 3/4 of 3P values of 2 bytes, P = 872 for each of 2 layers and 128 more:

    >>> link = AlphaBeta(1e-5, 1e-9)
    >>> cluster = Cluster("box", 4, 4, 1e12, 1e9, 1e11, link, link)
    >>> model = Model("tiny", 2, 8, heads=2, vocabulary=10, positions=4)
    >>> sum(one.total_sent for one in messages(model, Workload(4, seq=4), Plan(dp=4, zero=3), cluster))
    8424.0
    """
    wires = _Wires(cluster, plan, efficiency or Efficiency())
    stage = plan.pp // 2 if stage is None else stage
    parts = (_tensor(model, workload, plan, wires, stage), _context(model, workload, plan, wires, stage),
             _experts(model, workload, plan, wires, stage), _pipeline(model, workload, plan, wires, stage),
             _data(model, workload, plan, wires, stage))  # fmt: skip
    return [message for part in parts for message in part]


def _rows(model: Model, workload: Workload, plan: Plan) -> float:
    """Bytes of one micro-batch's activations between layers: b s h values, its sequence cut by cp."""
    return workload.micro_batch * workload.seq / plan.cp * model.hidden * workload.value_bytes


def _tensor(model: Model, workload: Workload, plan: Plan, wires: _Wires, stage: int) -> Iterator[Message]:
    if plan.tp == 1:
        return
    nbytes, m, t = _rows(model, workload, plan), plan.micro_batches(workload), plan.tp
    calls = 2 * m * sum(stage_layers(model, plan, stage))
    passes = ["forward", "backward"] + ["recompute"] * (workload.checkpoint == "full")
    for phase in passes:
        behind = "compute" if phase == "backward" else ""
        if not plan.sequence_parallel:
            yield wires.make("tp", "all_reduce", phase, t, nbytes, calls, behind)
            continue
        # In the backward pass the gather is what g-bar turns into: nothing can begin before it.
        yield wires.make("tp", "all_gather", phase, t, nbytes, calls)
        yield wires.make("tp", "reduce_scatter", phase, t, nbytes, calls, behind)
        if phase == "backward":
            yield wires.make("tp", "all_gather", phase, t, nbytes, calls, behind)
    op = "reduce_scatter" if plan.sequence_parallel else "all_reduce"
    if stage == 0:
        yield wires.make("tp", op, "embedding", t, nbytes, m)
    if stage == plan.pp - 1:
        yield wires.make("tp", op, "output", t, nbytes, m)


def _context(model: Model, workload: Workload, plan: Plan, wires: _Wires, stage: int) -> Iterator[Message]:
    """Ring attention (arXiv 2310.01889): keys and values go round, in the backward pass with their gradients."""
    if plan.cp == 1:
        return
    tokens = workload.micro_batch * workload.seq / plan.cp
    nbytes = 2 * tokens * model.kv_width / plan.tp * workload.value_bytes
    calls = plan.micro_batches(workload) * sum(stage_layers(model, plan, stage)) * (plan.cp - 1)
    yield wires.make("cp", "send", "forward", plan.cp, nbytes, calls, "compute")
    yield wires.make("cp", "send", "backward", plan.cp, 2 * nbytes, calls, "compute")
    if workload.checkpoint != "none":
        yield wires.make("cp", "send", "recompute", plan.cp, nbytes, calls, "compute")


def _experts(model: Model, workload: Workload, plan: Plan, wires: _Wires, stage: int) -> Iterator[Message]:
    """Each layer sends its tokens to their experts and back (GShard, arXiv 2006.16668), equally loaded."""
    layers = stage_layers(model, plan, stage)[1]
    if plan.ep == 1 or not layers:
        return
    nbytes = _rows(model, workload, plan) * model.top_k / (plan.tp if plan.sequence_parallel else 1)
    calls = 2 * plan.micro_batches(workload) * layers
    for phase in ["forward", "backward"] + ["recompute"] * (workload.checkpoint == "full"):
        yield wires.make("ep", "all_to_all", phase, plan.ep, nbytes, calls)


def _pipeline(model: Model, workload: Workload, plan: Plan, wires: _Wires, stage: int) -> Iterator[Message]:
    if plan.pp == 1:
        return
    nbytes, m, v, t = _rows(model, workload, plan), plan.micro_batches(workload), plan.chunks, plan.tp
    forward = v - 1 if stage == plan.pp - 1 else v
    backward = v - 1 if stage == 0 else v
    for phase, calls in (("forward", m * forward), ("backward", m * backward)):
        if calls:
            yield wires.make("pp", "send", phase, plan.pp, nbytes / t, calls)
            if t > 1 and not plan.sequence_parallel:
                yield wires.make("pp", "all_gather", phase, t, nbytes, calls, stride=1)
    if model.tied and stage in (0, plan.pp - 1):
        words = -(-model.vocabulary // t) * model.hidden * workload.reduced_bytes
        yield wires.make("pp", "all_reduce", "step", 2, words, 1, stride=(plan.pp - 1) * wires.strides["pp"])


def _data(model: Model, workload: Workload, plan: Plan, wires: _Wires, stage: int) -> Iterator[Message]:
    shared, expert = rank_parameters(model, plan, stage)
    dense, expert_layers = stage_layers(model, plan, stage)
    # Under ZeRO-3 each layer is gathered by itself, and what lies outside layers as one more.
    pieces = (dense + expert_layers + 1, expert_layers) if plan.zero == 3 else (1, 1)
    yield from _reduction(shared, pieces[0], plan.shards, workload, plan, wires, wires.strides["cp"])
    stride = wires.strides["dp"] * plan.ep
    yield from _reduction(expert, pieces[1], plan.shards // plan.ep, workload, plan, wires, stride)


def _reduction(
    parameters: int, pieces: int, ranks: int, workload: Workload, plan: Plan, wires: _Wires, stride: int
) -> Iterator[Message]:
    if ranks == 1 or not parameters:
        return
    gradients, values = parameters / pieces * workload.reduced_bytes, parameters / pieces * workload.value_bytes
    m = plan.micro_batches(workload)
    if plan.zero == 0:
        yield wires.make("dp", "all_reduce", "step", ranks, gradients, 1, "compute", stride)
        return
    # From stage 2 on no rank keeps whole gradients, so that each micro-batch is reduced by itself.
    each = m * pieces if plan.zero >= 2 else 1
    phase = "backward" if plan.zero >= 2 else "step"
    yield wires.make("dp", "reduce_scatter", phase, ranks, gradients, each, "compute", stride)
    if plan.zero == 3:
        for phase in ("forward", "backward"):
            yield wires.make("dp", "all_gather", phase, ranks, values, m * pieces, "compute", stride)
    else:
        yield wires.make("dp", "all_gather", "step", ranks, values, 1, "", stride)
