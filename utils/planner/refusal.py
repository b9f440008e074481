"""Which plans cannot be: each rule is one sentence with the numbers and what to change."""

from __future__ import annotations

from collections.abc import Iterator

from utils.planner.spec import Cluster, Model, Plan, Workload


def refuse(model: Model, workload: Workload, cluster: Cluster | None, plan: Plan) -> str | None:
    """Why this plan cannot be, in one sentence, or None where it can; memory is not looked at (`memory.ledger`).

    cluster None leaves out the rules about the machine.

    >>> model = Model("70B", 80, 8192, 64, kv_heads=8, ffn=28672, vocabulary=128256)
    >>> refuse(model, Workload(64), None, Plan(tp=16))
    'tp = 16 is more than kv_heads = 8: a KV head is not cut; take a tp that divides 8'
    """
    rules = (_machine(cluster, plan), _tensor(model, plan), _depth(model, workload, plan), _data(workload, plan),
             _sequence(model, workload, plan), _experts(model, plan))  # fmt: skip
    return next((sentence for rule in rules for sentence in rule), None)


def check(model: Model, workload: Workload, cluster: Cluster | None, plan: Plan) -> None:
    """Raise ValueError with the sentence of `refuse` where there is one."""
    sentence = refuse(model, workload, cluster, plan)
    if sentence:
        raise ValueError(sentence)


def _machine(cluster: Cluster | None, plan: Plan) -> Iterator[str]:
    if cluster is None:
        return
    if plan.gpus != cluster.gpus:
        product = f"dp {plan.dp} x tp {plan.tp} x pp {plan.pp} x cp {plan.cp} = {plan.gpus} GPUs"
        yield f"{product}, but the cluster has {cluster.gpus}: the product must be {cluster.gpus}"
    if plan.tp > cluster.gpus_per_node:
        yield (f"tp = {plan.tp} is more than the {cluster.gpus_per_node} GPUs of a node: every layer would wait for "
               f"the slow links; take tp of at most {cluster.gpus_per_node}")  # fmt: skip
    if cluster.gpus_per_node % plan.tp and plan.gpus > cluster.gpus_per_node:
        yield (f"tp = {plan.tp} does not divide the {cluster.gpus_per_node} GPUs of a node: groups would lie across "
               f"two nodes; take a tp that divides {cluster.gpus_per_node}")  # fmt: skip


def _tensor(model: Model, plan: Plan) -> Iterator[str]:
    if plan.tp > model.kv_heads:
        yield (f"tp = {plan.tp} is more than kv_heads = {model.kv_heads}: a KV head is not cut; "
               f"take a tp that divides {model.kv_heads}")  # fmt: skip
    widths = {"heads": model.heads, "kv_heads": model.kv_heads, "hidden": model.hidden, "ffn": model.ffn}
    if model.experts:
        widths["expert_ffn"] = model.expert_ffn
    for name, width in widths.items():
        if width % plan.tp:
            yield f"tp = {plan.tp} does not divide {name} = {width}: {width % plan.tp} would be left over"


def _depth(model: Model, workload: Workload, plan: Plan) -> Iterator[str]:
    parts = plan.pp * plan.chunks
    if model.layers % parts:
        yield (f"pp {plan.pp} x chunks {plan.chunks} = {parts} does not divide layers = {model.layers}: "
               "stages would be uneven")  # fmt: skip
    micro_batches = plan.micro_batches(workload)
    if plan.schedule == "interleaved" and micro_batches % plan.pp:
        yield (f"{micro_batches} micro-batches are not a multiple of pp = {plan.pp}: "
               "the interleaved schedule runs them in rounds of pp")  # fmt: skip


def _data(workload: Workload, plan: Plan) -> Iterator[str]:
    rows = plan.dp * workload.micro_batch
    if workload.global_batch % rows:
        yield (f"dp {plan.dp} x micro_batch {workload.micro_batch} = {rows} does not divide global_batch = "
               f"{workload.global_batch}: ranks would have unequal work")  # fmt: skip


def _sequence(model: Model, workload: Workload, plan: Plan) -> Iterator[str]:
    if plan.cp > 1 and workload.seq % (2 * plan.cp):
        yield (f"2 cp = {2 * plan.cp} does not divide seq = {workload.seq}: a rank takes one piece from the front and "
               "one from the back, so that causal attention is equal work")  # fmt: skip
    if plan.sequence_parallel and workload.seq % (plan.cp * plan.tp):
        yield f"cp {plan.cp} x tp {plan.tp} does not divide seq = {workload.seq}: sequence parallelism cuts it evenly"
    if model.positions and workload.seq > model.positions:
        yield f"seq = {workload.seq} is longer than the {model.positions} learned positions"


def _experts(model: Model, plan: Plan) -> Iterator[str]:
    if plan.ep > 1 and not model.experts:
        yield f"ep = {plan.ep}, but {model.name} has no experts: ep must be 1"
    elif model.experts % plan.ep:
        yield f"ep = {plan.ep} does not divide experts = {model.experts}: ranks would hold unequal numbers"
