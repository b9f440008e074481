"""A plan with its price: what it holds and how long a step takes, by the closed formulas."""

from __future__ import annotations

from dataclasses import dataclass

from utils.planner.memory import Ledger, ledger
from utils.planner.model import Model
from utils.planner.refusal import check
from utils.planner.spec import Cluster, Efficiency, Plan, Workload
from utils.planner.timing import StepTime, step

USABLE = 0.9  # of a GPU's memory: libraries and fragmentation take the rest


@dataclass(frozen=True)
class Candidate:
    """A plan with its workload (micro-batch and recomputation are part of the choice), its bytes and its seconds."""

    plan: Plan
    workload: Workload
    memory: Ledger
    time: StepTime

    @property
    def micro_batches(self) -> int:
        """m of one replica in one step."""
        return self.plan.micro_batches(self.workload)

    def value(self, name: str) -> object:
        """A choice by its name: a field of the plan, or of the workload."""
        return getattr(self.plan if hasattr(self.plan, name) else self.workload, name)

    def text(self) -> str:
        """All choices in one line; those that are as small as can be are left out.

        >>> from utils.planner.published import gpt, selene
        >>> model = gpt("GPT-3", 96, 12288, 96)
        >>> price(model, Workload(1536), selene(1536), Plan(dp=24, tp=8, pp=8), Efficiency()).text()
        'dp=24 tp=8 pp=8 1f1b, 64 micro-batches of 1'
        """
        plan, work = self.plan, self.workload
        words = [f"dp={plan.dp}", f"tp={plan.tp}", f"pp={plan.pp}"]
        words += [f"{name}={getattr(plan, name)}" for name in ("cp", "ep") if getattr(plan, name) > 1]
        words += [f"zero={plan.zero}"] if plan.zero else []
        words += ["sequence-parallel"] if plan.sequence_parallel else []
        words += [plan.schedule + (f" v={plan.chunks}" if plan.chunks > 1 else "")] if plan.pp > 1 else []
        words += [f"{work.checkpoint} recomputation"] if work.checkpoint != "none" else []
        return f"{' '.join(words)}, {self.micro_batches} micro-batches of {work.micro_batch}"


def price(model: Model, workload: Workload, cluster: Cluster, plan: Plan, efficiency: Efficiency) -> Candidate:
    """Bytes and seconds of a plan; ValueError with one sentence for one that cannot be; fitting is not asked."""
    check(model, workload, cluster, plan)
    return Candidate(plan, workload, ledger(model, workload, plan), step(model, workload, cluster, plan, efficiency))
