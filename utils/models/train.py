"""Training in one process: what every parallel training is held to."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from utils.models.decoder import Decoder
from utils.models.transformer import Transformer


def train(
    model: Transformer | Decoder,
    batches: Iterable[tuple[torch.Tensor, torch.Tensor]],
    optimizer: torch.optim.Optimizer,
    *,
    micro_batches: int = 1,
    max_norm: float | None = None,
) -> list[float]:
    """One step a batch; the loss of each step (nats a token), taken before the step.

    micro_batches: each batch is worked through in so many parts, whose gradients add up to that of the whole batch,
    however the counted targets lie; max_norm: gradients are scaled down to at most this global norm.

    >>> losses = train(model, batches(8, 32, steps=100), torch.optim.Adam(model.parameters(), lr=3e-3))
    >>> losses[0] > 5 > losses[-1]
    True
    """
    losses = []
    for tokens, targets in batches:
        optimizer.zero_grad(set_to_none=True)
        counted = (targets >= 0).sum().clamp(min=1)
        total = 0.0
        for part, wanted in zip(tokens.tensor_split(micro_batches), targets.tensor_split(micro_batches), strict=True):
            if part.numel():
                loss = model.loss(part, wanted, reduction="sum") / counted
                loss.backward()
                total += loss.item()
        if max_norm is not None:
            torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)
        optimizer.step()
        losses.append(total)
    return losses
