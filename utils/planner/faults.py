"""What a lost node costs: work back to the last checkpoint, and GPUs that stand still.

One node's death stops its stage at once, its replica when the pipeline runs dry, all others at the reduction of their
gradients. Nothing of the step survives, nor what was computed since the last checkpoint. How often to save: the
interval sqrt(2 C M) costs least (Young 1974, Communications of the ACM 17(9)) for C seconds a checkpoint and M seconds
between failures, M being one GPU's over the number of GPUs. Left out: a failure while restarting.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from utils.planner.model import Model
from utils.planner.simulate import Simulated, simulate
from utils.planner.spec import Cluster, Efficiency, Plan, Workload


@dataclass(frozen=True)
class Loss:
    """What is lost when a node dies. Times in seconds since it died, but where another moment is named.

    first_idle: until the first other GPUs stand still for good, all_idle: until all do (idle while they wait for
    gradients that do not come); redone: seconds of training to be run again, back to the checkpoint; seconds: redone,
    until it is noticed and until the job runs again; gpu_hours: that times all GPUs; partners: other GPUs of the
    replicas that had a part on the node and cannot go on without it, even if the rest could.
    """

    first_idle: float
    all_idle: float
    redone: float
    seconds: float
    gpu_hours: float
    partners: int


def lose_node(
    model: Model, workload: Workload, cluster: Cluster, plan: Plan, efficiency: Efficiency, *, node: int,
    steps_since_checkpoint: int, share_of_step: float = 0.5, notice: float = 0.0, restart: float = 0.0,
) -> Loss:  # fmt: skip
    """Let a node die in the middle of a step.

    share_of_step: how far into the step, 0 to 1. notice: seconds from the last GPU's standstill until somebody knows
    (a collective's time-out), restart: until the job runs on other nodes. ValueError for a share outside 0 to 1.
    """
    if not 0 <= share_of_step <= 1:
        raise ValueError(f"share_of_step is {share_of_step}; it is 0 (the step's begin) to 1 (its end)")
    whole = simulate(model, workload, cluster, plan, efficiency).seconds
    died = share_of_step * whole
    played = simulate(model, workload, cluster, plan, efficiency, lost_node=node, lost_at=died)
    stands = [max(stop - died, 0.0) for stop in _stops(played, node, cluster.gpus_per_node)]
    redone = steps_since_checkpoint * whole + died
    seconds = redone + max(stands, default=0.0) + notice + restart
    first = node * cluster.gpus_per_node // (plan.tp * plan.cp)
    last = min((node + 1) * cluster.gpus_per_node, plan.gpus) - 1
    hit = {slot % plan.dp for slot in range(first, last // (plan.tp * plan.cp) + 1)}
    partners = len(hit) * plan.gpus // plan.dp - cluster.gpus_per_node
    return Loss(min(stands, default=0.0), max(stands, default=0.0), redone, seconds, seconds * plan.gpus / 3600,
                max(partners, 0))  # fmt: skip


def _stops(played: Simulated, node: int, gpus_per_node: int) -> list[float]:
    """When the stages of each kind of replica do their last work, those on the lost node left out."""
    layout, stops = played.classes.layout, []
    for kind, spans in played.spans.items():
        for rank in range(layout.pp):
            if node not in layout.nodes_of(rank, played.classes.examples[kind]):
                stops.append(max((span.end for span in spans if span.rank == rank), default=0.0))
    return stops


def best_interval(checkpoint_seconds: float, gpu_mtbf_hours: float, gpus: int) -> float:
    """Seconds between checkpoints that lose least time, sqrt(2 C M).

    A checkpoint of 60 s, one failure of a GPU in 50,000 hours, 16,384 GPUs, which then fail every 3 hours:

    >>> round(best_interval(60, 50_000, 16_384) / 60)
    19
    """
    return math.sqrt(2 * checkpoint_seconds * gpu_mtbf_hours * 3600 / gpus)


def lost_share(
    interval: float, checkpoint_seconds: float, gpu_mtbf_hours: float, gpus: int, restart: float = 0.0
) -> float:
    """The share of all time that is lost to saving, to work done again (half an interval a failure) and to restarts.

    >>> round(lost_share(best_interval(60, 50_000, 16_384), 60, 50_000, 16_384), 3)
    0.105
    """
    between = gpu_mtbf_hours * 3600 / gpus
    return checkpoint_seconds / interval + (interval / 2 + restart) / between
