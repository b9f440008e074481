"""Pictures of a layer of experts: which row went where, and how the load is spread.

A rank's colour is that of the rank a token came from, so that a glance shows whose rows an expert holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .palette import FAINT, INK, ink_on, rank_color

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CELL = 0.34  # inches


def draw_dispatch(
    ids: Sequence[Sequence[int]], experts: int, ax: Axes | None = None, *, capacity: int | None = None, title: str = ""
) -> Axes:
    """Tokens on the left, rank by rank, and on the right the rows of each expert in the order in which they arrive.

    ids[r][t] is the expert of rank r's token t, top-1; experts divide evenly over the len(ids) ranks. With `capacity`
    the rows behind it are drawn dashed: dropped. Returns the Axes; ValueError for an expert that is not there.

    >>> ax = draw_dispatch([[1, 0, 1], [1]], experts=2)    # expert 1 gets tokens 0 and 2 of rank 0 and 0 of rank 1
    """
    ranks = len(ids)
    if experts % ranks:
        raise ValueError(f"{experts} experts do not divide evenly over {ranks} ranks")
    wrong = [expert for own in ids for expert in own if not 0 <= expert < experts]
    if wrong:
        raise ValueError(f"there is no expert {wrong[0]}; there are 0 to {experts - 1}")
    tokens = [(rank, token, expert) for rank, own in enumerate(ids) for token, expert in enumerate(own)]
    ax = ax or _figure(len(tokens) + ranks, experts * 1.0)
    heights = _left_heights(ids)
    queue = [0] * experts
    for rank, token, expert in tokens:
        place = queue[expert]
        queue[expert] += 1
        dropped = capacity is not None and place >= capacity
        y, target = heights[rank, token], (7.0 + 1.05 * place, heights["top"] - _step(heights, experts) * expert)
        _cell(ax, 0, y, f"{token}", rank, False)
        _cell(ax, *target, f"{token}", rank, dropped)
        style = {"linestyle": ":" if dropped else "-", "linewidth": 1.1, "alpha": 0.75}
        ax.plot([1.05, target[0] - 0.05], [y + 0.45, target[1] + 0.45], color=rank_color(rank), zorder=1, **style)
    end = 7.0 + 1.05 * max([1, *queue])
    for rank, own in enumerate(ids):
        middle = sum(heights[rank, t] for t in range(len(own))) / max(len(own), 1)
        if own:
            ax.text(-0.25, middle + 0.45, f"rank {rank}", ha="right", va="center", fontsize=9, color=INK)
    for expert in range(experts):
        y = heights["top"] - _step(heights, experts) * expert
        owner = expert // (experts // ranks)
        label = f"expert {expert}\non rank {owner}"
        ax.text(end + 0.3, y + 0.45, label, ha="left", va="center", fontsize=8, color=INK)
    ax.set_xlim(-2.2, end + 3.2)
    ax.set_ylim(-0.3, heights["top"] + 1.2)
    ax.set_aspect("equal", anchor="W")
    ax.axis("off")
    ax.set_title(title, fontsize=10, loc="left")
    return ax


def _left_heights(ids: Sequence[Sequence[int]]) -> dict:
    """The height of each token, from the top, with a gap between ranks; "top" is the highest."""
    order = [(rank, token) for rank, own in enumerate(ids) for token in range(len(own))]
    top = max(len(order) - 1 + 0.5 * (len(ids) - 1), 1.6 * 1)
    heights: dict = {key: top - place - 0.5 * key[0] for place, key in enumerate(order)}
    return heights | {"top": top}


def _step(heights: dict, experts: int) -> float:
    return heights["top"] / max(experts - 1, 1)


def _cell(ax: Axes, x: float, y: float, text: str, rank: int, dropped: bool) -> None:
    from matplotlib.patches import Rectangle

    color = rank_color(rank)
    face, edge, line = ("white", color, "--") if dropped else (color, "white", "-")
    ax.add_patch(Rectangle((x, y), 1, 0.9, facecolor=face, edgecolor=edge, linestyle=line, linewidth=1.2, zorder=2))
    ink = INK if dropped else ink_on(color)
    ax.text(x + 0.5, y + 0.45, text, ha="center", va="center", fontsize=8, color=ink, zorder=3)


def draw_load(loads: Sequence[Sequence[float]], ax: Axes | None = None, *, title: str = "") -> Axes:
    """The share of the tokens that each expert got, step by step, one band an expert; balanced bands are equal.

    loads[step][expert] are shares that add up to 1 in each step. Returns the Axes; ValueError where they do not.

    >>> ax = draw_load([[1.0, 0.0], [0.6, 0.4], [0.5, 0.5]])
    """
    sums = [sum(row) for row in loads]
    if not sums or any(abs(total - 1) > 1e-3 for total in sums):
        raise ValueError(f"the shares of a step add up to 1, not to {min(sums, default=0):.3g}")
    if ax is None:
        import matplotlib.pyplot as plt

        ax = plt.subplots(figsize=(5, 2.8), layout="constrained")[1]
    experts = len(loads[0])
    columns = [[row[expert] for row in loads] for expert in range(experts)]
    ax.stackplot(range(len(loads)), columns, colors=[rank_color(e) for e in range(experts)], edgecolor="white", lw=0.3)
    for cut in range(1, experts):
        ax.axhline(cut / experts, color=FAINT, linewidth=0.6, linestyle=":")
    ax.set(xlim=(0, max(len(loads) - 1, 1)), ylim=(0, 1), xlabel="step", ylabel="share of the tokens")
    ax.set_title(title, fontsize=10, loc="left")
    return ax


def draw_matrix_of_rows(rows: Sequence[Sequence[int]], ax: Axes | None = None, *, title: str = "") -> Axes:
    """rows[r][s] rows went from rank r to rank s: a grid of numbers, darker for more; what stayed at home is hatched.

    Returns the Axes; ValueError for a matrix that is not square.

    >>> ax = draw_matrix_of_rows([[3, 1], [0, 4]])
    """
    from matplotlib.patches import Rectangle

    ranks = len(rows)
    if any(len(row) != ranks for row in rows):
        raise ValueError(f"{ranks} ranks send to {ranks} ranks; a row has {len(rows[0])} numbers")
    ax = ax or _figure(ranks + 2, ranks + 2)
    most = max(max(row) for row in rows) or 1
    for r, row in enumerate(rows):
        for s, count in enumerate(row):
            shade = 0.06 + 0.74 * count / most
            hatch = "//" if r == s else None
            corner = (s, ranks - 1 - r)
            patch = Rectangle(corner, 0.94, 0.94, facecolor=(0, 0.45, 0.7, shade), edgecolor="white", hatch=hatch, lw=0)
            ax.add_patch(patch)
            ink = "white" if shade > 0.5 else INK
            ax.text(s + 0.47, corner[1] + 0.47, str(count), ha="center", va="center", fontsize=9, color=ink)
    ticks = [r + 0.47 for r in range(ranks)]
    ax.set_xticks(ticks, [f"to {s}" for s in range(ranks)], fontsize=8)
    ax.set_yticks(ticks, [f"from {r}" for r in reversed(range(ranks))], fontsize=8)
    ax.tick_params(length=0)
    ax.set_xlim(-0.05, ranks)
    ax.set_ylim(-0.05, ranks)
    ax.set_aspect("equal", anchor="W")
    for side in ax.spines.values():
        side.set_visible(False)
    ax.set_title(title, fontsize=10, loc="left")
    return ax


def _figure(rows: float, columns: float) -> Axes:
    import matplotlib.pyplot as plt

    return plt.subplots(figsize=(max(4.0, CELL * columns + 3), CELL * rows + 0.6), layout="constrained")[1]
