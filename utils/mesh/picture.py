"""A picture of a mesh: every rank a box at its place, ranks of one group in one colour."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from utils.mesh.mesh import AXES
from utils.pictures.palette import INK, ink_on, rank_color

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def draw_mesh(shape: Sequence[int], axis: str, ax: Axes | None = None) -> Axes:
    """Draw the ranks of a (dp, pp, tp) mesh; those in one group along `axis` share a colour. Returns the Axes.

    A block for each replica (dp) from left to right; in it a row for each stage (pp), a column for each tp rank.

    >>> draw_mesh((2, 2, 2), "tp").get_title()
    'groups along tp'
    """
    if ax is None:
        import matplotlib.pyplot as plt

        ax = plt.subplots(figsize=(3.6, 2.2), layout="constrained")[1]
    dp, pp, tp = shape
    place = AXES.index(axis)
    colors: dict[tuple[int, ...], str] = {}
    for rank in range(dp * pp * tp):
        coordinates = (rank // (pp * tp), rank // tp % pp, rank % tp)
        d, p, t = coordinates
        group = coordinates[:place] + coordinates[place + 1 :]
        color = colors.setdefault(group, rank_color(len(colors)))
        x, y = d * (tp + 0.5) + t, pp - 1 - p
        ax.add_patch(_box(x, y, color))
        ax.text(x, y, str(rank), ha="center", va="center", color=ink_on(color), fontsize=11)
    for d in range(dp):
        ax.text(d * (tp + 0.5) + (tp - 1) / 2, pp - 0.35, f"dp {d}", ha="center", va="bottom", color=INK, fontsize=8)
    for p in range(pp):
        ax.text(-0.65, pp - 1 - p, f"pp {p}", ha="right", va="center", color=INK, fontsize=8)
    ax.set(xlim=(-1.5, dp * (tp + 0.5) - 0.4), ylim=(-0.6, pp - 0.05), title=f"groups along {axis}")
    ax.set_aspect("equal")
    ax.axis("off")
    return ax


def _box(x: float, y: float, color: str):
    from matplotlib.patches import FancyBboxPatch

    return FancyBboxPatch((x - 0.36, y - 0.32), 0.72, 0.64, boxstyle="round,pad=0.05", facecolor=color, edgecolor=INK)
