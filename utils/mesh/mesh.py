"""A three-dimensional mesh of ranks: where this rank is, and its group along each axis.

Ranks are laid out row-major over (dp, pp, tp): tp counts fastest, so that neighbours in rank, which share a machine,
form the tensor-parallel groups (Narayanan et al. 2021, arXiv 2104.04473, section 3). The groups are torch's own
(`init_device_mesh`). Left out: more axes.
"""

from __future__ import annotations

import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

AXES = ("dp", "pp", "tp")


class Mesh:
    """dp x pp x tp ranks; every rank of the world makes it, and the product is the world size, else ValueError.

    >>> mesh = Mesh(dp=2, pp=1, tp=3)                                    # doctest: +SKIP
    >>> mesh.coordinate("tp"), mesh.size("tp"), mesh.ranks("tp")         # on rank 4
    (1, 3, [3, 4, 5])
    """

    def __init__(self, dp: int = 1, pp: int = 1, tp: int = 1) -> None:
        self.shape = (dp, pp, tp)
        if dp * pp * tp != dist.get_world_size():
            raise ValueError(f"dp {dp} x pp {pp} x tp {tp} = {dp * pp * tp} ranks; there are {dist.get_world_size()}")
        self._mesh = init_device_mesh("cpu", self.shape, mesh_dim_names=AXES)
        self._coordinates = dict(zip(AXES, self._mesh.get_coordinate(), strict=True))

    def size(self, axis: str) -> int:
        """How many ranks the group along `axis` ("dp", "pp" or "tp") has."""
        return self.shape[AXES.index(axis)]

    def coordinate(self, axis: str) -> int:
        """This rank's place along `axis`, from 0; also its rank within `group(axis)`."""
        return self._coordinates[axis]

    def group(self, axis: str) -> dist.ProcessGroup:
        """The process group of the ranks that differ from this one only along `axis`."""
        return self._mesh.get_group(axis)

    def ranks(self, axis: str) -> list[int]:
        """The global ranks of `group(axis)`, in the order of their coordinates."""
        return dist.get_process_group_ranks(self.group(axis))
