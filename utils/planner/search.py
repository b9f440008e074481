"""The quickest plan that fits: every legal split of a cluster is looked at, few of them closely.

All products dp * tp * pp * cp = GPUs, with expert groups, sequence parallelism, chunks, the micro-batch, recomputation
and the stage of ZeRO. Each gets a lower bound first: no step is shorter than its layers' passes, the output product and
the bubble that layers leave. Plans are then priced with the closed formulas (`timing.step`, `memory.ledger`) in the
order of their bounds, until the bound of the next one is above the best time found: the rest cannot be better (branch
and bound, Land and Doig 1960). Alpa
(Zheng et al. 2022, arXiv 2201.12023) searches a larger space, operator by operator.

Left out: GPipe, which takes as long as 1F1B and never holds less; micro-batches above `largest_micro_batch`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from utils.planner.candidate import USABLE, Candidate, price
from utils.planner.memory import Ledger, ledger
from utils.planner.model import Model
from utils.planner.refusal import refuse
from utils.planner.shards import stage_layers
from utils.planner.spec import CHECKPOINTS, Cluster, Efficiency, Plan, Workload
from utils.planner.stage_costs import output_seconds
from utils.planner.timing import layer_time, step


@dataclass(frozen=True)
class Search:
    """What was found. considered: legal shapes with a bound; priced: those that the formulas were worked out for;
    best: None where nothing fits; smallest: the priced plan that needs least memory."""

    best: Candidate | None
    smallest: Candidate | None
    considered: int
    priced: int


@dataclass(frozen=True)
class Space:
    """What may be chosen; None means all that is legal. A number that is given is the only one tried."""

    tp: int | None = None
    pp: int | None = None
    cp: int | None = None
    ep: int | None = None
    zero: int | None = None
    micro_batch: int | None = None
    checkpoint: str | None = None
    sequence_parallel: bool | None = None
    chunks: int | None = None
    largest_micro_batch: int = 16

    def allows(self, name: str, values: Iterable) -> list:
        """Those of the values that may be chosen for this field."""
        only = getattr(self, name)
        return list(values) if only is None else [value for value in values if value == only]


@lru_cache(maxsize=4096)
def divisors(number: int) -> tuple[int, ...]:
    """All divisors, ascending.

    >>> divisors(12)
    (1, 2, 3, 4, 6, 12)
    """
    return tuple(n for n in range(1, number + 1) if number % n == 0)


def search(
    model: Model, workload: Workload, cluster: Cluster, efficiency: Efficiency, space: Space | None = None,
    usable: float = USABLE,
) -> Search:  # fmt: skip
    """The quickest plan that fits into `usable` of a GPU's memory; of the workload, micro_batch and checkpoint are
    chosen anew.

    >>> from utils.planner.published import selene
    >>> model = Model("1.7B", 24, 2304, 24, positions=2048)
    >>> found = search(model, Workload(512, seq=2048), selene(32), Efficiency())
    >>> found.best.plan.gpus, found.best.memory.total < 0.9 * 80e9
    (32, True)
    """
    room = usable * cluster.memory_bytes
    chosen = space or Space()
    bounds, shapes = bounded(model, workload, cluster, efficiency, chosen)
    best: Candidate | None = None
    smallest: Candidate | None = None
    priced = 0
    for index in np.argsort(bounds, kind="stable"):
        if best is not None and bounds[index] >= best.time.seconds:
            break
        plan, work = shapes[index]
        stages = _worth_a_look(ledger(model, work, plan, stage=0), room if best else np.inf)
        time = step(model, work, cluster, plan, efficiency) if stages else None
        if best is not None and (time is None or time.seconds - time.dp - time.optimizer > best.time.seconds):
            continue  # dp and optimizer are all that a stage of ZeRO changes
        for zero in chosen.allows("zero", stages if plan.shards > 1 else stages & {0}):
            one = replace(plan, zero=zero) if zero else plan
            memory = ledger(model, work, one)
            priced += 1
            if memory.total > room and best is not None:
                continue
            found = Candidate(one, work, memory, step(model, work, cluster, one, efficiency) if zero else time)
            smallest = min((one for one in (smallest, found) if one), key=lambda each: each.memory.total)
            if memory.total <= room and (best is None or _rank(found) < _rank(best)):
                best = found
    return Search(best, smallest, len(shapes), priced)


def front(
    model: Model, workload: Workload, cluster: Cluster, efficiency: Efficiency, space: Space | None = None,
    up_to: float = 3.0,
) -> list[Candidate]:  # fmt: skip
    """The Pareto front of memory against time: for each plan on it, no other is both smaller and quicker.

    From the quickest, whether it fits or not, to the smallest that takes up to `up_to` times as long.
    """
    chosen = space or Space()
    bounds, shapes = bounded(model, workload, cluster, efficiency, chosen)
    kept: list[Candidate] = []
    for index in np.argsort(bounds, kind="stable"):
        plan, work = shapes[index]
        if kept and bounds[index] > up_to * min(one.time.seconds for one in kept):
            break
        room = min((one.memory.total for one in kept if one.time.seconds <= bounds[index]), default=np.inf)
        stages = _worth_a_look(ledger(model, work, plan, stage=0), room)
        for zero in chosen.allows("zero", sorted(stages) if plan.shards > 1 else sorted(stages & {0})):
            one = price(model, work, cluster, replace(plan, zero=zero), efficiency)
            if not any(_no_worse(other, one) for other in kept):
                kept = [other for other in kept if not _no_worse(one, other)] + [one]
    kept.sort(key=_rank)
    return [one for one in kept if one.time.seconds <= up_to * kept[0].time.seconds]


def _no_worse(one: Candidate, other: Candidate) -> bool:
    return one.memory.total <= other.memory.total and one.time.seconds <= other.time.seconds


def _worth_a_look(first: Ledger, room: float) -> set[int]:
    """The stages of ZeRO that may fit, from the first stage without it: each shares one part more."""
    kept = {0: first.total, 1: first.total - first.optimizer - first.buffers, 3: first.activations}
    kept[2] = first.activations + first.parameters
    return {zero for zero, nbytes in kept.items() if nbytes <= room}


def _rank(one: Candidate) -> tuple[float, float]:
    return one.time.seconds, one.memory.total


def bounded(
    model: Model, workload: Workload, cluster: Cluster, efficiency: Efficiency, space: Space
) -> tuple[np.ndarray, list[tuple[Plan, Workload]]]:
    """(lower bounds in seconds, the shapes they belong to), of all that `refuse` lets pass; ZeRO is not in a shape."""
    per_layer: dict[tuple, tuple[float, float]] = {}
    output: dict[tuple, float] = {}
    bounds: list[float] = []
    found: list[tuple[Plan, Workload]] = []
    for plan, work in shapes(model, workload, cluster, space):
        key = plan.tp, plan.cp, plan.ep, plan.sequence_parallel, work.micro_batch, work.checkpoint
        if key not in per_layer:
            per_layer[key] = tuple(
                layer_time(model, work, cluster, plan, efficiency, bool(kind)).total if count else 0.0
                for kind, count in enumerate(stage_layers(model, plan, plan.pp // 2))
            )
        outer = plan.tp, plan.cp, work.micro_batch
        if outer not in output:
            output[outer] = output_seconds(model, work, cluster, plan, efficiency)
        layers = stage_layers(model, plan, plan.pp - 1)
        inner = sum(count * seconds for count, seconds in zip(layers, per_layer[key], strict=True))
        m = plan.micro_batches(work)
        bounds.append(inner * (m + (plan.pp - 1) / plan.chunks) + m * output[outer])
        found.append((plan, work))
    return np.array(bounds), found


def shapes(model: Model, workload: Workload, cluster: Cluster, space: Space) -> Iterator[tuple[Plan, Workload]]:
    """All legal plans without ZeRO, each with its micro-batch and recomputation."""
    known: dict[int, list[Workload]] = {}  # micro-batch -> its workloads
    for tp, cp, pp in itertools.product(*(space.allows(axis, divisors(cluster.gpus)) for axis in ("tp", "cp", "pp"))):
        if cluster.gpus % (tp * cp * pp) or tp > cluster.gpus_per_node or model.layers % pp:
            continue
        dp = cluster.gpus // (tp * cp * pp)
        if workload.global_batch % dp or (cp > 1 and workload.seq % (2 * cp)):
            continue
        for plan in _variants(model, Plan(dp, tp, pp, cp), space):
            rows = [n for n in divisors(workload.global_batch // plan.dp) if n <= space.largest_micro_batch]
            for micro_batch in space.allows("micro_batch", rows):
                if micro_batch not in known:
                    known[micro_batch] = [replace(workload, micro_batch=micro_batch, checkpoint=checkpoint)
                                          for checkpoint in space.allows("checkpoint", CHECKPOINTS)]  # fmt: skip
                works = known[micro_batch]
                if works and refuse(model, works[0], cluster, plan) is None:
                    yield from ((plan, work) for work in works)


def _variants(model: Model, plan: Plan, space: Space) -> Iterator[Plan]:
    experts = [n for n in divisors(plan.dp) if model.experts % n == 0] if model.experts else [1]
    chunks = divisors(model.layers // plan.pp) if plan.pp > 1 else [1]
    parallel = (False, True) if plan.tp > 1 else (False,)
    choices = space.allows("ep", experts), space.allows("chunks", chunks), space.allows("sequence_parallel", parallel)
    for ep, v, sequence_parallel in itertools.product(*choices):
        name = "interleaved" if v > 1 else "1f1b"
        yield Plan(plan.dp, plan.tp, plan.pp, plan.cp, ep, 0, sequence_parallel, name, v)
