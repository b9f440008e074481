"""The sizes of a Transformer, checked when they are set."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TransformerConfig:
    """Sizes of a decoder-only Transformer.

    vocab_size: V, 256 for bytes; hidden: H; layers: L; heads: query heads; kv_heads: key and value heads, fewer than
    `heads` for GQA, None for as many (MHA); ffn: F, the width inside a feed-forward, None for 4H; gated: three
    matrices (gate, up, down) in place of two; tied: the output matrix is the embedding; dropout: on both branches of a
    block and on attention weights; max_len: the longest sequence; bias: of all linear layers of a block;
    fused_attention: torch's scaled_dot_product_attention in place of the products written out.

    >>> TransformerConfig(hidden=8, layers=1, heads=2, vocab_size=10, max_len=4).num_parameters()
    1000
    """

    vocab_size: int = 256
    hidden: int = 64
    layers: int = 2
    heads: int = 4
    kv_heads: int | None = None
    ffn: int | None = None
    gated: bool = False
    tied: bool = True
    dropout: float = 0.0
    max_len: int = 64
    bias: bool = True
    fused_attention: bool = False

    def __post_init__(self) -> None:
        for name in ("kv_heads", "ffn"):
            if getattr(self, name) is None:
                object.__setattr__(self, name, self.heads if name == "kv_heads" else 4 * self.hidden)
        for name in ("vocab_size", "hidden", "layers", "heads", "kv_heads", "ffn", "max_len"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} is {value!r}; it must be a whole number of at least 1")
        if self.hidden % self.heads:
            raise ValueError(f"hidden = {self.hidden} does not divide into heads = {self.heads} heads of equal size")
        if self.heads % self.kv_heads:
            raise ValueError(f"heads = {self.heads} do not divide into groups over kv_heads = {self.kv_heads}")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout = {self.dropout}; it must be at least 0 and below 1")

    @property
    def head_dim(self) -> int:
        """The size of one head, H / heads."""
        return self.hidden // self.heads

    @property
    def kv_hidden(self) -> int:
        """The width of all keys of a token, kv_heads * head_dim."""
        return self.kv_heads * self.head_dim

    def num_parameters(self) -> int:
        """How many parameters the model has; a tied matrix counts once."""
        h, kv, f = self.hidden, self.kv_hidden, self.ffn
        attention = 2 * h * h + 2 * h * kv + self.bias * (2 * h + 2 * kv)
        feed_forward = (3 if self.gated else 2) * h * f + self.bias * ((2 if self.gated else 1) * f + h)
        block = attention + feed_forward + 2 * 2 * h
        embeddings = self.vocab_size * h * (1 if self.tied else 2) + self.max_len * h
        return embeddings + self.layers * block + 2 * h
