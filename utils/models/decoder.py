"""A small decoder of Llama's architecture (Touvron et al. 2023, arXiv 2302.13971), made for inference from scratch.

RMSNorm before each branch (Zhang and Sennrich 2019, arXiv 1910.07467, eq. 4), rotary positions (Su et al. 2021, arXiv
2104.09864, eq. 34), grouped-query attention (Ainslie et al. 2023, arXiv 2305.13245), a feed-forward gated by SiLU
(Shazeer 2020, arXiv 2002.05202), no biases, no dropout. Parameters are named as in transformers' LlamaForCausalLM, so
that weights load across. How a layer attends can be replaced by the caller; a cache of keys and values is such a
replacement, and the model has none of its own. Left out: scaled rotary frequencies, biases, padding masks.

Shapes: B batch, S sequence, H hidden, N heads, K kv heads, D head_dim, F ffn, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

from utils.models.text import IGNORED

Attend = Callable[[int, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class DecoderConfig:
    """Sizes of a decoder, checked when they are set.

    vocab_size: V, 256 for bytes; hidden: H; layers: L; heads: N query heads; kv_heads: K key and value heads, N for
    MHA, 1 for MQA; ffn: F; max_len: positions are below it; rope_theta: the base of the rotary frequencies; eps: of
    the norms; tied: the output matrix is the embedding.

    >>> DecoderConfig(vocab_size=10, hidden=8, layers=1, heads=2, kv_heads=1, ffn=12).num_parameters()
    584
    """

    vocab_size: int = 256
    hidden: int = 64
    layers: int = 2
    heads: int = 4
    kv_heads: int = 2
    ffn: int = 176
    max_len: int = 256
    rope_theta: float = 10000.0
    eps: float = 1e-5
    tied: bool = True

    def __post_init__(self) -> None:
        for name in ("vocab_size", "hidden", "layers", "heads", "kv_heads", "ffn", "max_len"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ValueError(f"{name} is {value!r}; it must be a whole number of at least 1")
        if self.hidden % self.heads:
            raise ValueError(f"hidden = {self.hidden} does not divide into heads = {self.heads} heads of equal size")
        if self.head_dim % 2:
            raise ValueError(f"head_dim = hidden / heads = {self.head_dim} is odd; rotary positions turn pairs")
        if self.heads % self.kv_heads:
            raise ValueError(f"heads = {self.heads} do not divide into groups over kv_heads = {self.kv_heads}")
        if self.rope_theta <= 0 or self.eps <= 0:
            raise ValueError(f"rope_theta = {self.rope_theta} and eps = {self.eps}; both must be above 0")

    @property
    def head_dim(self) -> int:
        """The size of one head, H / N."""
        return self.hidden // self.heads

    def num_parameters(self) -> int:
        """How many parameters the model has; a tied matrix counts once."""
        h, kv = self.hidden, self.kv_heads * self.head_dim
        layer = 2 * h * h + 2 * h * kv + 3 * h * self.ffn + 2 * h
        return (1 if self.tied else 2) * self.vocab_size * h + self.layers * layer + h


def apply_rope(x: torch.Tensor, positions: torch.Tensor, theta: float = 10000.0) -> torch.Tensor:
    """Turns queries or keys by their positions: x [..., S, D], positions [S], or [B,S] for x [B,N,S,D]; a new tensor.

    Elements i and i + D/2 are a pair, turned by the angle position * theta^(-2i/D). Angles are worked out in float32.
    Raises ValueError where the positions do not fit.

    >>> apply_rope(torch.tensor([[1.0, 0.0]]), torch.tensor([1]))  # cos 1, sin 1
    tensor([[0.5403, 0.8415]])
    """
    seq, head_dim = x.shape[-2:]
    fits = positions.shape == (seq,) or (x.dim() == 4 and positions.shape in {(x.shape[0], seq), (1, seq)})
    if not fits:
        raise ValueError(f"positions {list(positions.shape)} do not fit x {list(x.shape)}: [{seq}] or [B, {seq}]")
    steps = torch.arange(0, head_dim, 2, dtype=torch.float32, device=x.device)
    angles = positions.float()[..., None] * theta ** (-steps / head_dim)  # [S,D/2] or [B,S,D/2]
    if positions.dim() == 2:
        angles = angles[:, None]  # the same for all heads
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


def full_attention(
    layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, positions: torch.Tensor
) -> torch.Tensor:
    """Causal attention over the tokens of this call and nothing else: q [B,N,S,D], k, v [B,K,S,D] to [B,N,S,D].

    Token i sees the tokens up to the i-th of the call, whatever their positions say.

    >>> full_attention(0, *(torch.ones(1, 1, 3, 2) for _ in "qkv"), torch.arange(3)[None]).shape
    torch.Size([1, 1, 3, 2])
    """
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)


class SelfAttention(nn.Module):
    """Projections, rotary positions, and whatever `attend` does between them: [B,S,H] to [B,S,H]."""

    def __init__(self, config: DecoderConfig, layer: int) -> None:
        super().__init__()
        self.config, self.layer = config, layer
        h, kv = config.hidden, config.kv_heads * config.head_dim
        self.q_proj, self.o_proj = nn.Linear(h, h, bias=False), nn.Linear(h, h, bias=False)
        self.k_proj, self.v_proj = nn.Linear(h, kv, bias=False), nn.Linear(h, kv, bias=False)

    def forward(self, x: torch.Tensor, positions: torch.Tensor, attend: Attend) -> torch.Tensor:
        q, k, v = (self._heads(proj(x)) for proj in (self.q_proj, self.k_proj, self.v_proj))  # [B,N or K,S,D]
        q, k = (apply_rope(part, positions, self.config.rope_theta) for part in (q, k))
        y = attend(self.layer, q, k, v, positions)
        if y.shape != q.shape:
            raise ValueError(f"attention returned {list(y.shape)}; as many as queries are wanted, {list(q.shape)}")
        return self.o_proj(y.transpose(1, 2).flatten(2))

    def _heads(self, x: torch.Tensor) -> torch.Tensor:
        return x.unflatten(-1, (-1, self.config.head_dim)).transpose(1, 2)


class GatedFeedForward(nn.Module):
    """down(SiLU(gate(x)) * up(x)): [B,S,H] to [B,S,H]."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden, config.ffn, bias=False)
        self.up_proj = nn.Linear(config.hidden, config.ffn, bias=False)
        self.down_proj = nn.Linear(config.ffn, config.hidden, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class DecoderLayer(nn.Module):
    """x + self_attn(norm(x)), then x + mlp(norm(x)): [B,S,H] to [B,S,H]."""

    def __init__(self, config: DecoderConfig, layer: int) -> None:
        super().__init__()
        self.self_attn, self.mlp = SelfAttention(config, layer), GatedFeedForward(config)
        self.input_layernorm = nn.RMSNorm(config.hidden, eps=config.eps)
        self.post_attention_layernorm = nn.RMSNorm(config.hidden, eps=config.eps)

    def forward(self, x: torch.Tensor, positions: torch.Tensor, attend: Attend) -> torch.Tensor:
        x = x + self.self_attn(self.input_layernorm(x), positions, attend)
        return x + self.mlp(self.post_attention_layernorm(x))


class DecoderBody(nn.Module):
    """Embedding, layers and the last norm: tokens [B,S] to [B,S,H]."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden)
        self.layers = nn.ModuleList(DecoderLayer(config, number) for number in range(config.layers))
        self.norm = nn.RMSNorm(config.hidden, eps=config.eps)

    def forward(self, tokens: torch.Tensor, positions: torch.Tensor, attend: Attend) -> torch.Tensor:
        x = self.embed_tokens(tokens)
        for layer in self.layers:
            x = layer(x, positions, attend)
        return self.norm(x)


class Decoder(nn.Module):
    """Token numbers [B,S] to logits [B,S,V].

    Weights are drawn from N(0, 0.02), those that end a branch smaller by sqrt(2L) (GPT-2's rule); norms start at 1.

    >>> Decoder(DecoderConfig())(torch.zeros(2, 5, dtype=torch.long)).shape
    torch.Size([2, 5, 256])
    """

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.config = config
        self.model = DecoderBody(config)
        self.lm_head = nn.Linear(config.hidden, config.vocab_size, bias=False)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                ends_branch = name.endswith(("o_proj.weight", "down_proj.weight"))
                nn.init.normal_(parameter, std=0.02 / math.sqrt(2 * config.layers) if ends_branch else 0.02)
        if config.tied:
            self.lm_head.weight = self.model.embed_tokens.weight

    def forward(
        self, tokens: torch.Tensor, positions: torch.Tensor | None = None, attention: Attend | None = None
    ) -> torch.Tensor:
        """Logits [B,S,V] of tokens [B,S].

        positions [S] or [B,S] say where each token stands, 0, 1, 2, ... unless given. `attention(layer, q, k, v,
        positions)` replaces how every layer attends: it gets the layer's number, q [B,N,S,D], k and v [B,K,S,D] of
        this call's tokens, q and k already turned by their positions [B,S], and returns [B,N,S,D]. Raises ValueError
        where a position is not below max_len.

        >>> seen = []
        >>> def spy(layer, q, k, v, positions):
        ...     seen.append((layer, list(q.shape), list(k.shape)))
        ...     return full_attention(layer, q, k, v, positions)
        >>> _ = Decoder(DecoderConfig())(torch.zeros(1, 3, dtype=torch.long), attention=spy)
        >>> seen
        [(0, [1, 4, 3, 16], [1, 2, 3, 16]), (1, [1, 4, 3, 16], [1, 2, 3, 16])]
        """
        if positions is None:
            positions = torch.arange(tokens.shape[1], device=tokens.device)
        if positions.numel() and positions.max() >= self.config.max_len:
            last = int(positions.max())
            raise ValueError(f"position {last}; this model knows positions below max_len = {self.config.max_len}")
        return self.lm_head(self.model(tokens, positions.expand(tokens.shape), attention or full_attention))

    def loss(self, tokens: torch.Tensor, targets: torch.Tensor, reduction: str = "mean") -> torch.Tensor:
        """Cross-entropy in nats of targets [B,S], over all that are not -100; `reduction`: "mean" or "sum"."""
        logits = self(tokens)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORED, reduction=reduction)
