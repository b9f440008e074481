"""The ledger of one GPU: bytes of parameters, gradients, optimizer, activations and buffers of its fullest stage.

State under ZeRO: 4P + 12P/N, 2P + 14P/N, 16P/N bytes for stages 1, 2, 3 (Rajbhandari et al. 2020, arXiv 1910.02054,
Table 1). Activations of a layer: s b h (10 + 24/t + 5 a s/(h t)) and its variants (Korthikanti et al. 2022, arXiv
2205.05198, Table 2), written for grouped heads, gated feed-forwards and experts; times the micro-batches in flight: L
layers' worth on the first stage under 1F1B, times 1 + (p-1)/(p v) when interleaved (section 4.2.3). Experts are
taken as equally loaded. Left out: fragmentation, the libraries' own memory, temporary tensors inside a layer.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import lru_cache

from utils.planner.model import Model
from utils.planner.shards import layer_parameters, rank_parameters, stage_layers, vocabulary_parameters
from utils.planner.spec import Plan, Workload


@dataclass(frozen=True)
class Ledger:
    """Bytes of one GPU by what they are for; stage is the pipeline stage they belong to.

    >>> Ledger(2.0, 2.0, 12.0, 4.0, 1.0).total
    21.0
    """

    parameters: float
    gradients: float
    optimizer: float
    activations: float
    buffers: float
    stage: int = 0

    @property
    def state(self) -> float:
        """Parameters, gradients and optimizer."""
        return self.parameters + self.gradients + self.optimizer

    @property
    def total(self) -> float:
        """All bytes."""
        return self.state + self.activations + self.buffers

    def rows(self) -> list[tuple[str, float]]:
        """(name, bytes) of each part, for a table."""
        return [(field.name, getattr(self, field.name)) for field in fields(self) if field.name != "stage"]


def state_bytes(
    parameters: float, shards: int = 1, zero: int = 0, each: tuple[int, int, int] = (2, 2, 12)
) -> tuple[float, float, float]:
    """Bytes of (parameters, gradients, optimizer) for `parameters` parameters under a stage of ZeRO.

    shards: ranks that share; each: bytes a parameter of the three.

    Worked example, 7.5 billion parameters over 64 ranks at stage 1, in GB:

    >>> [round(part / 1e9, 1) for part in state_bytes(7.5e9, 64, zero=1)]
    [15.0, 15.0, 1.4]
    """
    shared_from = (3, 2, 1)
    held = [size * parameters / (shards if zero >= stage else 1) for size, stage in zip(each, shared_from, strict=True)]
    return held[0], held[1], held[2]


def layer_activations(model: Model, workload: Workload, plan: Plan, experts: bool = False) -> float:
    """Bytes that one layer keeps for the backward pass of one micro-batch, on one rank.

    experts: of a layer with experts. Korthikanti et al., Table 2; checkpoint full keeps the layer's input only.

    Worked example, the 22B model of that paper with t = 8, in MiB:

    >>> model = Model("22B", 48, 6144, 64, positions=2048)
    >>> plan = Plan(tp=8, sequence_parallel=True)
    >>> layer_activations(model, Workload(4, 4, checkpoint="selective"), plan) / 2**20
    204.0
    """
    cut = plan.tp if plan.sequence_parallel else 1
    return _layer_activations(model, workload, workload.checkpoint, plan.tp, cut, plan.cp, experts)


@lru_cache(maxsize=4096)
def _layer_activations(
    model: Model, workload: Workload, checkpoint: str, tp: int, cut: int, cp: int, experts: bool
) -> float:
    size, mask = workload.value_bytes, int(workload.dropout)
    tokens = workload.micro_batch * workload.seq / cp
    if checkpoint == "full":
        return size * model.hidden * tokens / cut
    # Inputs of two norms, of the products with queries, keys and values, and of the feed-forward; two masks.
    whole = model.hidden * (4 * size + 2 * mask)
    # Queries, keys, values, the input of the output product, the inside of the feed-forward.
    inside = size * (2 * model.attention_width + 2 * model.kv_width)
    grown = size * (3 if model.gated else 2)
    if experts:
        whole += size * model.hidden * model.top_k + 4 * model.experts
        inside += grown * (model.top_k + model.shared_experts) * model.expert_ffn
    else:
        inside += grown * model.ffn
    core = core_bytes(model, workload) if checkpoint == "none" else 0.0
    return tokens * (whole / cut + (inside + core) / tp)


def core_bytes(model: Model, workload: Workload) -> float:
    """Bytes that the core of attention keeps for one token of all heads: softmax, and with dropout mask and result.

    5 a s in 2-byte precision. With flash_attention only the logarithm of each row's sum stays, 4 bytes a head.
    """
    if workload.flash_attention:
        return 4.0 * model.heads
    size = workload.value_bytes
    return float(model.heads * workload.seq * (size + workload.dropout * (1 + size)))


def in_flight(workload: Workload, plan: Plan, stage: int) -> float:
    """The most micro-batches for which a stage keeps the activations of all its layers.

    GPipe keeps all m; 1F1B min(p - stage, m); interleaved counts chunks: (v-1) p + 2 (p-stage-1) + 1 of v.

    >>> work = Workload(global_batch=16)
    >>> [in_flight(work, Plan(pp=4, schedule=name), 0) for name in ("gpipe", "1f1b")]
    [16.0, 4.0]
    >>> in_flight(work, Plan(pp=4, schedule="interleaved", chunks=2), 0) / 4 == 1 + 3 / (4 * 2)
    True
    """
    m, p, v = plan.micro_batches(workload), plan.pp, plan.chunks
    if p == 1:
        return 1.0
    if plan.schedule == "gpipe":
        return float(m)
    if plan.schedule == "1f1b":
        return float(min(p - stage, m))
    return min((v - 1) * p + 2 * (p - stage - 1) + 1, m * v) / v


def ledger(model: Model, workload: Workload, plan: Plan, stage: int | None = None) -> Ledger:
    """Bytes of one GPU of a pipeline stage, of the fullest stage where none is asked for.

    The fullest is the first, which keeps most micro-batches, or the last, which keeps the logits; where only some
    layers have experts, any.

    >>> round(ledger(Model("7B", 32, 4096, 32, vocabulary=32000), Workload(1), Plan()).state / 1e9, 1)
    105.2
    """
    if stage is not None:
        return _stage_ledger(model, workload, plan, stage)
    stages = range(plan.pp) if model.dense_layers else sorted({0, plan.pp - 1})
    return max((_stage_ledger(model, workload, plan, one) for one in stages), key=lambda one: one.total)


def _stage_ledger(model: Model, workload: Workload, plan: Plan, stage: int) -> Ledger:
    shared, expert = rank_parameters(model, plan, stage)
    state = state_bytes(shared, plan.shards, plan.zero, workload.state_bytes)
    if expert:
        routed = state_bytes(expert, plan.shards // plan.ep, plan.zero, workload.state_bytes)
        state = tuple(one + two for one, two in zip(state, routed, strict=True))
    return Ledger(*state, _activations(model, workload, plan, stage), _buffers(model, workload, plan, stage), stage)


def _activations(model: Model, workload: Workload, plan: Plan, stage: int) -> float:
    dense, expert = stage_layers(model, plan, stage)
    layers = dense * layer_activations(model, workload, plan)
    if expert:
        layers += expert * layer_activations(model, workload, plan, experts=True)
    tokens = workload.micro_batch * workload.seq / plan.cp
    cut = plan.tp if plan.sequence_parallel else 1
    if stage == 0:  # the mask of the embedding's dropout
        layers += workload.dropout * tokens * model.hidden / cut
    kept = layers * in_flight(workload, plan, stage)
    if stage == plan.pp - 1:  # last norm, input of the output product, logits in fp32
        size = workload.value_bytes
        kept += tokens * (2 * size * model.hidden / cut + 4 * vocabulary_parameters(model, plan.tp) / model.hidden)
    return kept


def _buffers(model: Model, workload: Workload, plan: Plan, stage: int) -> float:
    """What is there for a moment: recomputed activations, gathered parameters, unsharded gradients, messages."""
    experts = stage_layers(model, plan, stage)[1] > 0
    cut = plan.tp if plan.sequence_parallel else 1
    tokens = workload.micro_batch * workload.seq / plan.cp
    total = 0.0
    if workload.checkpoint != "none":
        whole = _layer_activations(model, workload, "none", plan.tp, cut, plan.cp, experts)
        total += whole - layer_activations(model, workload, plan, experts)
    if plan.zero >= 2 and plan.shards > 1:
        unit = layer_parameters(model, plan.tp, experts)
        if experts:
            unit += model.experts // plan.ep * model.expert_parameters // plan.tp
        unit = max(unit, vocabulary_parameters(model, plan.tp))
        total += unit * workload.reduced_bytes
        if plan.zero == 3:  # the layer at work and the one fetched ahead
            total += 2 * unit * workload.value_bytes
    if plan.pp > 1:  # one message of each direction
        total += 2 * tokens * model.hidden * workload.value_bytes / cut
    return total


def best_checkpoints(layers: int, input_bytes: float, inside_bytes: float) -> float:
    """How many checkpoints a stage of `layers` layers should keep to need least memory: sqrt(l A_inside / A_input).

    Narayanan et al. 2021 (arXiv 2104.04473), section 3.5, the minimum of c A_input + l/c A_inside over c.

    >>> best_checkpoints(8, input_bytes=2, inside_bytes=100)
    20.0
    """
    return (layers * inside_bytes / input_bytes) ** 0.5
