"""A planner: bytes, FLOPs, traffic and time of training or serving a model on a machine that is not here.

    from utils.planner import Cluster, Efficiency, Model, Plan, Workload, ledger, messages, refuse, step

    refuse(model, workload, cluster, plan)               why a plan cannot be, in a sentence, or None
    ledger(model, workload, plan)                        bytes of the fullest stage's GPU, by what they are for
    messages(model, workload, plan, cluster, efficiency) the collectives of one step, each with bytes and seconds
    step(model, workload, cluster, plan, efficiency)     seconds of one step by part, tokens/s, MFU, HFU
    serve(model, cluster, efficiency, tp, batch, prompt) cache, largest batch, TTFT and TPOT of a served model

Everything is closed formulas on plain numbers, each from a paper that its module names.
"""

from __future__ import annotations

from utils.planner.inference import Serving, kv_bytes, serve
from utils.planner.memory import Ledger, ledger
from utils.planner.refusal import check, refuse
from utils.planner.spec import Cluster, Efficiency, Model, Plan, Workload
from utils.planner.timing import StepTime, step
from utils.planner.traffic import Message, messages

__all__ = [
    "Cluster", "Efficiency", "Ledger", "Message", "Model", "Plan", "Serving", "StepTime", "Workload", "check",
    "kv_bytes", "ledger", "messages", "refuse", "serve", "step",
]  # fmt: skip
