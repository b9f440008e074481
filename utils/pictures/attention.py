"""Pictures of attention on ranks: which block of keys and values is where, and who computes which scores.

A colour is a rank: that of a block is the rank it came from, that of a score is the rank that has its query.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .palette import INK, ink_on, rank_color

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NOTHING = "#F2F2F2"


def draw_ring_rounds(ranks: int, ax: Axes | None = None, *, title: str = "") -> Axes:
    """Where each block of keys and values is in each round of a ring that turns right (Liu et al. 2023).

    A row is a rank, a column a round; in round t rank r has the block of rank r - t. Arrows are transfers. Returns
    the Axes; ValueError for fewer than one rank.

    >>> ax = draw_ring_rounds(4)    # 16 blocks, and 3 x 4 arrows
    """
    from matplotlib.patches import Rectangle

    if ranks < 1:
        raise ValueError(f"a ring has at least one rank, not {ranks}")
    if ax is None:
        import matplotlib.pyplot as plt

        ax = plt.subplots(figsize=(1.5 * ranks + 1, 0.62 * ranks + 0.9), layout="constrained")[1]
    for step in range(ranks):
        for rank in range(ranks):
            block, color = (rank - step) % ranks, rank_color((rank - step) % ranks)
            ax.add_patch(Rectangle((1.8 * step, rank + 0.14), 1, 0.72, facecolor=color, edgecolor="none"))
            label = f"k{block} v{block}"
            ax.text(1.8 * step + 0.5, rank + 0.5, label, ha="center", va="center", fontsize=9, color=ink_on(color))
            if step < ranks - 1:
                end = (1.8 * (step + 1) - 0.02, (rank + 1) % ranks + 0.5)
                style = {"arrowstyle": "-|>", "color": rank_color(block), "linewidth": 1.2, "shrinkA": 0, "shrinkB": 0}
                ax.annotate("", end, (1.8 * step + 1.02, rank + 0.5), arrowprops=style)
    ax.set_xlim(-0.1, 1.8 * ranks - 0.6)
    ax.set_ylim(ranks, 0)
    ax.set_yticks([rank + 0.5 for rank in range(ranks)], [f"q{rank} on rank {rank}" for rank in range(ranks)])
    ax.set_xticks([1.8 * step + 0.5 for step in range(ranks)], [f"round {step}" for step in range(ranks)])
    return _bare(ax, title)


def draw_score_owners(owners: Sequence[int], ax: Axes | None = None, *, title: str = "", causal: bool = True) -> Axes:
    """The S x S scores: a row is a query, a column a key, coloured by `owners[query]`, the rank that has the query.

    With `causal` the scores above the diagonal are not computed and stay grey. Behind the title stand each rank's
    shares of the computed scores. Returns the Axes; ValueError without owners.

    >>> ax = draw_score_owners([0, 0, 1, 1])    # rank 0 computes 1 + 2 of 10 scores, rank 1 computes 3 + 4
    """
    from matplotlib.colors import to_rgb

    if not owners:
        raise ValueError("there are no queries to draw")
    if ax is None:
        import matplotlib.pyplot as plt

        ax = plt.subplots(figsize=(3.4, 3.6), layout="constrained")[1]
    size = len(owners)
    drawn = [[not causal or key <= query for key in range(size)] for query in range(size)]
    colors = [
        [to_rgb(rank_color(owner) if seen else NOTHING) for seen in row]
        for owner, row in zip(owners, drawn, strict=True)
    ]
    ax.imshow(colors, interpolation="nearest")
    total = sum(map(sum, drawn))
    shares = [
        sum(sum(row) for owner, row in zip(owners, drawn, strict=True) if owner == rank) / total
        for rank in range(max(owners) + 1)
    ]
    ax.set_xticks([])
    ax.set_yticks([])
    ax.set_xlabel("\n".join(["keys", "rank: " + ", ".join(f"{r}: {s:.0%}" for r, s in enumerate(shares))]), color=INK)
    ax.set_ylabel("queries", color=INK)
    return _bare(ax, title)


def _bare(ax: Axes, title: str) -> Axes:
    ax.tick_params(length=0, labelsize=9)
    for side in ("top", "right", "bottom", "left"):
        ax.spines[side].set_visible(False)
    ax.set_title(title, fontsize=10, loc="left")
    return ax
