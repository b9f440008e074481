"""FLOPs of a step: those the model needs, and those the hardware runs when activations are made anew.

A product of [m, k] and [k, n] is 2mkn FLOPs; the backward pass is twice the forward pass; causal attention counts as
full, as the papers do. For a GPT this gives 72 B L s h^2 (1 + s/(6h) + V/(12hL)) a step (Korthikanti et al. 2022,
arXiv 2205.05198, equation 7) and, with full recomputation of all layers, 96 B L s h^2 (1 + s/(6h) + V/(16lh))
(Narayanan et al. 2021, arXiv 2104.04473, equation 3). Left out: norms, softmax, activation functions.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from utils.planner.model import Model
from utils.planner.spec import Workload


@dataclass(frozen=True)
class TokenFlops:
    """FLOPs of one token's forward pass through the whole model, by part.

    projections: of queries, keys, values and output; core: scores and weighted values, 4 s times the width of all
    queries a layer; feed_forward: with router and experts; output: the product with the vocabulary.
    """

    projections: float
    core: float
    feed_forward: float
    output: float

    @property
    def layers(self) -> float:
        """All but the output."""
        return self.projections + self.core + self.feed_forward

    @property
    def total(self) -> float:
        """All parts."""
        return self.layers + self.output


@lru_cache(maxsize=1024)
def forward_flops(model: Model, seq: int) -> TokenFlops:
    """FLOPs of one token's forward pass in a sequence of `seq` tokens.

    Worked example, 1 layer of width 4 on 8 tokens: 4 h^2, 2 s h and 8 h^2 products, each of 2 FLOPs:

    >>> forward_flops(Model("tiny", 1, 4, heads=1, vocabulary=10), seq=8)
    TokenFlops(projections=128, core=128, feed_forward=256, output=80)
    """
    matrices = 3 if model.gated else 2
    dense = (model.layers - model.expert_layers) * model.ffn
    experts = model.expert_layers * (model.top_k + model.shared_experts) * model.expert_ffn
    router = 2 * model.hidden * model.experts * model.expert_layers
    return TokenFlops(
        projections=2 * model.layers * model.hidden * 2 * (model.attention_width + model.kv_width),
        core=4 * model.layers * seq * model.attention_width,
        feed_forward=2 * matrices * model.hidden * (dense + experts) + router,
        output=2 * model.hidden * model.vocabulary,
    )


def model_flops(model: Model, workload: Workload) -> float:
    """FLOPs of one step of all GPUs together: forward and backward pass, however they are run."""
    return 3 * forward_flops(model, workload.seq).total * workload.tokens


def recomputed_flops(model: Model, workload: Workload) -> float:
    """FLOPs of one step that are run a second time.

    full: the layers' forward pass; selective: the core of attention. flash_attention makes the scores anew in its
    backward pass: half of the core.
    """
    forward = forward_flops(model, workload.seq)
    again = {"none": 0.0, "selective": forward.core, "full": forward.layers}[workload.checkpoint]
    scores = forward.core / 2 if workload.flash_attention else 0.0
    return (again + scores) * workload.tokens


def hardware_flops(model: Model, workload: Workload) -> float:
    """FLOPs of one step that are really run: `model_flops` and what recomputation adds.

    Equation 8 of arXiv 2205.05198 adds three times the FLOPs that its text derives for selective recomputation (12
    instead of 4 B s^2 h a layer); this function follows the text, `published.equation_8` the equation.
    """
    return model_flops(model, workload) + recomputed_flops(model, workload)


def chinchilla_flops(parameters: float, tokens: float) -> float:
    """6 N D, training FLOPs by the rule of Hoffmann et al. 2022 (arXiv 2203.15556), attention left out.

    >>> chinchilla_flops(10e9, 205.1e9)
    1.2306e+22
    """
    return 6 * parameters * tokens


def training_days(parameters: float, tokens: float, gpus: int, flops: float) -> float:
    """Days of training with full recomputation: 8 T P / (n X) (arXiv 2104.04473, equation 4).

    flops: what one GPU achieves, in FLOP/s.

    >>> round(training_days(175e9, 300e9, gpus=1024, flops=140e12), 1)
    33.9
    """
    return 8 * tokens * parameters / (gpus * flops) / 86400
