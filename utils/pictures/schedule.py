"""Pictures of pipeline schedules: a row a rank, a box an action, and what stays empty is idle."""

from __future__ import annotations

from typing import TYPE_CHECKING

from utils.schedules import Timeline

from .palette import FAINT, INK, ink_on, rank_color

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NARROWEST = 0.012  # of the width: a narrower box has no room for its number


def draw_schedule(
    timeline: Timeline, ax: Axes | None = None, *, title: str = "", unit: str = "", until: float | None = None
) -> Axes:
    """Gantt chart of a timeline, played (`utils.schedules.play`) or measured.

    A box is one action: forwards in the light, backwards in the full colour of the micro-batch, with its number; with
    several stages on a rank, the stage before it. What stays empty is the bubble, whose share stands in the title.
    Times are in the timeline's unit; `unit` is written at the axis, whose end is `until` unless the timeline is
    longer. Returns the Axes.

    >>> from utils.schedules import play, read_actions
    >>> ax = draw_schedule(play([read_actions("0F0 0B0"), read_actions("1F0 1B0")]))
    """
    if ax is None:
        ax = _figure(timeline.ranks)
    start = min((span.start for span in timeline.spans), default=0.0)
    width = max(until or 0.0, timeline.seconds) or 1.0
    chunked = any(span.stage >= timeline.ranks for span in timeline.spans)
    for rank in range(timeline.ranks):
        ax.axhspan(timeline.ranks - 1 - rank - 0.42, timeline.ranks - 1 - rank + 0.42, color="#F4F4F4", zorder=0)
    for span in timeline.spans:
        _box(ax, span, start, timeline.ranks, width, chunked)
    return _frame(ax, timeline, width, title, unit)


def _box(ax: Axes, span, start: float, ranks: int, width: float, chunked: bool) -> None:
    from matplotlib.patches import Rectangle

    color = rank_color(span.micro_batch)
    face = _light(color) if span.op == "F" else color
    left, long = span.start - start, span.end - span.start
    y = ranks - 1 - span.rank
    ax.add_patch(Rectangle((left, y - 0.42), long, 0.84, facecolor=face, edgecolor="white", linewidth=0.8, zorder=2))
    if long < NARROWEST * width:
        return
    text = f"{span.stage}{span.op}{span.micro_batch}" if chunked else f"{span.op}{span.micro_batch}"
    roomy = long > 0.035 * width
    if not roomy and not chunked:
        text = str(span.micro_batch)
    size, turn = (8, 0) if roomy else (6.5, 90 if chunked else 0)
    style = {"ha": "center", "va": "center", "color": ink_on(face), "fontsize": size, "rotation": turn}
    ax.text(left + long / 2, y, text, zorder=3, clip_on=True, **style)


def _light(color: str) -> str:
    """The colour mixed with two parts of white."""
    return "#" + "".join(f"{(int(color[i : i + 2], 16) + 2 * 255) // 3:02X}" for i in (1, 3, 5))


def _frame(ax: Axes, timeline: Timeline, width: float, title: str, unit: str) -> Axes:
    ranks = timeline.ranks
    ax.set_xlim(0, width)
    ax.set_ylim(-0.55, ranks - 0.45)
    ax.set_yticks([ranks - 1 - rank for rank in range(ranks)], [f"rank {rank}" for rank in range(ranks)], fontsize=9)
    ax.tick_params(axis="y", length=0)
    ax.tick_params(axis="x", labelsize=8, color=FAINT, labelcolor=INK)
    ax.set_xlabel(unit, fontsize=9, color=INK)
    for side in ("top", "right", "left"):
        ax.spines[side].set_visible(False)
    share = f"bubble {timeline.bubble:.0%} of the total"
    ax.set_title(f"{title}: {share}" if title else share, fontsize=10, loc="left")
    return ax


def _figure(ranks: int) -> Axes:
    import matplotlib.pyplot as plt

    return plt.subplots(figsize=(8.0, 0.75 + 0.42 * ranks), layout="constrained")[1]
