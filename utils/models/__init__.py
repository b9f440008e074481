"""The thing that gets parallelised: a small Transformer, real text, and a training loop, all dense and in one process.

    from utils.models import Transformer, TransformerConfig, batches, train

    model = Transformer(TransformerConfig(layers=2, hidden=64))
    losses = train(model, batches(8, 32, steps=20), torch.optim.SGD(model.parameters(), lr=0.1))

`Decoder` is a second one, of Llama's architecture, for inference: rotary positions, and attention that a caller may
replace. None of it knows of ranks.
"""

from __future__ import annotations

from utils.models.config import TransformerConfig
from utils.models.decoder import Decoder, DecoderConfig, apply_rope, full_attention
from utils.models.text import IGNORED, batches, stdlib_bytes
from utils.models.train import train
from utils.models.transformer import Attention, Block, FeedForward, Transformer

__all__ = [
    "IGNORED", "Attention", "Block", "Decoder", "DecoderConfig", "FeedForward", "Transformer", "TransformerConfig",
    "apply_rope", "batches", "full_attention", "stdlib_bytes", "train",
]  # fmt: skip
