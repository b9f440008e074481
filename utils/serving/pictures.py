"""Pictures of a run of a serving engine: who computed what when, how full the cache was, how long users waited."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING

from utils.pictures.palette import FAINT, INK, rank_color
from utils.serving.replaying import Replay

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PREFILL, DECODE, WAITING = rank_color(1), rank_color(0), "#E4E4E4"
MOST_DOTTED = 24


def draw_timeline(
    run: Replay, ax: Axes | None = None, *, title: str = "", until: float | None = None, unit: str = "ms"
) -> Axes:
    """A row a request: grey from its arrival to its first token, orange where its prompt is computed, blue where it
    decodes, and, where there are few rows, a dot for each token.

    `until` cuts the picture off, in seconds; `unit` is "ms" or "s", or the name of what the clock counts. Returns the
    Axes.

    >>> from utils.serving.replaying import Step
    >>> ax = draw_timeline(Replay([Step(0, 1, {0: 3}, frozenset({0}))], {0: 0.0}, {0: [1.0]}))
    """
    ax = ax or _axes(8.0, 0.9 + 0.14 * len(run.arrivals))
    scale, end = _scale(unit), until or (run.steps[-1].end if run.steps else 1.0)
    rows = {name: row for row, name in enumerate(sorted(run.arrivals, key=lambda name: (run.arrivals[name], name)))}
    shown = [name for name in rows if run.arrivals[name] < end]
    for name in shown:
        first = run.times[name][0] if run.times[name] else end
        _bars(ax, rows[name], [(run.arrivals[name], min(first, end))], WAITING, scale, 0.3)
        mine = [step for step in run.steps if name in step.counts and step.start < end]
        for color, prefill in ((PREFILL, True), (DECODE, False)):
            spans = [(step.start, min(step.end, end)) for step in mine if (name in step.prefill) == prefill]
            _bars(ax, rows[name], spans, color, scale, 0.8)
        times = [scale * time for time in run.times[name] if time <= end]
        if len(shown) <= MOST_DOTTED:  # with more rows the dots would cover the bars
            ax.plot(times, [rows[name]] * len(times), ".", color=INK, markersize=2.5, zorder=4)
    ax.set_xlim(0, scale * end)
    ax.set_ylim(len(shown) - 0.4, -0.6)
    ax.set_yticks([rows[name] for name in shown[:: max(1, len(shown) // 8)]])
    ax.set_ylabel("request", fontsize=9)
    _legend(ax)
    return _finish(ax, title, unit)


def draw_use(runs: Mapping[str, Replay], ax: Axes | None = None, *, limit: float, unit: str = "ms") -> Axes:
    """What is in use after each step (`Step.used`), of at most `limit`, a line a run. Returns the Axes.

    >>> from utils.serving.replaying import Step
    >>> ax = draw_use({"paged": Replay([Step(0, 1, {}, frozenset(), used=3)])}, limit=4)
    """
    ax, scale = ax or _axes(8.0, 1.8), _scale(unit)
    drawn = sum(line.get_linestyle() != "--" for line in ax.lines)  # by earlier calls
    for number, (name, run) in enumerate(runs.items()):
        times, used = [scale * step.end for step in run.steps], [step.used for step in run.steps]
        ax.plot(times, used, drawstyle="steps-post", linewidth=1.3, label=name, color=rank_color(drawn + number))
    ax.axhline(limit, color=FAINT, linewidth=1, linestyle="--")
    ax.set_ylim(0, 1.08 * limit)
    ax.set_ylabel("in use", fontsize=9)
    ax.legend(frameon=False, fontsize=8, loc="lower center", ncols=3)
    return _finish(ax, "", unit)


def draw_gaps(runs: Mapping[str, Replay], ax: Axes | None = None, *, unit: str = "ms") -> Axes:
    """Which share of all gaps between a user's tokens is longer than so much, a line a run; both axes logarithmic.

    >>> ax = draw_gaps({"a run": Replay([], {0: 0.0}, {0: [1.0, 2.0, 4.0]})})
    """
    ax, scale = ax or _axes(6.0, 3.0), _scale(unit)
    for number, (name, run) in enumerate(runs.items()):
        gaps = sorted(scale * (b - a) for times in run.times.values() for a, b in pairwise(times))
        share = [1 - k / len(gaps) for k in range(len(gaps))]
        ax.plot(gaps, share, drawstyle="steps-post", linewidth=1.5, label=name, color=rank_color(number))
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_ylabel("share of gaps\nlonger than this", fontsize=9)
    ax.legend(frameon=False, fontsize=8)
    _finish(ax, "", unit)
    ax.set_xlabel(f"gap between two tokens, {unit}", fontsize=9)
    return ax


def _bars(ax: Axes, row: int, spans: list[tuple[float, float]], color: str, scale: float, high: float) -> None:
    widths = [(scale * start, scale * (end - start)) for start, end in spans]
    ax.broken_barh(widths, (row - high / 2, high), facecolors=color,
                   edgecolor="white" if color != WAITING else "none", linewidth=0.3, zorder=2)  # fmt: skip


def _legend(ax: Axes) -> None:
    from matplotlib.patches import Patch

    kinds = {"waits for its first token": WAITING, "prefill": PREFILL, "decode": DECODE}
    patches = [Patch(color=color, label=name) for name, color in kinds.items()]
    ax.legend(handles=patches, frameon=False, fontsize=8, ncols=3, loc="lower right", bbox_to_anchor=(1.0, 1.0),
              borderaxespad=0.1, handlelength=1.2)  # fmt: skip


def _scale(unit: str) -> float:
    return 1e3 if unit == "ms" else 1.0


def _finish(ax: Axes, title: str, unit: str) -> Axes:
    ax.set_title(title, fontsize=10, loc="left")
    ax.set_xlabel(f"time, {unit}", fontsize=9)
    ax.tick_params(labelsize=8, color=FAINT)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    return ax


def _axes(width: float, height: float) -> Axes:
    import matplotlib.pyplot as plt

    return plt.subplots(figsize=(width, height), layout="constrained")[1]
