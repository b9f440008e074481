"""One rank's part of a Transformer: some blocks (its stage along pp), and of those its pieces (along tp).

The first stage has the embeddings, the last the final norm and the output matrix, which is the embedding again where
the model ties them. Parameters keep the names that they have in the whole model.

Shapes: b rows of a micro-batch, S sequence, H hidden, V vocabulary.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from utils.mesh.layers import ShardedBlock, ShardedLinear, own_module
from utils.mesh.mesh import Mesh
from utils.mesh.placement import Placement
from utils.models import Transformer


class ShardedStage(nn.Module):
    """This rank's part of `model`, which is whole and equal on all ranks; its weights are copied.

    forward: [b,S,H] to [b,S,H]; the first stage takes token numbers [b,S], the last returns logits [b,S,V].

    Attributes:
        placements: name in the whole model -> Placement, one for each of `named_parameters()`, in the same order.
        first, last: whether it is the first stage, the last one.
        config: that of the model.

    Raises ValueError where layers, heads or ffn do not divide, and for a model with dropout.

    >>> stage = ShardedStage(model, Mesh(tp=2))                          # doctest: +SKIP
    >>> stage.placements["blocks.0.feed_forward.down.weight"]
    Placement(kind='sharded', shape=(8, 32), dim=1, tied=False)
    """

    def __init__(self, model: Transformer, mesh: Mesh) -> None:
        super().__init__()
        config, stages, index = model.config, mesh.size("pp"), mesh.coordinate("pp")
        if config.layers % stages:
            raise ValueError(f"{config.layers} layers do not divide over pp = {stages}")
        if config.dropout:
            raise ValueError("a sharded stage has no dropout; make the model with dropout=0")
        self.config, self.first, self.last = config, index == 0, index == stages - 1
        each = config.layers // stages
        group, blocks = mesh.group("tp"), range(index * each, (index + 1) * each)
        holds_embedding = self.first or (self.last and config.tied)
        self.embedding = own_module(model.embedding) if holds_embedding else None
        self.positions = own_module(model.positions) if self.first else None
        self.blocks = nn.ModuleDict({str(k): ShardedBlock(model.blocks[k], group) for k in blocks})
        self.norm = own_module(model.norm) if self.last else None
        self.head = own_module(model.head) if self.last and not config.tied else None
        self.placements = {name: self._placement(name, model, stages) for name, _ in self.named_parameters()}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.first:
            x = self.embedding(x) + self.positions(torch.arange(x.shape[1]))
        for block in self.blocks.values():
            x = block(x)
        if not self.last:
            return x
        return F.linear(self.norm(x), self.embedding.weight if self.head is None else self.head.weight)

    def _placement(self, name: str, model: Transformer, stages: int) -> Placement:
        parent, _, leaf = name.rpartition(".")
        part = self.get_submodule(parent)
        if isinstance(part, ShardedLinear):
            return part.placements(model.get_submodule(parent))[leaf]
        tied = name == "embedding.weight" and model.config.tied and stages > 1
        return Placement("replicated", tuple(model.get_parameter(name).shape), tied=tied)
