"""Serving: bytes of the KV cache, how many sequences fit, time to first token (TTFT) and time per output token (TPOT).

The cache holds 2 L n_kv d values a token (Pope et al. 2022, arXiv 2211.05102, section 3.3; Kwon et al. 2023, arXiv
2309.06180, section 3). Prefill is bound by FLOPs: the forward pass over the prompt. A decode step reads every weight
once for the whole batch and each sequence's cache, or takes its FLOPs, whichever is longer (roofline, Williams et al.
2009); tensor parallelism adds two all-reduces a layer. A step of a model with experts reads those that some token of
the batch meets, E (1 - (1 - k/E)^batch) of E expected with random routing. Left out: scheduling, pages that are partly
empty, sampling, launches of kernels, pipelines, speculation.
"""

from __future__ import annotations

from dataclasses import dataclass

from utils.planner.flops import forward_flops
from utils.planner.model import Model
from utils.planner.spec import Cluster, Efficiency
from utils.planner.traffic import ring_seconds


@dataclass(frozen=True)
class Serving:
    """What one copy of a model serves, over `tp` GPUs of a node.

    weights, cache: bytes a GPU, cache for `batch` sequences of `context` tokens; free: bytes that neither takes, below
    0 where they do not fit; max_batch: the most sequences of that length that fit. ttft, tpot: seconds, ttft of one
    prompt alone. limit: what a decode step waits for, memory, compute or network.
    """

    weights: float
    cache: float
    free: float
    max_batch: int
    batch: int
    ttft: float
    tpot: float
    limit: str

    @property
    def tokens_per_second(self) -> float:
        """Output tokens a second of the whole batch."""
        return self.batch / self.tpot


def kv_bytes(model: Model, value_bytes: float = 2) -> float:
    """Bytes that one token takes in the cache, over all layers and GPUs: 2 L n_kv d values.

    >>> kv_bytes(Model("Llama-3-8B", 32, 4096, 32, kv_heads=8, ffn=14336, vocabulary=128256))
    131072
    """
    return 2 * model.layers * model.kv_width * value_bytes


def kv_bytes_per_gpu(model: Model, tp: int, value_bytes: float = 2) -> float:
    """Bytes of one token's cache on one of tp GPUs: beyond kv_heads GPUs heads are repeated, not cut.

    >>> kv_bytes_per_gpu(Model("MQA", 1, 64, 8, kv_heads=1), tp=4)
    32.0
    """
    return kv_bytes(model, value_bytes) / min(tp, model.kv_heads)


def serve(
    model: Model,
    cluster: Cluster,
    efficiency: Efficiency,
    tp: int = 1,
    batch: int = 1,
    prompt: int = 1024,
    context: int | None = None,
    value_bytes: float = 2,
    usable: float = 0.9,
) -> Serving:
    """Memory and latency of serving a model.

    prompt: tokens of a prompt; context: tokens a sequence has when a decode step is timed and its cache counted, None
    for the prompt. value_bytes: of weights and cache, 1 for 8 bits, 0.5 for 4; products run at the cluster's FLOP/s all
    the same. usable: the share of a GPU's memory that weights and cache may take.

    Raises:
        ValueError: tp is larger than a node, does not divide the query heads, or there is no batch or prompt.
    """
    if not 1 <= tp <= cluster.gpus_per_node or model.heads % tp:
        raise ValueError(f"tp = {tp}: it must divide heads = {model.heads} and be at most the "
                         f"{cluster.gpus_per_node} GPUs of a node")  # fmt: skip
    if batch < 1 or prompt < 1:
        raise ValueError(f"batch = {batch}, prompt = {prompt}: both are at least 1")
    context = prompt if context is None else context
    weights = model.parameters * value_bytes / tp
    one = kv_bytes_per_gpu(model, tp, value_bytes) * context
    room = usable * cluster.memory_bytes - weights
    parts = _decode(model, cluster, efficiency, tp, batch, context, value_bytes)
    work = max("memory", "compute", key=parts.__getitem__)
    limit = "network" if parts["network"] > parts[work] else work
    return Serving(weights, batch * one, room - batch * one, max(int(room // one), 0), batch,
                   prefill_seconds(model, cluster, efficiency, tp, prompt),
                   parts[work] + parts["network"], limit)  # fmt: skip


def _sums_over_tp(model: Model, cluster: Cluster, efficiency: Efficiency, tp: int, tokens: int) -> float:
    """Seconds of the two all-reduces a layer, of tokens times hidden values of 2 bytes."""
    link = efficiency.link(cluster, "node")
    return 2 * model.layers * ring_seconds("all_reduce", 2 * tokens * model.hidden, tp, link)


def prefill_seconds(model: Model, cluster: Cluster, efficiency: Efficiency, tp: int, prompt: int) -> float:
    """TTFT without waiting: the forward pass over the prompt, causal scores counted as the half that is run.

    The output product is run for the last token only.
    """
    forward = forward_flops(model, prompt)
    work = prompt * (forward.projections + forward.feed_forward + forward.core / 2) + forward.output
    seconds = work / tp / (cluster.flops * efficiency.gemm)
    return seconds + _sums_over_tp(model, cluster, efficiency, tp, prompt)


def weights_read(model: Model, batch: int) -> float:
    """Parameters that one decode step of `batch` sequences reads: all but the embedding's other rows and idle experts.

    >>> moe = Model("moe", 1, 8, 2, vocabulary=10, experts=4, top_k=1)
    >>> [round((weights_read(moe, batch) - weights_read(moe, 1)) / moe.expert_parameters, 2) for batch in (1, 2, 64)]
    [0.0, 0.75, 3.0]
    """
    embedding = model.positions * model.hidden + (0 if model.tied else model.vocabulary * model.hidden)
    if not model.experts:
        return model.parameters - embedding
    met = model.experts * (1 - (1 - model.top_k / model.experts) ** batch)
    idle = model.expert_layers * (model.experts - met) * model.expert_parameters
    return model.parameters - embedding - idle


def _decode(
    model: Model, cluster: Cluster, efficiency: Efficiency, tp: int, batch: int, context: int, value_bytes: float
) -> dict[str, float]:
    bandwidth = cluster.memory_bandwidth * efficiency.memory
    cache = batch * context * kv_bytes_per_gpu(model, tp, value_bytes)
    return {
        "memory": (weights_read(model, batch) * value_bytes / tp + cache) / bandwidth,
        "compute": batch * forward_flops(model, context).total / tp / (cluster.flops * efficiency.gemm),
        "network": _sums_over_tp(model, cluster, efficiency, tp, batch),
    }
