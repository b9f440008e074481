"""From logits to a token: the largest, or one drawn at a temperature from the most probable (nucleus sampling).

Holtzman et al. 2020, arXiv 1904.09751, section 3.1. Each request draws with a generator of its own, so what it gets
does not depend on who is served beside it. Left out: penalties, beams.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from utils.serving import Request

Probabilities = Callable[..., torch.Tensor]


@dataclass(eq=False)
class Asked(Request):
    """A request that says how its tokens are drawn.

    temperature: 0 takes the most probable token; top_k, top_p: draw from so many, or from the fewest that hold this
    much of the probability; seed: the same seed draws the same tokens, None draws new ones each time.

    Raises ValueError where one of them cannot be.

    >>> Asked(id=0, prompt=[5], max_new=2, temperature=0.5, seed=1).finished
    False
    """

    temperature: float = 0.0
    top_k: int | None = None
    top_p: float = 1.0
    seed: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.temperature < float("inf"):
            raise ValueError(f"temperature is {self.temperature}; it must be 0 or more")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p is {self.top_p}; it must be above 0 and at most 1")
        if self.top_k is not None and self.top_k < 1:
            raise ValueError(f"top_k is {self.top_k}; it must be at least 1")
        self.generator = torch.Generator()
        if self.seed is None:
            self.generator.seed()
        else:
            self.generator.manual_seed(self.seed)


def next_token_probabilities(
    logits: torch.Tensor, temperature: float = 1.0, top_k: int | None = None, top_p: float = 1.0
) -> torch.Tensor:
    """Probabilities [B, V] of the next token from logits [B, V]: temperature first, then top-k, then top-p.

    top_p keeps the fewest tokens that hold at least that much together. Temperature 0 puts everything on the largest.

    >>> next_token_probabilities(torch.tensor([[2.0, 1.0, 0.0]]), top_p=0.5)
    tensor([[1., 0., 0.]])
    """
    if temperature == 0:
        return torch.zeros_like(logits).scatter_(-1, logits.argmax(-1, keepdim=True), 1.0)
    ranked, order = (logits / temperature).softmax(-1).sort(-1, descending=True)
    if top_k is not None:
        ranked[:, top_k:] = 0.0
        ranked = ranked / ranked.sum(-1, keepdim=True)
    before = ranked.cumsum(-1) - ranked
    ranked = ranked.masked_fill(before >= top_p, 0.0) if top_p < 1 else ranked
    ranked[:, 0] = ranked[:, 0].clamp(min=torch.finfo(ranked.dtype).tiny)
    return torch.zeros_like(ranked).scatter_(-1, order, ranked / ranked.sum(-1, keepdim=True))


def draw(logits: torch.Tensor, request: Asked, probabilities: Probabilities | None = None) -> int:
    """One token for `request` from its logits [V]."""
    rule = probabilities or next_token_probabilities
    weights = rule(logits[None], request.temperature, request.top_k, request.top_p)
    return int(torch.multinomial(weights[0], 1, generator=request.generator))
