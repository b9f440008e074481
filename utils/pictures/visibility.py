"""Who may see whom: a grid with a row for each query and a column for each key.

Rows and columns carry positions, not places: a cached key, a token of this call and padding (-1) look alike in a
tensor and differ only by them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .palette import FAINT, INK, rank_color

if TYPE_CHECKING:
    from matplotlib.axes import Axes

HIDDEN = "#F4F4F4"


def draw_visibility(
    mask: Sequence[Sequence[bool]],
    query_positions: Sequence[int],
    key_positions: Sequence[int],
    ax: Axes | None = None,
    *,
    cached: int = 0,
    title: str = "",
) -> Axes:
    """The mask [S, T]: blue where query i sees key j; the first `cached` columns lie left of a line.

    Padding (position -1) is marked with a dash. Returns the Axes; ValueError where the sizes do not fit.

    >>> ax = draw_visibility([[1, 1, 0], [1, 1, 1]], [1, 2], [0, 1, 2], cached=1)
    """
    if len(mask) != len(query_positions) or any(len(row) != len(key_positions) for row in mask):
        raise ValueError(f"the mask must be {len(query_positions)} x {len(key_positions)}, a row for each query")
    if ax is None:
        import matplotlib.pyplot as plt

        size = 0.4 * len(key_positions) + 1, 0.4 * len(query_positions) + 0.9
        ax = plt.subplots(figsize=size, layout="constrained")[1]
    from matplotlib.patches import Rectangle

    for i, row in enumerate(mask):
        for j, seen in enumerate(row):
            color = rank_color(0) if seen else HIDDEN
            ax.add_patch(Rectangle((j, i), 1, 1, facecolor=color, edgecolor="white", linewidth=1.5))
    if cached:
        ax.plot([cached, cached], [-0.1, len(mask) + 0.1], color=INK, linewidth=1.6)
    ax.set_xlim(-0.1, len(key_positions) + 0.1)
    ax.set_ylim(len(mask) + 0.1, -0.1)
    ax.set_aspect("equal")
    _positions(ax.set_xticks, key_positions)
    _positions(ax.set_yticks, query_positions)
    ax.tick_params(length=0, labelsize=8, colors=INK)
    ax.xaxis.tick_top()
    ax.xaxis.set_label_position("top")
    ax.set_xlabel("position of the key", fontsize=8)
    ax.set_ylabel("of the query", fontsize=8)
    for side in ax.spines.values():
        side.set_color(FAINT)
        side.set_visible(False)
    ax.set_title(title, fontsize=9, loc="left")
    return ax


def _positions(set_ticks, positions: Sequence[int]) -> None:
    set_ticks([place + 0.5 for place in range(len(positions))], ["–" if p < 0 else str(p) for p in positions])
