"""Pictures: coloured from the data, readable, and free of matplotlib until the first one is drawn."""

import doctest
import itertools
import subprocess
import sys

import matplotlib
import numpy as np
import pytest
import torch

matplotlib.use("Agg")

import matplotlib.pyplot as plt
from matplotlib.colors import to_hex, to_rgb
from matplotlib.patches import Rectangle

from utils import pictures
from utils.pictures import curves, held, marking, palette, rounds
from utils.pictures.marking import marks, origins

# Machado, Oliveira, Fernandes 2009, severity 1.0, for linear RGB.
COLOR_BLINDNESS = {
    "protanopia": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deuteranopia": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.01182, 0.04294, 0.968881],
    ],
}


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


def fills(ax):
    """Fill colours of an Axes with the x and y of their stripe, as drawn."""
    patches = [p for p in ax.patches if isinstance(p, Rectangle) and p.get_facecolor()[3] > 0]
    return {(p.get_x(), p.get_y()): to_hex(p.get_facecolor()).upper() for p in patches}


def framed(ax):
    """Lower left corners of the cells with a thick outline."""
    return {(p.get_x(), p.get_y()) for p in ax.patches if isinstance(p, Rectangle) and p.get_linewidth() > 2}


def linear_rgb(color):
    rgb = np.array(to_rgb(color))
    return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)


def lab(linear):
    """CIE L*a*b* (D65) of linear sRGB: distances in it are roughly what an eye sees."""
    to_xyz = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    x, y, z = (np.array(to_xyz) @ np.clip(linear, 0, 1) / [0.9505, 1.0, 1.089]).tolist()
    fx, fy, fz = (v ** (1 / 3) if v > 0.008856 else 7.787 * v + 16 / 116 for v in (x, y, z))
    return np.array([116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)])


@pytest.mark.parametrize("sight", [None, *COLOR_BLINDNESS])
def test_rank_colors_stay_apart(sight):
    matrix = np.eye(3) if sight is None else np.array(COLOR_BLINDNESS[sight])
    seen = [lab(matrix @ linear_rgb(color)) for color in palette.RANK_COLORS]
    assert min(np.linalg.norm(a - b) for a, b in itertools.combinations(seen, 2)) > 10


def test_numbers_can_be_read_on_every_rank_color():
    def luminance(color):
        return linear_rgb(color) @ [0.2126, 0.7152, 0.0722]

    for color in palette.RANK_COLORS:
        low, high = sorted([luminance(color), luminance(palette.ink_on(color))])
        assert (high + 0.05) / (low + 0.05) >= 4, color


def test_marks_say_who_was_added():
    total = sum(marks(rank, 3) for rank in (0, 2, 3))
    assert total.tolist() == [1101, 2202, 3303]
    assert [origins(v) for v in total.tolist()] == [(0, 2, 3)] * 3
    assert origins(20) == (1,) and origins(0) == origins(None) == ()


@pytest.mark.parametrize("rank, numel, number", [(8, 1, "8"), (-1, 1, "-1"), (0, 10, "10")])
def test_marks_refuse_what_a_digit_cannot_hold(rank, numel, number):
    with pytest.raises(ValueError, match=number):
        marks(rank, numel)


def test_a_cell_is_coloured_from_what_is_held():
    wrong_sum = marks(0, 2) + marks(2, 2)  # rank 1 was forgotten: its colour must be absent
    ax = pictures.draw_held([wrong_sum, marks(1, 2)])
    top, bottom = {}, {}
    for (x, y), color in fills(ax).items():
        (top if y == 1 else bottom)[x] = color
    first, second = palette.rank_color(0), palette.rank_color(2)
    assert top == {0.0: first, 0.5: second, 1.0: first, 1.5: second}
    assert bottom == {0.0: palette.rank_color(1), 1.0: palette.rank_color(1)}


def test_zeros_are_empty_and_nothing_is_said_in_words():
    ax = pictures.draw_held([torch.zeros(3, dtype=torch.int64), None])
    assert fills(ax) == {}
    assert [t.get_text() for t in ax.texts] == ["nothing"]


def test_changed_cells_are_framed():
    steps = [[[1, 0], [10, 20]], [[1, 20], [10, 20]], [[1, 20], [11, 20]]]
    axes = pictures.draw_steps(steps, ["start", "one", "two"], columns=2)
    assert framed(axes.flat[0]) == set()
    assert framed(axes.flat[1]) == {(1, 1)}
    assert framed(axes.flat[2]) == {(0, 0)}
    assert not axes.flat[3].axison


def test_before_and_after_are_two_axes_with_an_arrow_between():
    before, after = pictures.draw_before_after([[1], None], [[1], [1]], "broadcast")
    assert before.get_title(loc="left") == "broadcast: before"
    assert len(fills(before)) == 1 and len(fills(after)) == 2
    arrows = [t for ax in before.figure.axes for t in ax.texts if getattr(t, "arrow_patch", None)]
    assert len(arrows) == 1


def test_rounds_have_an_arrow_for_each_message():
    ax = pictures.draw_rounds([[1, 0, 0], [1, 1, 0], [1, 1, 1]], [[(0, 1)], [(1, 2)]])
    arrows = [t for t in ax.texts if getattr(t, "arrow_patch", None)]
    assert [round(t.xyann[0]) for t in arrows] == [0, 1]
    assert [round(t.xy[0]) for t in arrows] == [1, 2]
    with pytest.raises(ValueError, match="2 rounds need 3 rows of values, not 1"):
        pictures.draw_rounds([[1, 0]], [[], []])


def test_times_show_the_fastest_try_and_the_way_to_the_median():
    ax = pictures.draw_times(
        {"ring": ([8, 64], [[3.0, 1.0, 2.0], [4.0, 4.0, 9.0]])}, {"ring": ([8, 64], [1.0, 4.0])}
    )
    points, bars = ax.containers[0][0], ax.containers[0][2][0]
    assert points.get_ydata().tolist() == [1.0, 4.0]
    assert [segment[:, 1].tolist() for segment in bars.get_segments()] == [[1.0, 2.0], [4.0, 4.0]]
    assert {t.get_text() for t in ax.get_legend().get_texts()} == {"ring, measured", "ring, predicted"}


@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
def test_nothing_is_cut_off(ranks):
    own = [marks(rank, 4) for rank in range(ranks)]
    values = [10**rank for rank in range(ranks)]
    figures = [
        pictures.draw_before_after(own, [sum(own)] * ranks, "all-reduce")[0].figure,
        pictures.draw_steps([own, own[::-1]], ["start", "reduce-scatter, step 1"])[0, 0].figure,
        pictures.draw_rounds(
            [values, values], [[(0, ranks - 1)]] if ranks > 1 else [[]], title="tree"
        ).figure,
        pictures.draw_times({"all-reduce": ([8, 2**24], [[1e-6], [1.0]])}, title="times").figure,
    ]
    for figure in figures:
        figure.canvas.draw()
        drawn = figure.get_tightbbox()  # inches, of all that is drawn
        width, height = figure.get_size_inches()
        assert drawn.x0 > -0.02 and drawn.y0 > -0.02, drawn
        assert drawn.x1 < width + 0.02 and drawn.y1 < height + 0.02, (drawn, width, height)


def test_every_picture_draws_into_a_given_ax():
    ax = plt.subplots()[1]
    assert pictures.draw_held([[1]], ax) is ax
    assert pictures.draw_rounds([[1]], [], ax) is ax
    assert pictures.draw_times({"x": ([8], [[1.0]])}, ax=ax) is ax
    assert len(plt.get_fignums()) == 1


def test_matplotlib_is_not_imported_before_the_first_picture():
    code = "import sys, utils.pictures; print('matplotlib' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize("module", [curves, held, marking, palette, rounds])
def test_worked_examples(module):
    names = {name: getattr(pictures, name) for name in pictures.__all__}
    result = doctest.testmod(module, extraglobs=names)
    assert result.attempted > 0 and result.failed == 0
