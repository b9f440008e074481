"""What earlier labs built, put on a mesh of ranks: a stage of a Transformer cut by depth and by tensor, and GPipe.

    mesh = Mesh(dp=2, pp=2, tp=2)                       # on each of 8 ranks
    stage = ShardedStage(Transformer(config), mesh)     # this rank's part of the model
    losses = run_gpipe(stage, mesh, micro_batches, loss_of)

What is left to the reader is what joins the axes: which gradient is added up over which axis, the norm of all
gradients, optimizer state spread over dp, saving and loading at another layout.
"""

from __future__ import annotations

from utils.mesh.gpipe import run_gpipe
from utils.mesh.layers import copy_to, reduce_from
from utils.mesh.mesh import AXES, Mesh
from utils.mesh.picture import draw_mesh
from utils.mesh.placement import Placement, shard_of
from utils.mesh.stage import ShardedStage
from utils.mesh.traffic import axis_of, bytes_per_axis, seconds_per_axis

__all__ = [
    "AXES", "Mesh", "Placement", "ShardedStage", "axis_of", "bytes_per_axis", "copy_to", "draw_mesh", "reduce_from",
    "run_gpipe", "seconds_per_axis", "shard_of",
]  # fmt: skip
