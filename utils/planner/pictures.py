"""Pictures of plans: bytes of a GPU, parts of a step, and the front of memory against time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from utils.pictures.palette import FAINT, INK, rank_color
from utils.planner.candidate import Candidate

if TYPE_CHECKING:
    from matplotlib.axes import Axes

GB = 1e9


def draw_ledgers(plans: Mapping[str, Candidate], room: float, ax: Axes | None = None) -> Axes:
    """A bar a plan, cut by what the bytes of its fullest GPU are for; room: bytes that may be used, a line.

    >>> ax = draw_ledgers({}, 72e9)
    """
    rows = {name: [(part, nbytes / GB) for part, nbytes in one.memory.rows()] for name, one in plans.items()}
    ax = _bars(rows, ax)
    ax.axvline(room / GB, color=INK, linewidth=1.2, linestyle="--")
    ax.set(xlabel="GB of the fullest GPU (line: usable)", title="what a GPU holds")
    return ax


def draw_steps(plans: Mapping[str, Candidate], ax: Axes | None = None) -> Axes:
    """A bar a plan, cut by where the seconds of a step go.

    >>> ax = draw_steps({})
    """
    ax = _bars({name: one.time.parts() for name, one in plans.items()}, ax)
    ax.set(xlabel="seconds a step", title="where the time goes")
    return ax


def draw_front(
    plans: Sequence[Candidate], room: float | None = None, best: Candidate | None = None, ax: Axes | None = None
) -> Axes:
    """Memory against time of plans (of `search.front`); room: bytes that may be used, best: the plan to mark.

    >>> ax = draw_front([])
    """
    ax = ax or _axes()
    xs, ys = [one.memory.total / GB for one in plans], [one.time.seconds for one in plans]
    ax.step(xs, ys, where="pre", color=rank_color(0), linewidth=1.2, alpha=0.5)
    ax.plot(xs, ys, "o", color=rank_color(0), markersize=4)
    if room is not None:
        ax.axvspan(room / GB, max([room / GB, *xs]) * 1.05, color=FAINT, alpha=0.4, linewidth=0)
        ax.axvline(room / GB, color=INK, linewidth=1.2, linestyle="--")
    if best is not None:
        ax.plot(best.memory.total / GB, best.time.seconds, "D", color=rank_color(5), markersize=7)
        ax.annotate(best.text(), (best.memory.total / GB, best.time.seconds), (10, 12), textcoords="offset points",
                    fontsize=7, color=INK, arrowprops={"arrowstyle": "-", "color": FAINT})  # fmt: skip
    ax.set(xlabel="GB of the fullest GPU", ylabel="seconds a step", title="memory against time: none is better in both")
    return ax


def _bars(rows: Mapping[str, Sequence[tuple[str, float]]], ax: Axes | None) -> Axes:
    ax = ax or _axes(len(rows))
    parts = list(dict.fromkeys(part for row in rows.values() for part, size in row if size > 0))
    for place, row in enumerate(rows.values()):
        left = 0.0
        for part, size in row:
            if part in parts:
                label = part if place == 0 or part not in ax.get_legend_handles_labels()[1] else None
                ax.barh(place, size, 0.7, left, color=_color(parts.index(part)), label=label)
                left += size
        ax.text(left, place, f" {left:.3g}", va="center", fontsize=8, color=INK)
    ax.set_yticks(range(len(rows)), list(rows), fontsize=8)
    ax.invert_yaxis()
    ax.margins(x=0.12)
    if parts:
        ax.legend(fontsize=7, ncols=5, loc="upper center", bbox_to_anchor=(0.5, -0.38))
    return ax


def _color(number: int) -> str:
    return rank_color(number) if number < 8 else FAINT


def _axes(rows: int = 5) -> Axes:
    import matplotlib.pyplot as plt

    return plt.subplots(figsize=(7.5, 1.8 + 0.35 * rows), layout="constrained")[1]
