"""Seconds of one step, part by part: work, collectives that nothing hides, the bubble, the optimizer.

Each product takes the longer of its FLOPs at the efficiency of `gemm` and its bytes at that of `memory` (a roofline,
Williams et al. 2009); what only moves bytes (norms, dropout, residuals, softmax, activation functions) takes its
bytes, counted operator by operator for fused kernels. Those bytes grow with h where FLOPs grow with h^2, which is why
larger models use a GPU better, and sequence parallelism divides part of them by t. A step is m times the slowest stage
and (p-1)/v times one stage for the bubble (Narayanan et al. 2021, arXiv 2104.04473, section 2.2). Left out: kernel
launches, uneven experts, stragglers, input (the simulation has stragglers).
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import lru_cache

from utils.planner.flops import hardware_flops, model_flops
from utils.planner.model import Model
from utils.planner.shards import rank_parameters, stage_layers, vocabulary_parameters
from utils.planner.spec import Cluster, Efficiency, Plan, Workload
from utils.planner.traffic import Message, messages


@dataclass(frozen=True)
class Work:
    """Seconds of one rank's own work, forward and backward: matrix products, the core of attention, the rest."""

    linear: float = 0.0
    core: float = 0.0
    other: float = 0.0
    linear_back: float = 0.0
    core_back: float = 0.0
    other_back: float = 0.0

    @property
    def forward(self) -> float:
        """All of the forward pass."""
        return self.linear + self.core + self.other

    @property
    def backward(self) -> float:
        """All of the backward pass, without recomputation."""
        return self.linear_back + self.core_back + self.other_back


@dataclass(frozen=True)
class LayerTime:
    """Seconds of one layer for one micro-batch on one rank; collectives only as far as nothing hides them."""

    forward: float
    backward: float
    recompute: float
    tp: float
    cp: float
    ep: float

    @property
    def total(self) -> float:
        """Forward and backward pass with everything in them."""
        return self.forward + self.backward + self.recompute + self.tp + self.cp + self.ep


@dataclass(frozen=True)
class StepTime:
    """Seconds of one step by part; they add up to `seconds`.

    compute: forward and backward pass; recompute: what is run again; tp, cp, ep, pp, dp: collectives that nothing
    hides; bubble: idle time of a pipeline; optimizer. tokens: of the step, gpus: of the plan, and FLOPs of the step.
    """

    compute: float
    recompute: float
    tp: float
    cp: float
    ep: float
    pp: float
    dp: float
    bubble: float
    optimizer: float
    tokens: int
    gpus: int
    peak_flops: float
    model_flops: float
    hardware_flops: float

    def parts(self) -> list[tuple[str, float]]:
        """(name, seconds) of all parts, in order."""
        return [(field.name, getattr(self, field.name)) for field in fields(self)[:9]]

    @property
    def seconds(self) -> float:
        """The whole step."""
        return (self.compute + self.recompute + self.tp + self.cp + self.ep + self.pp + self.dp + self.bubble
                + self.optimizer)  # fmt: skip

    @property
    def tokens_per_second(self) -> float:
        """Tokens a second of all GPUs together."""
        return self.tokens / self.seconds

    @property
    def mfu(self) -> float:
        """Model FLOPs utilisation (Chowdhery et al. 2022, arXiv 2204.02311): needed FLOPs over peak FLOPs."""
        return self.model_flops / (self.seconds * self.gpus * self.peak_flops)

    @property
    def hfu(self) -> float:
        """Hardware FLOPs utilisation: FLOPs that were run over peak FLOPs."""
        return self.hardware_flops / (self.seconds * self.gpus * self.peak_flops)


class _Machine:
    """Turns FLOPs and bytes of one GPU into seconds."""

    def __init__(self, cluster: Cluster, efficiency: Efficiency, value_bytes: int) -> None:
        self.flops = cluster.flops * efficiency.gemm
        self.bandwidth = cluster.memory_bandwidth * efficiency.memory
        self.size = value_bytes

    def product(self, m: float, k: float, n: float, copies: float = 1) -> float:
        """Seconds of `copies` products of [m / copies, k] and [k, n]."""
        return max(2 * m * k * n / self.flops, self.size * (m * k + copies * k * n + m * n) / self.bandwidth)

    def moved(self, nbytes: float) -> float:
        return nbytes / self.bandwidth


@lru_cache(maxsize=4096)
def _layer_work(
    model: Model, workload: Workload, cluster: Cluster, efficiency: Efficiency,
    tp: int, cut: int, cp: int, ep: int, experts: bool,
) -> Work:  # fmt: skip
    gpu = _Machine(cluster, efficiency, workload.value_bytes)
    n, h, size, mask = workload.micro_batch * workload.seq / cp, model.hidden, gpu.size, int(workload.dropout)
    q, kv, inward = model.attention_width, model.kv_width, 2 if model.gated else 1
    linear = gpu.product(n, h, (q + 2 * kv) / tp) + gpu.product(n, q / tp, h)
    # Norms, residual sums and dropout: reads and writes of n h values and of masks.
    other = gpu.moved(n * h / cut * (10 * size + 2 * mask))
    back = gpu.moved(n * h / cut * (16 * size + 2 * mask))
    wide = []  # (tokens, width, matrices' copies) of feed-forwards that this rank runs
    if experts:
        wide.append((n * model.top_k, model.expert_ffn, model.experts / ep))
        wide.append((n * model.shared_experts, model.expert_ffn, max(model.shared_experts, 1)))
        routed = gpu.moved(4 * size * n * h * model.top_k / cut)  # out to the experts' order and back
        other, back = other + routed, back + routed
    else:
        wide.append((n, model.ffn, 1))
    for tokens, width, copies in wide:
        linear += gpu.product(tokens, h, inward * width / tp, copies) + gpu.product(tokens, width / tp, h, copies)
        other += gpu.moved((inward + 1) * size * tokens * width / tp)
        back += gpu.moved((2 * inward + 1) * size * tokens * width / tp)
    core, core_back = _core(model, workload, gpu, tp, cp)
    return Work(linear, core, other, 2 * linear, core_back, back)


def _core(model: Model, workload: Workload, gpu: _Machine, tp: int, cp: int) -> tuple[float, float]:
    """Seconds of scores, softmax, dropout and weighted values, forward and backward."""
    n, size, mask = workload.micro_batch * workload.seq / cp, gpu.size, int(workload.dropout)
    work = 2 * n * workload.seq * model.attention_width / tp / gpu.flops
    if workload.flash_attention:
        return 2 * work, 5 * work
    scores = n * workload.seq * model.heads / tp
    product = max(work, gpu.moved(size * scores))
    forward = 2 * size + mask * (2 * size + 1)
    backward = 3 * size + mask * (2 * size + 1)
    return 2 * product + gpu.moved(forward * scores), 4 * product + gpu.moved(backward * scores)


def _output_work(model: Model, workload: Workload, gpu: _Machine, plan: Plan) -> float:
    """Seconds of the output product and the loss, forward and backward, for one micro-batch."""
    n, words = workload.micro_batch * workload.seq / plan.cp, vocabulary_parameters(model, plan.tp) / model.hidden
    # The loss reads logits, writes and reads them in fp32, and writes their gradient.
    return 3 * gpu.product(n, model.hidden, words) + gpu.moved(n * words * (2 * gpu.size + 12))


def layer_time(
    model: Model, workload: Workload, cluster: Cluster, plan: Plan, efficiency: Efficiency, experts: bool = False
) -> LayerTime:
    """Seconds of one layer for one micro-batch, by part, among the layers of the last stage.

    experts: of a layer with experts; ValueError where the model has none.
    """
    stage = plan.pp - 1
    layers = stage_layers(model, plan, stage)
    if experts and not layers[1]:
        raise ValueError(f"{model.name} has no layers with experts")
    sent = messages(model, workload, plan, cluster, efficiency, stage)
    return _layer_time(model, workload, cluster, plan, efficiency, experts, sent, layers)


def _layer_time(
    model: Model, workload: Workload, cluster: Cluster, plan: Plan, efficiency: Efficiency,
    experts: bool, sent: list[Message], layers: tuple[int, int],
) -> LayerTime:  # fmt: skip
    cut = plan.tp if plan.sequence_parallel else 1
    work = _layer_work(model, workload, cluster, efficiency, plan.tp, cut, plan.cp, plan.ep, experts)
    recompute = {"none": 0.0, "selective": work.core, "full": work.forward}[workload.checkpoint]
    calls = plan.micro_batches(workload) * sum(layers)
    hidden = _seconds(sent, "tp", hides=True) / calls
    tp = _seconds(sent, "tp", hides=False) / calls
    tp += max(0.0, hidden - work.linear_back / 2) if efficiency.tp_overlap else hidden
    beside = work.core + work.core_back + (work.core if workload.checkpoint != "none" else 0.0)
    cp = max(0.0, _seconds(sent, "cp", hides=True) / calls - beside)
    ep = _seconds(sent, "ep", hides=False) / (plan.micro_batches(workload) * layers[1]) if experts else 0.0
    return LayerTime(work.forward, work.backward, recompute, tp, cp, ep)


def _seconds(sent: list[Message], axis: str, hides: bool) -> float:
    """Seconds a step of an axis' collectives inside layers, those that can hide or those that cannot."""
    inside = ("forward", "backward", "recompute")
    those = [one for one in sent if one.axis == axis and one.phase in inside]
    return sum(one.total_seconds for one in those if bool(one.hidden) == hides)


def step(model: Model, workload: Workload, cluster: Cluster, plan: Plan, efficiency: Efficiency) -> StepTime:
    """Seconds of one step of a plan, by part.

    The last stage sets the pace: it has the output product on top of its layers. Whether a plan can be and whether it
    fits is asked elsewhere (`refuse`, `ledger`).
    """
    m, stage = plan.micro_batches(workload), plan.pp - 1
    layers = stage_layers(model, plan, stage)
    sent = messages(model, workload, plan, cluster, efficiency, stage)
    gpu = _Machine(cluster, efficiency, workload.value_bytes)
    times = [(count, _layer_time(model, workload, cluster, plan, efficiency, bool(experts), sent, layers))
             for experts, count in enumerate(layers) if count]  # fmt: skip
    part = {name: sum(count * getattr(time, name) for count, time in times)
            for name in ("forward", "backward", "recompute", "tp", "cp", "ep")}  # fmt: skip
    output = _output_work(model, workload, gpu, plan)
    ends = sum(one.seconds for one in sent if one.phase in ("embedding", "output"))
    hop = sum(one.seconds for one in sent if one.axis == "pp" and one.phase == "backward")
    inner = sum(part.values())
    backward = part["backward"] + part["recompute"] + output * 2 / 3
    return StepTime(
        compute=m * (part["forward"] + part["backward"] + output),
        recompute=m * part["recompute"],
        tp=m * (part["tp"] + ends),
        cp=m * part["cp"],
        ep=m * part["ep"],
        pp=m * plan.chunks * 2 * hop + sum(one.seconds for one in sent if one.axis == "pp" and one.phase == "step"),
        dp=_exposed_dp(sent, efficiency, plan, m, inner + output, backward),
        bubble=(plan.pp - 1) * (inner / plan.chunks + 2 * hop),
        optimizer=_optimizer(model, workload, plan, stage, gpu),
        tokens=workload.tokens,
        gpus=plan.gpus,
        peak_flops=cluster.flops,
        model_flops=model_flops(model, workload),
        hardware_flops=hardware_flops(model, workload),
    )


def _exposed_dp(
    sent: list[Message], efficiency: Efficiency, plan: Plan, micro_batches: int, pace: float, backward: float
) -> float:
    """Seconds of dp that the pass it runs beside does not hide.

    One reduction a step hides behind the backward pass of the last micro-batch, one a micro-batch (ZeRO-2) behind all
    backward passes, gathered parameters (ZeRO-3) behind everything.
    """
    hides = sum(one.total_seconds for one in sent if one.axis == "dp" and one.hidden)
    alone = sum(one.total_seconds for one in sent if one.axis == "dp" and not one.hidden)
    room = {0: backward, 1: backward, 2: micro_batches * backward, 3: micro_batches * pace}[plan.zero]
    return alone + efficiency.beside(room, hides) - room


def _optimizer(model: Model, workload: Workload, plan: Plan, stage: int, gpu: _Machine) -> float:
    """Adam reads and writes its state, reads gradients and writes parameters, of this rank's share under ZeRO."""
    shared, expert = rank_parameters(model, plan, stage)
    if plan.zero:
        shared, expert = shared / plan.shards, expert / (plan.shards // plan.ep)
    values, gradients, state = workload.state_bytes
    return gpu.moved((shared + expert) * (2 * state + gradients + values))
