"""What the simulation of a step is made of: seconds of each stage's work, and the messages between GPUs.

All numbers are those of the closed formulas (`timing.layer_time`, `timing.step`, `traffic.messages`), taken apart by
stage and by direction. Left out, besides what they leave out: how much messages beside the backward pass slow it down
(`Efficiency.beside`); here they hide perfectly, or not at all where dp_overlap is 0.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from utils.planner.model import Model
from utils.planner.shards import stage_layers
from utils.planner.spec import Cluster, Efficiency, Plan, Workload
from utils.planner.timing import layer_time, step
from utils.planner.traffic import Message, messages


@dataclass(frozen=True)
class Wire:
    """A message of one GPU: bytes sent, seconds that pass besides, bytes a second of its link, whether it leaves the
    node."""

    nbytes: float
    latency: float
    limit: float
    leaves: bool

    @property
    def seconds(self) -> float:
        """Alone on its links."""
        return self.latency + self.nbytes / self.limit

    def part(self, pieces: int) -> Wire:
        """One of so many equal pieces; each pays the latency of a message of its own."""
        return Wire(self.nbytes / pieces, self.latency, self.limit, self.leaves)


@dataclass(frozen=True)
class Pass:
    """One chunk's work on one micro-batch in one direction: own seconds, and those in collectives of its tp, cp, ep."""

    work: float
    waits: float = 0.0

    def seconds(self, slowness: float = 1.0) -> float:
        """With a GPU in the group that computes this many times slower."""
        return self.work * slowness + self.waits


@dataclass(frozen=True)
class StepCosts:
    """One step's ingredients. forward, backward: of each of the p * v chunks; hop: from stage to stage.

    reduce: of each rank of the pipeline, its gradients; each_pass: one a micro-batch and chunk (ZeRO-2, 3), else once.
    fetch: parameters before each pass of a chunk (ZeRO-3); gather: after the update (ZeRO-1, 2); tied: the embedding's
    gradient between first and last stage. overlap: whether gradients travel beside the backward pass.
    """

    forward: tuple[Pass, ...]
    backward: tuple[Pass, ...]
    hop: Wire | None = None
    reduce: tuple[Wire | None, ...] = ()
    fetch: tuple[Wire | None, ...] = ()
    gather: tuple[Wire | None, ...] = ()
    tied: Wire | None = None
    each_pass: bool = False
    optimizer: float = 0.0
    overlap: bool = True


def step_costs(model: Model, workload: Workload, cluster: Cluster, plan: Plan, efficiency: Efficiency) -> StepCosts:
    """Take the closed formulas apart by stage.

    >>> from utils.planner.published import ptdp_table_1
    >>> from utils.planner.efficiency import A100
    >>> run = ptdp_table_1()[-1]
    >>> costs = step_costs(run.model, run.workload, run.cluster, run.plan, A100)
    >>> len(costs.forward) == run.plan.pp * run.plan.chunks, costs.hop.leaves
    (True, True)
    """
    chunks = [_chunk(model, workload, cluster, plan, efficiency, number) for number in range(plan.pp * plan.chunks)]
    sent = [messages(model, workload, plan, cluster, efficiency, rank) for rank in range(plan.pp)]
    links = {level: efficiency.link(cluster, level).bandwidth for level in ("node", "between")}
    passes = plan.micro_batches(workload) * plan.chunks if plan.zero >= 2 else 1

    def wires(phases: Iterable[str], op: str = "", axis: str = "dp", times: int = 1) -> tuple[Wire | None, ...]:
        chosen = [[one for one in of_rank if one.axis == axis and one.phase in phases and op in one.op]
                  for of_rank in sent]  # fmt: skip
        return tuple(_wire(those, links, times) for those in chosen)

    hops = wires(("backward",), axis="pp", times=plan.micro_batches(workload) * plan.chunks)
    return StepCosts(
        forward=tuple(chunk[0] for chunk in chunks),
        backward=tuple(chunk[1] for chunk in chunks),
        hop=hops[-1],
        reduce=wires(("step", "backward"), "reduce", times=passes),
        fetch=wires(("forward",), "all_gather", times=passes),
        gather=wires(("step",), "all_gather"),
        tied=wires(("step",), axis="pp")[0],
        each_pass=plan.zero >= 2,
        optimizer=step(model, workload, cluster, plan, efficiency).optimizer,
        overlap=efficiency.dp_overlap > 0,
    )


def _wire(those: list[Message], links: dict[str, float], times: int) -> Wire | None:
    """All these messages of a step, one behind the other, a `times`-th of them."""
    if not those:
        return None
    leaves = any(one.level == "between" for one in those)
    limit = links["between" if leaves else "node"]
    nbytes = sum(one.total_sent for one in those if (one.level == "between") == leaves)
    seconds = sum(one.total_seconds for one in those)
    return Wire(nbytes / times, max(seconds - nbytes / limit, 0.0) / times, limit, leaves)


def _chunk(
    model: Model, workload: Workload, cluster: Cluster, plan: Plan, efficiency: Efficiency, number: int
) -> tuple[Pass, Pass]:
    """(forward, backward) of one chunk for one micro-batch."""
    rank, last = number % plan.pp, plan.pp * plan.chunks - 1
    counts = [count / plan.chunks for count in stage_layers(model, plan, rank)]
    work, waits = [0.0, 0.0], [0.0, 0.0]
    sent = messages(model, workload, plan, cluster, efficiency, plan.pp // 2)
    for experts, count in enumerate(counts):
        if count:
            one = layer_time(model, workload, cluster, plan, efficiency, bool(experts))
            ahead = one.tp * _share(sent, "tp") + one.cp / 3 + one.ep * _share(sent, "ep")
            work[0] += count * one.forward
            work[1] += count * (one.backward + one.recompute)
            waits[0] += count * ahead
            waits[1] += count * (one.tp + one.cp + one.ep - ahead)
    ends = messages(model, workload, plan, cluster, efficiency, rank)
    if number == 0:
        waits[0] += sum(one.seconds for one in ends if one.phase == "embedding")
    if number == last:
        output = output_seconds(model, workload, cluster, plan, efficiency)
        work = [work[0] + output / 3, work[1] + output * 2 / 3]
        waits[1] += sum(one.seconds for one in ends if one.phase == "output")
    return Pass(work[0], waits[0]), Pass(work[1], waits[1])


def output_seconds(
    model: Model, workload: Workload, cluster: Cluster, plan: Plan, efficiency: Efficiency
) -> float:
    """Of one micro-batch's output product and loss: what the last stage computes besides its layers."""
    times = [layer_time(model, workload, cluster, plan, efficiency, experts) if count else None
             for experts, count in zip((False, True), stage_layers(model, plan, plan.pp - 1), strict=True)]  # fmt: skip
    layers = stage_layers(model, plan, plan.pp - 1)
    inside = sum(count * (one.forward + one.backward) for count, one in zip(layers, times, strict=True) if one)
    return step(model, workload, cluster, plan, efficiency).compute / plan.micro_batches(workload) - inside


def _share(sent: list[Message], axis: str) -> float:
    """The forward pass' share of an axis' seconds inside layers."""
    seconds = {phase: sum(one.total_seconds for one in sent if one.axis == axis and one.phase == phase)
               for phase in ("forward", "backward", "recompute")}  # fmt: skip
    total = sum(seconds.values())
    return seconds["forward"] / total if total else 0.0
