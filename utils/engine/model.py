"""A model of Llama's architecture (Touvron et al. 2023, arXiv 2302.13971) for inference, over tensor-parallel ranks.

Written out: RMSNorm (Zhang and Sennrich 2019, arXiv 1910.07467, eq. 4), rotary positions (Su et al. 2021, arXiv
2104.09864, eq. 34), grouped-query attention (Ainslie et al. 2023, arXiv 2305.13245), a feed-forward gated by SiLU
(Shazeer 2020, arXiv 2002.05202), an output matrix that is the embedding. It is called as `utils.models.Decoder` is, so
a cache that serves one serves the other. q, k and v are one matrix, gate and up another: fewer, larger products.
A single token reads the wide matrices by columns, which takes half the time of dot products with their rows; so qkv
lies that way, and gate_up and the output matrix are held in both ways, for more memory.
Left out: training, biases, scaled rotary frequencies.

Shapes: B batch, S tokens of this call, H hidden, N heads, K KV heads, D head_dim, V vocabulary; n, k and _r are those
of this rank.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F

from utils.engine.files import ModelFile, Packed
from utils.engine.parallel import Group, check_divides, gather_columns, pieces_of, place
from utils.engine.parts import Parts
from utils.models import DecoderConfig, full_attention
from utils.models.decoder import Attend


@dataclass(frozen=True)
class LayerWeights:
    """One layer's: attn_norm, ffn_norm [H]; qkv [(n + 2k) D, H]; out [H, n D]; gate_up [2 F_r, H]; down [H, F_r].

    gate_up_single is gate_up for a step of a single token, by columns.
    """

    attn_norm: torch.Tensor
    qkv: torch.Tensor
    out: torch.Tensor
    ffn_norm: torch.Tensor
    gate_up: torch.Tensor
    gate_up_single: torch.Tensor
    down: torch.Tensor


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """x / sqrt(mean of its squares + eps) * weight, over the last dimension.

    >>> rms_norm(torch.tensor([3.0, 4.0]), torch.tensor([1.0, 2.0]), 0.0)
    tensor([0.8485, 2.2627])
    """
    return x * (x.square().mean(-1, keepdim=True) + eps).rsqrt() * weight


def rotary_tables(config: DecoderConfig) -> tuple[torch.Tensor, torch.Tensor]:
    """cos and signed sin of every position's angles, each [max_len, D]: `x cos + x rolled by D/2 * sin` turns x."""
    steps = torch.arange(0, config.head_dim, 2, dtype=torch.float32)
    angles = torch.arange(config.max_len)[:, None] * config.rope_theta ** (-steps / config.head_dim)
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([cos, cos], 1), torch.cat([-sin, sin], 1)


class Model:
    """This rank's share of the model in `file`, float32.

    group: the tensor-parallel group, None for all ranks (or for a process without any). parts: what replaces the
    course's own layers. Attributes: config, sizes of the whole; share, those of this rank, which a cache needs.

    Raises ValueError where the heads do not divide over the ranks.

    >>> Model()(torch.tensor([[504, 3575, 282, 4649, 314]]))[0, -1].argmax()   # doctest: +SKIP
    tensor(7042)
    """

    def __init__(self, file: ModelFile | None = None, group: Group = None, parts: Parts | None = None) -> None:
        file, self.group, self.parts = file or ModelFile(), group, parts or Parts()
        self.config = config = file.config
        rank, world = place(group)
        check_divides(config, world)
        self.share = replace(
            config, hidden=config.hidden // world, heads=config.heads // world, kv_heads=config.kv_heads // world,
            ffn=config.ffn // world,
        )  # fmt: skip
        self.column_linear, self.row_linear = (self.parts.layer(name) for name in ("column_linear", "row_linear"))
        self.vocab_embedding = self.parts.layer("vocab_embedding")
        pieces = pieces_of(config.vocab_size, world)
        self.vocab_start = start = sum(pieces[:rank])
        own = start, start + pieces[rank]
        self.embedding = _rows(file.packed("model.embed_tokens"), *own).float()
        self.lm_head = self.embedding
        if not config.tied:
            self.lm_head = _rows(file.packed("lm_head"), *own).float()
        self.lm_head_single = by_columns(self.lm_head)
        self.layers = [self._layer(file, f"model.layers.{number}", rank, world) for number in range(config.layers)]
        self.norm = file.vector("model.norm")
        self.cos, self.sin = rotary_tables(config)

    def _layer(self, file: ModelFile, name: str, rank: int, world: int) -> LayerWeights:
        config, own = self.config, self.share
        q, k, v = (file.packed(f"{name}.self_attn.{part}_proj") for part in "qkv")
        qkv = self.parts.layer("shard_qkv")(_above(q, k, v).data, config.heads, config.kv_heads, rank, world)
        gate, up = (file.packed(f"{name}.mlp.{part}_proj") for part in ("gate", "up"))
        gate_up = gate.with_data(self.parts.layer("shard_gate_up")(_above(gate, up).data, rank, world)).float()
        out, down = file.packed(f"{name}.self_attn.o_proj"), file.packed(f"{name}.mlp.down_proj")
        return LayerWeights(
            attn_norm=file.vector(f"{name}.input_layernorm"),
            qkv=by_columns(q.with_data(qkv).float()),
            out=out.columns(rank * own.hidden, (rank + 1) * own.hidden).float(),
            ffn_norm=file.vector(f"{name}.post_attention_layernorm"),
            gate_up=gate_up,
            gate_up_single=by_columns(gate_up),
            down=down.columns(rank * own.ffn, (rank + 1) * own.ffn).float(),
        )

    @property
    def nbytes(self) -> int:
        """Bytes of this rank's weights, each counted once: what a decode step reads."""
        held = [self.embedding, self.norm, *([] if self.config.tied else [self.lm_head])]
        return sum(w.nbytes for w in held) + sum(
            w.nbytes for layer in self.layers for name, w in vars(layer).items() if name != "gate_up_single"
        )

    def __call__(
        self, tokens: torch.Tensor, positions: torch.Tensor | None = None, attention: Attend | None = None
    ) -> torch.Tensor:
        """Logits [B, S, V] of tokens [B, S], on every rank; the arguments are those of `utils.models.Decoder`.

        Raises ValueError where a position is not below max_len.
        """
        x = self.hidden(tokens, positions, attention)
        return self.whole(self.logits(x.flatten(0, 1))).unflatten(0, tokens.shape)

    def hidden(
        self, tokens: torch.Tensor, positions: torch.Tensor | None = None, attention: Attend | None = None
    ) -> torch.Tensor:
        """What comes out of the last layer, [B, S, H], before the last norm."""
        if positions is None:
            positions = torch.arange(tokens.shape[1])
        if positions.numel() and positions.max() >= self.config.max_len:
            last = int(positions.max())
            raise ValueError(f"position {last}; this model knows positions below max_len = {self.config.max_len}")
        positions = positions.expand(tokens.shape)
        turn = self.cos[positions][:, :, None], self.sin[positions][:, :, None]  # [B, S, 1, D], the same in all layers
        x = self.vocab_embedding(tokens, self.embedding, self.vocab_start, self.group)
        for number, layer in enumerate(self.layers):
            x = x + self._attention(number, layer, x, turn, positions, attention or full_attention)
            x = x + self._feed_forward(layer, x)
        return x

    def logits(self, x: torch.Tensor) -> torch.Tensor:
        """This rank's columns [R, V_r] of the logits of rows x [R, H] that `hidden` gave."""
        weight = self.lm_head_single if x.shape[0] == 1 else self.lm_head
        return self.column_linear(rms_norm(x, self.norm, self.config.eps), weight, None, self.group)

    def whole(self, part: torch.Tensor) -> torch.Tensor:
        """Logits [R, V] on every rank from each rank's columns [R, V_r] of them."""
        return gather_columns(part, self.config.vocab_size, self.group)

    def _attention(self, number, layer, x, turn, positions, attend) -> torch.Tensor:
        n, k = self.share.heads, self.share.kv_heads
        x = rms_norm(x, layer.attn_norm, self.config.eps)
        qkv = self.column_linear(x, layer.qkv, None, self.group).unflatten(-1, (-1, self.config.head_dim))
        turned, v = qkv.split([n + k, k], dim=2)
        turned = torch.addcmul(turned * turn[0], turned.roll(self.config.head_dim // 2, -1), turn[1])
        q, keys = turned.transpose(1, 2).split([n, k], dim=1)  # [B, n, S, D], [B, k, S, D]
        y = attend(number, q, keys, v.transpose(1, 2), positions)
        return self.row_linear(y.transpose(1, 2).flatten(2), layer.out, None, self.group)

    def _feed_forward(self, layer, x) -> torch.Tensor:
        x = rms_norm(x, layer.ffn_norm, self.config.eps)
        weight = layer.gate_up_single if x.numel() == self.config.hidden else layer.gate_up
        gate, up = self.column_linear(x, weight, None, self.group).chunk(2, -1)
        return self.row_linear(F.silu(gate) * up, layer.down, None, self.group)


def by_columns(weight: torch.Tensor) -> torch.Tensor:
    """The same matrix [out, in] with its columns one after the other in memory.

    >>> by_columns(torch.zeros(5, 3)).stride()
    (1, 5)
    """
    return weight.t().contiguous().t()


def _above(*packed: Packed) -> Packed:
    """Matrices of one width and one kind, one above the other."""
    kinds = {(part.kind, part.shape[1]) for part in packed}
    if len(kinds) > 1:
        raise ValueError(f"matrices of different kinds or widths cannot be one: {sorted(kinds)}")
    return packed[0].with_data(torch.cat([part.data for part in packed]))


def _rows(packed: Packed, start: int, end: int) -> Packed:
    return packed.with_data(packed.data[start:end])
