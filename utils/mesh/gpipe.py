"""GPipe over the pp axis of a mesh: all forwards, then all backwards (Huang et al. 2019, arXiv 1811.06965).

Left out: schedules that hold fewer activations, see the pipeline notebook.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist

from utils.mesh.mesh import Mesh
from utils.mesh.stage import ShardedStage

Loss = Callable[[int, torch.Tensor], torch.Tensor]


def run_gpipe(stage: ShardedStage, mesh: Mesh, micro_batches: Sequence[torch.Tensor], loss_of: Loss) -> list[float]:
    """One forward and one backward of each micro-batch; gradients are added to those already in the stage.

    Args:
        micro_batches: token numbers [b,S] of each, given to every stage (all but the first use only their shape).
        loss_of: `loss_of(k, logits)` is the loss of micro-batch k, a scalar, from logits [b,S,V]. Called on the last
            stage only, and its backward pass starts from the value as it is: what has to be divided is divided in it.

    Returns: on the last stage the losses as numbers, one a micro-batch; elsewhere [].

    Worked example: with `loss_of = lambda k, logits: F.cross_entropy(logits.flatten(0, 1), targets[k].flatten()) / 2`
    two micro-batches leave the gradient of the mean over both.
    """
    inputs, outputs, pending = [], [], []
    for k, tokens in enumerate(micro_batches):
        x = tokens if stage.first else _receive(stage, mesh, tokens.shape, -1).requires_grad_()
        y = stage(x)
        inputs.append(x)
        outputs.append(loss_of(k, y) if stage.last else y)
        if not stage.last:
            pending.append(_send(mesh, y, +1))
    for tokens, x, y in zip(micro_batches, inputs, outputs, strict=True):
        y.backward(None if stage.last else _receive(stage, mesh, tokens.shape, +1))
        if not stage.first:
            pending.append(_send(mesh, x.grad, -1))
    for request, _ in pending:
        request.wait()
    return [loss.item() for loss in outputs] if stage.last else []


def _receive(stage: ShardedStage, mesh: Mesh, shape: torch.Size, step: int) -> torch.Tensor:
    dtype = next(stage.parameters()).dtype
    x = torch.empty(*shape, stage.config.hidden, dtype=dtype)
    dist.recv(x, group=mesh.group("pp"), group_src=mesh.coordinate("pp") + step)
    return x


def _send(mesh: Mesh, x: torch.Tensor, step: int) -> tuple[dist.Work, torch.Tensor]:
    """Start sending; the tensor is kept beside the request, so that it lives until the request is over."""
    x = x.detach().contiguous()
    return dist.isend(x, group=mesh.group("pp"), group_dst=mesh.coordinate("pp") + step), x
