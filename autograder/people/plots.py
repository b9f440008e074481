"""Plots of a graded class. Each draws on an `ax` and returns it."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Sequence
from typing import Any

from autograder.people.class_report import OUTCOMES, TestFigures
from utils.pictures.palette import FAINT, INK, RANK_COLORS

BLUE, ORANGE, GREEN, _, SKY, VERMILION, _, GREY = RANK_COLORS
COLORS = dict(zip(OUTCOMES, (GREEN, SKY, VERMILION, ORANGE, GREY, FAINT), strict=True))
BINS = 20


def plot_scores(scores: Sequence[float], max_score: float, ax: Any) -> Any:
    """A histogram of scores: one bar a point, or BINS bars where there are more points than that."""
    bars = int(max_score) if 0 < max_score <= BINS and max_score == int(max_score) else BINS
    width = (max_score or 1) / bars
    # A bar stands over the scores from its own up to the next, so that full marks have one of their own.
    edges = [width * (place - 0.5) for place in range(bars + 2)]
    ax.hist(scores, bins=edges, color=BLUE, rwidth=0.85)
    ax.set_xlim(-width, (max_score or 1) + width)
    ax.set_xlabel(f"score (of {max_score:g})")
    ax.set_ylabel("students")
    for axis in (ax.xaxis, ax.yaxis):
        axis.get_major_locator().set_params(integer=True)
    return _plain(ax)


def plot_tests(tests: Sequence[TestFigures], ax: Any) -> Any:
    """What became of each test, a bar a test, the first on top."""
    names = [test.id for test in tests]
    left = [0] * len(tests)
    for outcome, color in COLORS.items():
        counts = [test.outcomes.get(outcome, 0) for test in tests]
        if any(counts):
            ax.barh(names, counts, left=left, color=color, label=outcome, height=0.72)
            left = [before + count for before, count in zip(left, counts, strict=True)]
    ax.invert_yaxis()
    ax.set_xlabel("students")
    ax.xaxis.get_major_locator().set_params(integer=True)
    ax.legend(loc="lower center", bbox_to_anchor=(0.4, 1.0), ncols=3, frameon=False, fontsize=9)
    return _plain(ax)


def _plain(ax: Any) -> Any:
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    ax.tick_params(colors=INK)
    return ax


def as_png(draw: Callable[[Any], Any], width: float, height: float) -> str:
    """A drawing of so many inches as a PNG in base64."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    draw(figure.add_subplot())
    out = io.BytesIO()
    figure.savefig(out, format="png", dpi=130)
    return base64.b64encode(out.getvalue()).decode()
