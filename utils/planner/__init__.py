"""A planner: bytes, FLOPs, traffic and time of training or serving a model on a machine that is not here.

    from utils.planner import Cluster, Model, Plan, Workload, ledger, messages, refuse, step

    ledger(model, workload, plan)           -> memory.Ledger: bytes of the worst stage's GPU, by what they are for
    messages(model, workload, plan, cluster, efficiency=None) -> list[traffic.Message]: collectives of one step
    step(model, workload, cluster, plan, efficiency) -> timing.StepTime: seconds by part, tokens/s, MFU, HFU

Everything is closed formulas on plain numbers, each from a paper that its module names.
"""

from __future__ import annotations

from utils.planner.refusal import check, refuse
from utils.planner.spec import Cluster, Model, Plan, Workload

__all__ = ["Cluster", "Model", "Plan", "Workload", "check", "refuse"]
