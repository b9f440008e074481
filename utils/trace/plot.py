"""The timeline of a run: one row a rank, a bar for each operation, an arrow for each message."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..pictures.palette import INK, rank_color

if TYPE_CHECKING:
    from .events import Event, Trace

OP_COLORS = {
    "send": "#E69F00",
    "recv": "#56B4E9",
    "all_reduce": "#009E73",
    "reduce_scatter": "#0072B2",
    "all_gather": "#CC79A7",
    "broadcast": "#D55E00",
    "all_to_all": "#F0E442",
}
OTHER = "#999999"
MOST_ARROWS = 80
_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))


def timeline(trace: Trace, ax: Any = None) -> Any:
    """Draw `trace` on `ax` (made when None) and return the axes.

    A bar runs from the moment a rank issued an operation to the moment it was done waiting for it; a bar that is still
    open at the end is hatched. Arrows join a send with the receive it pairs with. Time counts from the start of the
    run.
    """
    import matplotlib.pyplot as plt

    if ax is None:
        _, ax = plt.subplots(figsize=(9, 0.7 + 0.55 * trace.ranks), layout="constrained")
    events = [e for e in trace.events if e.op != "new_group"]
    end = max([e.end or e.start for e in events], default=trace.seconds) or 1e-6
    scale, unit = next(((s, u) for s, u in _UNITS if end >= s), _UNITS[-1])
    lanes = _lanes(events)
    for event in events:
        _bar(ax, event, lanes[id(event)], end, scale)
    _arrows(ax, trace, lanes, scale)
    _dress(ax, trace, events, end / scale, unit)
    return ax


def _lanes(events: list[Event]) -> dict[int, tuple[float, float]]:
    """Where each bar stands: (middle, height). Operations of one rank that overlap in time share its row."""
    rows: dict[int, list[float]] = {}
    taken: dict[int, int] = {}
    for event in sorted(events, key=lambda e: e.start):
        ends = rows.setdefault(event.rank, [])
        free = next((i for i, t in enumerate(ends) if t <= event.start), len(ends))
        ends[free : free + 1] = [event.end if event.end is not None else float("inf")]
        taken[id(event)] = free
    placed = {}
    for event in events:
        count = len(rows[event.rank])
        height = 0.8 / count
        placed[id(event)] = (event.rank - 0.4 + height * (taken[id(event)] + 0.5), height)
    return placed


def _bar(ax: Any, event: Event, lane: tuple[float, float], end: float, scale: float) -> None:
    stop = event.end if event.end is not None else end
    width = max(stop - event.start, end / 400)
    color = OP_COLORS.get(event.op, OTHER)
    open_ended = {"hatch": "///", "edgecolor": INK} if event.end is None else {"edgecolor": "white"}
    ax.barh(lane[0], width / scale, lane[1], event.start / scale, color=color, linewidth=0.6, **open_ended)
    if width > end / 9 and lane[1] > 0.3:
        text = event.op if event.peer is None or event.collective else f"{event.op} {event.peer}"
        ax.text(
            (event.start + width / 2) / scale,
            lane[0],
            text,
            ha="center",
            va="center",
            fontsize=7,
            color=INK,
            clip_on=True,
        )


def _arrows(ax: Any, trace: Trace, lanes: dict[int, tuple[float, float]], scale: float) -> None:
    from .matching import pair

    pairing = pair(trace.events)
    pairs = [
        two for key, sends in pairing.sends.items() for two in zip(sends, pairing.recvs.get(key, []), strict=False)
    ]
    if len(pairs) > MOST_ARROWS:
        return
    for send, recv in pairs:
        if recv.end is not None:
            start, stop = (send.start / scale, lanes[id(send)][0]), (recv.end / scale, lanes[id(recv)][0])
            style = {
                "arrowstyle": "-|>",
                "color": rank_color(send.rank),
                "lw": 0.9,
                "alpha": 0.8,
                "shrinkA": 0,
                "shrinkB": 0,
            }
            ax.annotate("", xy=stop, xytext=start, arrowprops=style)


def _dress(ax: Any, trace: Trace, events: list[Event], end: float, unit: str) -> None:
    from matplotlib.patches import Patch

    ax.set_yticks(range(trace.ranks), [f"rank {r}" for r in range(trace.ranks)])
    ax.set_ylim(trace.ranks - 0.5, -0.5)
    ax.set_xlim(0, end * 1.02)
    ax.set_xlabel(f"time since the run began ({unit})")
    for side in ("top", "right", "left"):
        ax.spines[side].set_visible(False)
    ax.tick_params(axis="y", length=0)
    ops = sorted({e.op for e in events}, key=lambda op: (op not in OP_COLORS, op))
    patches = [Patch(color=OP_COLORS.get(op, OTHER), label=op) for op in ops]
    if any(e.end is None for e in events):
        patches.append(Patch(facecolor="white", edgecolor=INK, hatch="///", label="not finished"))
    if patches:
        ax.legend(handles=patches, loc="lower left", bbox_to_anchor=(0, 1.0), ncols=6, frameon=False, fontsize=8)
