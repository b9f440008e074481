"""Linear layers, embedding and the exchange of predictions over a tensor-parallel group, forward only.

Columns and rows as in Megatron-LM (Shoeybi et al. 2019, arXiv 1909.08053, section 3), the vocabulary split as there.
A group of one rank sends nothing, and needs no torch.distributed. Left out: backward passes, sequence parallelism.

Shapes: H hidden, F a width, V vocabulary; _r is this rank's part.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
import torch.nn.functional as F

from utils.models import DecoderConfig

Group = dist.ProcessGroup | None
SLICE = 768  # outputs of one product


def place(group: Group = None) -> tuple[int, int]:
    """This rank and how many there are in the group; 0 and 1 in a process without ranks."""
    return (dist.get_rank(group), dist.get_world_size(group)) if dist.is_initialized() else (0, 1)


def check_divides(config: DecoderConfig, world: int) -> None:
    """ValueError where the model cannot be cut over `world` ranks by heads, with the sizes that can.

    >>> check_divides(DecoderConfig(heads=9, kv_heads=3, hidden=72, ffn=12), 2)
    Traceback (most recent call last):
    ValueError: 9 heads and 3 KV heads do not divide over 2 ranks: use 1 or 3
    """
    can = [p for p in range(1, config.kv_heads + 1) if not (config.kv_heads % p or config.heads % p or config.ffn % p)]
    if world not in can:
        raise ValueError(
            f"{config.heads} heads and {config.kv_heads} KV heads do not divide over {world} ranks: "
            f"use {' or '.join(map(str, can))}"
        )


def column_linear(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, group: Group = None
) -> torch.Tensor:
    """This rank's part [..., F_r] of a linear layer: x [..., H] the same on all ranks, weight [F_r, H].

    A wide product of several rows is taken in slices of the weight: MKL spends a third less time on them.
    """
    if weight.shape[0] < 2 * SLICE or not weight.is_contiguous() or x.numel() == x.shape[-1]:
        return F.linear(x, weight, bias)
    y = torch.cat([F.linear(x, part) for part in weight.split(SLICE)], -1)
    return y if bias is None else y + bias


def row_linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, group: Group = None) -> torch.Tensor:
    """The whole output [..., H] from parts x [..., F_r] and weight [H, F_r]: one all-reduce."""
    y = F.linear(x, weight)
    if place(group)[1] > 1:
        dist.all_reduce(y, group=group)
    return y if bias is None else y + bias


def vocab_embedding(tokens: torch.Tensor, weight: torch.Tensor, start: int, group: Group = None) -> torch.Tensor:
    """Rows of tokens [...] as [..., H] where this rank holds rows `start` on, weight [V_r, H]: one all-reduce."""
    if place(group)[1] == 1:
        return F.embedding(tokens, weight)
    own = tokens - start
    mine = (own >= 0) & (own < weight.shape[0])
    rows = F.embedding(own.where(mine, 0), weight) * mine[..., None]
    dist.all_reduce(rows, group=group)
    return rows


def shard_gate_up(weight: torch.Tensor, rank: int, world: int) -> torch.Tensor:
    """This rank's rows of gate above its rows of up, from gate [F, ...] above up [F, ...]."""
    gate, up = weight.chunk(2)
    return torch.cat([gate.tensor_split(world)[rank], up.tensor_split(world)[rank]])


def shard_qkv(weight: torch.Tensor, heads: int, kv_heads: int, rank: int, world: int) -> torch.Tensor:
    """This rank's rows of q, k and v, by heads, from [(N + 2K) D, ...]; `world` divides both numbers of heads."""
    dim = weight.shape[0] // (heads + 2 * kv_heads)
    parts = weight.split([heads * dim, kv_heads * dim, kv_heads * dim])
    return torch.cat([part.tensor_split(world)[rank] for part in parts])


def pieces_of(size: int, world: int) -> list[int]:
    """How `size` rows are shared out over `world` ranks, as torch.tensor_split does: the first get one more.

    >>> pieces_of(11, 3)
    [4, 4, 3]
    """
    return [size // world + (rank < size % world) for rank in range(world)]


def gather_columns(part: torch.Tensor, width: int, group: Group = None) -> torch.Tensor:
    """[R, width] on every rank from parts [R, V_r] of the ranks, in order, shared out as by `pieces_of`."""
    _, world = place(group)
    if world == 1:
        return part
    widths = pieces_of(width, world)
    padded = F.pad(part, (0, widths[0] - part.shape[1]))
    pieces = part.new_empty(world * part.shape[0], widths[0])
    dist.all_gather_single(pieces, padded.contiguous(), group=group)
    return torch.cat([piece[:, :own] for piece, own in zip(pieces.chunk(world), widths, strict=True)], 1)


def greedy(part: torch.Tensor, start: int, group: Group = None) -> torch.Tensor:
    """The number of the largest logit in each row [R], from this rank's columns [R, V_r], which begin at `start`.

    The ranks exchange two numbers a row, not the logits. Of equal logits the first counts, as in torch.argmax.
    """
    best, where = part.max(-1)
    _, world = place(group)
    if world == 1:
        return where
    own = torch.stack([best.double(), (where + start).double()])  # [2, R]; doubles hold every token number
    everyone = own.new_empty(world * 2, own.shape[1])
    dist.all_gather_single(everyone, own, group=group)
    values, numbers = everyone.view(world, 2, -1).unbind(1)
    return numbers.gather(0, values.argmax(0)[None])[0].long()
