"""What part of a model one rank holds: layers of its stage, its share of their parameters.

Tensor parallelism cuts matrices and the biases of column-parallel ones; norms, routers, learned positions and biases
after a sum are whole on each rank (Shoeybi et al. 2019, arXiv 1909.08053, section 3). The embedding is padded until
tp divides it. Where a tied embedding meets a pipeline, first and last stage each have a copy. Stage r of p with
v chunks holds the chunks r, r + p, r + 2p ... of L / (p v) layers each (arXiv 2104.04473, section 2.2).
"""

from __future__ import annotations

from functools import lru_cache

from utils.planner.model import Model
from utils.planner.spec import Plan


def stage_layers(model: Model, plan: Plan, stage: int) -> tuple[int, int]:
    """(layers without experts, layers with experts) of a stage.

    >>> stage_layers(Model("moe", 8, 64, 8, experts=4, top_k=1, dense_layers=1), Plan(pp=2), stage=0)
    (1, 3)
    """
    if not model.experts:
        return model.layers // plan.pp, 0
    depth = model.layers // (plan.pp * plan.chunks)
    starts = [(stage + chunk * plan.pp) * depth for chunk in range(plan.chunks)]
    dense = sum(min(max(model.dense_layers - start, 0), depth) for start in starts)
    return dense, depth * plan.chunks - dense


def layer_parameters(model: Model, tp: int, experts: bool) -> int:
    """Parameters of one layer on one rank of tp; of a layer with experts all but the routed ones."""
    h, bias = model.hidden, model.biases
    whole = 2 * model.norm_parameters + bias * h
    cut = model.attention_parameters - bias * h
    if experts:
        whole += h * model.experts + model.shared_experts * bias * h
        cut += model.shared_experts * (model.expert_parameters - bias * h)
    else:
        whole += bias * h
        cut += model.feed_forward_parameters(model.ffn) - bias * h
    return cut // tp + whole


def vocabulary_parameters(model: Model, tp: int) -> int:
    """Of one rank's rows of an embedding or an output matrix, padded."""
    return -(-model.vocabulary // tp) * model.hidden


def rank_parameters(model: Model, plan: Plan, stage: int) -> tuple[int, int]:
    """(parameters that all ranks of dp and cp hold too, parameters of routed experts) of one rank of a stage.

    Without ZeRO these are what a GPU holds. The first are reduced over dp * cp, the second over dp * cp / ep.

    >>> rank_parameters(Model("tiny", 2, 8, heads=2, vocabulary=10, positions=4), Plan(), stage=0)
    (1872, 0)
    """
    return _rank_parameters(model, plan.tp, plan.pp, plan.ep, stage, stage_layers(model, plan, stage))


@lru_cache(maxsize=4096)
def _rank_parameters(model: Model, tp: int, pp: int, ep: int, stage: int, layers: tuple[int, int]) -> tuple[int, int]:
    shared = layers[0] * layer_parameters(model, tp, False) + layers[1] * layer_parameters(model, tp, True)
    first, last = stage == 0, stage == pp - 1
    if first:
        shared += vocabulary_parameters(model, tp) + model.positions * model.hidden
    if last:
        shared += model.norm_parameters
    if last and (pp > 1 or not model.tied):
        shared += vocabulary_parameters(model, tp)
    whole = model.biases * model.hidden
    expert = (model.expert_parameters - whole) // tp + whole if model.experts else 0
    return shared, layers[1] * (model.experts // ep) * expert
