"""A small decoder-only Transformer (Vaswani et al. 2017, arXiv 1706.03762), with the norm before each branch.

Options: grouped-query attention (Ainslie et al. 2023, arXiv 2305.13245), a gated feed-forward (Shazeer 2020, arXiv
2002.05202: SiLU(x W_gate) * (x W_up), then W_down), tied embeddings, dropout. Positions are learned. Left out: rotary
positions, a cache, padding masks.

Shapes: B batch, S sequence, H hidden, N heads, K kv heads, D head_dim, F ffn, V vocabulary.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import nn

from utils.models.config import TransformerConfig
from utils.models.text import IGNORED


class Attention(nn.Module):
    """Causal self-attention: [B,S,H] to [B,S,H]."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config = config
        h, kv, bias = config.hidden, config.kv_hidden, config.bias
        self.q_proj, self.o_proj = nn.Linear(h, h, bias), nn.Linear(h, h, bias)
        self.k_proj, self.v_proj = nn.Linear(h, kv, bias), nn.Linear(h, kv, bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (self._heads(proj(x)) for proj in (self.q_proj, self.k_proj, self.v_proj))  # [B,N or K,S,D]
        group = self.config.heads // self.config.kv_heads
        if group > 1:  # each key and value head serves `group` query heads in a row
            k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
        dropout = self.config.dropout if self.training else 0.0
        if self.config.fused_attention:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=dropout)
        else:
            y = self._attend(q, k, v, dropout)
        return self.o_proj(y.transpose(1, 2).flatten(2))  # [B,S,H]

    def _heads(self, x: torch.Tensor) -> torch.Tensor:
        return x.unflatten(-1, (-1, self.config.head_dim)).transpose(1, 2)

    @staticmethod
    def _attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, dropout: float) -> torch.Tensor:
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])  # [B,N,S,S]
        later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
        weights = scores.masked_fill(later, -math.inf).softmax(-1)
        if dropout:
            weights = F.dropout(weights, dropout)
        return weights @ v


class FeedForward(nn.Module):
    """The feed-forward of a block: [B,S,H] to [B,S,F] and back; GELU, or gated by SiLU."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        h, f, bias = config.hidden, config.ffn, config.bias
        self.gate = nn.Linear(h, f, bias) if config.gated else None
        self.up, self.down = nn.Linear(h, f, bias), nn.Linear(f, h, bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inner = F.gelu(self.up(x)) if self.gate is None else F.silu(self.gate(x)) * self.up(x)
        return self.down(inner)


class Block(nn.Module):
    """x + attention(norm(x)), then x + feed_forward(norm(x)): [B,S,H] to [B,S,H]."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(config.hidden), Attention(config)
        self.norm2, self.feed_forward = nn.LayerNorm(config.hidden), FeedForward(config)
        self.dropout = config.dropout

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self._drop(self.attention(self.norm1(x)))
        return x + self._drop(self.feed_forward(self.norm2(x)))

    def _drop(self, x: torch.Tensor) -> torch.Tensor:
        return F.dropout(x, self.dropout) if self.training and self.dropout else x


class Transformer(nn.Module):
    """Token numbers [B,S] to logits [B,S,V].

    Weights are drawn from N(0, 0.02), those that end a branch smaller by sqrt(2L) (GPT-2's rule); biases are 0.

    >>> Transformer(TransformerConfig())(torch.zeros(2, 5, dtype=torch.long)).shape
    torch.Size([2, 5, 256])
    """

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab_size, config.hidden)
        self.positions = nn.Embedding(config.max_len, config.hidden)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.hidden)
        self.head = nn.Linear(config.hidden, config.vocab_size, bias=False)
        self._initialise()
        if config.tied:
            self.head.weight = self.embedding.weight

    def _initialise(self) -> None:
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                ends_branch = name.endswith(("o_proj.weight", "down.weight"))
                std = 0.02 / math.sqrt(2 * self.config.layers) if ends_branch else 0.02
                nn.init.normal_(parameter, std=std)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        length = tokens.shape[1]
        if length > self.config.max_len:
            raise ValueError(f"a sequence of {length} tokens; this model takes at most max_len = {self.config.max_len}")
        x = self.embedding(tokens) + self.positions(torch.arange(length, device=tokens.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))

    def loss(self, tokens: torch.Tensor, targets: torch.Tensor, reduction: str = "mean") -> torch.Tensor:
        """Cross-entropy in nats of targets [B,S], over all that are not -100; `reduction`: "mean" or "sum"."""
        logits = self(tokens)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORED, reduction=reduction)
