"""Tensor-parallel layers from a whole layer's weights (Megatron-LM, Shoeybi et al. 2019, arXiv 1909.08053, section 3).

`copy_to` and `reduce_from` are the paper's f and g. A column-parallel linear keeps a piece of the outputs, a
row-parallel one a piece of the inputs; a pair needs one all-reduce forward and one backward. Left out: sequence
parallelism, a split vocabulary, dropout.

Shapes: b rows, S sequence, H hidden, F ffn, N heads, K kv heads, D head_dim.
"""

from __future__ import annotations

import copy

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

from utils.mesh.placement import Placement, shard_of
from utils.models import Attention, Block, FeedForward


class _CopyTo(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return _summed(grad, ctx.group), None


class _ReduceFrom(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        return _summed(x, group)

    @staticmethod
    def backward(ctx, grad):
        return grad, None


def _summed(x: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
    if dist.get_world_size(group) == 1:
        return x.view_as(x)
    total = x.detach().clone(memory_format=torch.contiguous_format)
    dist.all_reduce(total, group=group)
    return total


def copy_to(x: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
    """The paper's f: x forward, the sum of the group's gradients backward. Shape and dtype stay."""
    return _CopyTo.apply(x, group)


def reduce_from(x: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
    """The paper's g: the sum of the group's x forward, the gradient as it comes backward. Shape and dtype stay."""
    return _ReduceFrom.apply(x, group)


class ShardedLinear(nn.Module):
    """A piece of `linear`: "column" keeps outputs, "row" keeps inputs, None keeps all.

    column: [..., in] to [..., out/tp]; row: [..., in/tp] to [..., out], summed over the group, bias added after.
    """

    def __init__(self, linear: nn.Linear, cut: str | None, group: dist.ProcessGroup) -> None:
        super().__init__()
        self.cut, self.group = cut, group
        index, count = dist.get_rank(group), dist.get_world_size(group)
        weight_dim = {"column": 0, "row": 1, None: None}[cut]
        self.weight = _own(shard_of(linear.weight, weight_dim, index, count))
        bias_dim = 0 if cut == "column" else None
        self.bias = None if linear.bias is None else _own(shard_of(linear.bias, bias_dim, index, count))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.cut != "row":
            return F.linear(x, self.weight, self.bias)
        y = reduce_from(F.linear(x, self.weight), self.group)
        return y if self.bias is None else y + self.bias

    def placements(self, linear: nn.Linear) -> dict[str, Placement]:
        """By "weight" and "bias". Kept whole inside split work, the gradient is a share: "partial"."""
        kinds = {
            "column": (("sharded", 0), ("sharded", 0)),
            "row": (("sharded", 1), ("replicated", None)),
            None: (("partial", None), ("partial", None)),
        }[self.cut]
        tensors = {"weight": linear.weight, "bias": linear.bias}
        return {
            name: Placement(kind, tuple(tensors[name].shape), dim)
            for name, (kind, dim) in zip(tensors, kinds, strict=True)
            if tensors[name] is not None
        }


class ShardedAttention(nn.Module):
    """Heads dealt out over the group: [b,S,H] to [b,S,H].

    Where there are fewer key and value heads than ranks, every rank keeps k_proj and v_proj whole and uses the heads
    that its own query heads need: their gradients are then shares.
    """

    def __init__(self, whole: Attention, group: dist.ProcessGroup) -> None:
        super().__init__()
        config, count = whole.config, dist.get_world_size(group)
        if config.heads % count:
            raise ValueError(f"{config.heads} heads do not divide over tp = {count}")
        self.head_dim, self.group = config.head_dim, group
        split_kv = config.kv_heads % count == 0
        cuts = {"q_proj": "column", "k_proj": "column" if split_kv else None, "o_proj": "row"}
        cuts["v_proj"] = cuts["k_proj"]
        for name, cut in cuts.items():
            setattr(self, name, ShardedLinear(getattr(whole, name), cut, group))
        mine = torch.arange(config.heads).chunk(count)[dist.get_rank(group)] // (config.heads // config.kv_heads)
        first = config.kv_heads // count * dist.get_rank(group) if split_kv else 0
        self.register_buffer("kv_of_head", mine - first, persistent=False)  # [N/tp]: which kept kv head each one uses

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = copy_to(x, self.group)
        projections = (self.q_proj, self.k_proj, self.v_proj)
        q, k, v = (p(x).unflatten(-1, (-1, self.head_dim)).transpose(1, 2) for p in projections)
        k, v = k[:, self.kv_of_head], v[:, self.kv_of_head]  # [b,N/tp,S,D]
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(y.transpose(1, 2).flatten(2))


class ShardedFeedForward(nn.Module):
    """[b,S,H] to [b,S,F/tp] and back: one all-reduce."""

    def __init__(self, whole: FeedForward, group: dist.ProcessGroup) -> None:
        super().__init__()
        self.group = group
        self.gate = None if whole.gate is None else ShardedLinear(whole.gate, "column", group)
        self.up, self.down = ShardedLinear(whole.up, "column", group), ShardedLinear(whole.down, "row", group)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = copy_to(x, self.group)
        inner = F.gelu(self.up(x)) if self.gate is None else F.silu(self.gate(x)) * self.up(x)
        return self.down(inner)


class ShardedBlock(nn.Module):
    """A block of the Transformer whose two branches are split over the group; norms are on every rank."""

    def __init__(self, whole: Block, group: dist.ProcessGroup) -> None:
        super().__init__()
        self.norm1, self.norm2 = own_module(whole.norm1), own_module(whole.norm2)
        self.attention = ShardedAttention(whole.attention, group)
        self.feed_forward = ShardedFeedForward(whole.feed_forward, group)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.feed_forward(self.norm2(x))


def own_module(module: nn.LayerNorm | nn.Embedding | nn.Linear) -> nn.Module:
    """The same module with parameters of its own."""
    return copy.deepcopy(module)


def _own(tensor: torch.Tensor) -> nn.Parameter:
    return nn.Parameter(tensor.detach().clone(memory_format=torch.contiguous_format))
