"""What the engine is made of, part by part: each can be replaced by another with the same name and signature.

They are the functions and classes of the course's labs. A part that is None is the engine's own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

from utils.engine import parallel


@dataclass(frozen=True)
class Parts:
    """The parts of an engine; it travels to ranks, with functions of a notebook's cells inside.

    Of the tensor-parallel lab, all `group` arguments being the tensor-parallel group:
        column_linear(x, weight, bias, group), row_linear(x, weight, bias, group): linear layers, bias is None here
        vocab_embedding(tokens, weight, start, group): the embedding of a split vocabulary
        shard_qkv(weight, heads, kv_heads, rank, world), shard_gate_up(weight, rank, world): a rank's rows of fused
            matrices; they are given rows of bytes
    Of the KV-cache lab:
        gqa_attention(q, k, v, mask): q [B,N,S,D], k, v [B,K,T,D], mask [B,S,T], True where a query may see a key
        next_token_probabilities(logits, temperature, top_k, top_p): logits [B,V] to probabilities [B,V]
    Of the serving lab:
        paged_attention(cache, rows, layer, q, k, v, positions): attention through block tables; where it is given,
            gqa_attention is not used
        block_manager(num_blocks, block_size), scheduler(blocks, max_tokens, max_running): the classes

    Raises TypeError where something given cannot be called.

    >>> Parts(gqa_attention=lambda q, k, v, mask: q).given
    ['gqa_attention']
    """

    column_linear: Callable[..., Any] | None = None
    row_linear: Callable[..., Any] | None = None
    vocab_embedding: Callable[..., Any] | None = None
    shard_qkv: Callable[..., Any] | None = None
    shard_gate_up: Callable[..., Any] | None = None
    gqa_attention: Callable[..., Any] | None = None
    next_token_probabilities: Callable[..., Any] | None = None
    paged_attention: Callable[..., Any] | None = None
    block_manager: Callable[..., Any] | None = None
    scheduler: Callable[..., Any] | None = None

    def __post_init__(self) -> None:
        for name in self.given:
            if not callable(getattr(self, name)):
                raise TypeError(f"{name} is {getattr(self, name)!r}; a function or a class is wanted, or None")

    @property
    def given(self) -> list[str]:
        """The names of the parts that are not the engine's own."""
        return [field.name for field in fields(self) if getattr(self, field.name) is not None]

    def layer(self, name: str) -> Callable[..., Any]:
        """A part of the tensor-parallel lab: the one given, or the engine's own."""
        return getattr(self, name) or getattr(parallel, name)
