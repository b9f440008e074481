"""Text sources are read as jupytext reads them, with lines that messages can name."""

from __future__ import annotations

from pathlib import Path

import jupytext
import pytest

from autograder.sources.build import find_sources
from autograder.sources.cells import SourceError, parse_source, read_source
from autograder.sources.regions import find_regions, stubbed, without_hidden

SAMPLE = """\
# a comment of the file
# %% [markdown]
# # Title
#
# text with `%matplotlib`

# %% shared="imports"
import torch


# %% solution="double"
def double(x):
    ### BEGIN SOLUTION
    return 2 * x
    ### END SOLUTION

# %% test="double_small" points=2
assert True
# %%
# %%ranks 4
# print("hello")

# %% tags=["slow"]
# %matplotlib inline
y = 1
"""


def test_cells_have_kind_name_points_and_line() -> None:
    source = parse_source(SAMPLE, "lab77_x.py")
    found = [(c.kind, c.name, c.points, c.line) for c in source.cells]
    assert found == [
        ("markdown", None, 0, 3),
        ("shared", "imports", 0, 8),
        ("solution", "double", 0, 12),
        ("test", "double_small", 2, 18),
        ("plain", None, 0, 20),
        ("plain", None, 0, 24),
    ]
    assert source.preamble == ("a comment of the file",)
    assert source.name == "lab77_x" and source.is_lab


def test_lines_point_into_the_file() -> None:
    lines = SAMPLE.splitlines()
    for cell in parse_source(SAMPLE).of_kind("shared", "solution", "test"):
        assert cell.text.splitlines()[0] == lines[cell.line - 1]


def test_markdown_and_magics_lose_their_comment() -> None:
    cells = parse_source(SAMPLE).cells
    assert cells[0].text == "# Title\n\ntext with `%matplotlib`"
    assert cells[4].text == '%%ranks 4\n# print("hello")'
    assert cells[5].text == "%matplotlib inline\ny = 1"
    assert cells[5].tags == ("slow",)


@pytest.mark.parametrize("path", find_sources(), ids=lambda path: path.stem)
def test_jupytext_reads_the_same_cells(path: Path) -> None:
    """The oracle: jupytext itself, which editors use to open these files."""
    ours = read_source(path)
    theirs = jupytext.reads(path.read_text(encoding="utf-8"), fmt="py:percent")
    skipped = 1 if ours.preamble else 0  # jupytext makes a cell of the comments at the top
    pairs = list(zip(ours.cells, theirs.cells[skipped:], strict=True))
    assert pairs
    for mine, its in pairs:
        assert mine.text == its.source
        assert (mine.kind == "markdown") == (its.cell_type == "markdown")
        assert mine.name == its.metadata.get(mine.kind)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x = 1\n# %%\n", "line 1: code before the first cell"),
        ("# %% [markdown]\n# fine\nnot a comment\n", "line 3: a line of a markdown cell begins with"),
        ('# %% test="a"\n', "line 1: points=... belongs to every test cell"),
        ('# %% solution="a" points=2\n', "points=... belongs to every test cell and to no other"),
        ('# %% test="a" points=0\n', "points=0"),
        ('# %% test="a" points=1.5\n', "points=1.5"),
        ('# %% test="a b" points=1\n', "'a b' cannot be a cell's name"),
        ('# %% Test="a" points=1\n', "cannot read 'Test="),
        ('# %% tset="a"\n', "unknown option 'tset'"),
        ('# %% test="a" solution="b" points=1\n', "one of markdown, shared, solution and test"),
        ("# %% test=a points=1\n", "test=a is neither a number nor in double quotes"),
        ("# %% a title\n", "cannot read 'a title' in a cell marker"),
    ],
)
def test_a_marker_that_cannot_be_read_is_refused(text: str, says: str) -> None:
    with pytest.raises(SourceError) as error:
        parse_source(text, "lab77_x.py")
    assert says in str(error.value) and str(error.value).startswith("lab77_x.py")


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(SourceError, match=r"nowhere\.py cannot be read"):
        read_source("nowhere.py")


def test_regions() -> None:
    text = "a\n  ### BEGIN SOLUTION\n  b\n  ### END SOLUTION\nc"
    assert find_regions(text, "SOLUTION") == [(1, 3)]
    assert stubbed(text) == "a\n  # YOUR CODE HERE\n  raise NotImplementedError()\nc"
    hidden = "a\n### BEGIN HIDDEN TESTS\nb\n### END HIDDEN TESTS\nc"
    assert without_hidden(hidden) == "a\n\n\n\nc"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("### BEGIN SOLUTION\nx", "never ends"),
        ("x\n### END SOLUTION", "never began"),
        ("### BEGIN SOLUTION\n### BEGIN SOLUTION\n### END SOLUTION", "inside the one of line 1"),
    ],
)
def test_regions_that_do_not_pair(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        find_regions(text, "SOLUTION")
