"""A function taken from a notebook: what it needs is run, in order, and nothing else."""

from __future__ import annotations

import json
import sys
import traceback
from pathlib import Path

import pytest

from utils.ranks.cells import MODULE, load


def notebook(folder: Path, *cells: str) -> Path:
    """A notebook of these code cells, with text between them."""
    made = [{"cell_type": "markdown", "metadata": {}, "source": "text: f(1)"}]
    for source in cells:
        made.append({"cell_type": "code", "metadata": {}, "outputs": [], "source": source.splitlines(True)})
    path = folder / "lab.ipynb"
    path.write_text(json.dumps({"cells": made, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))
    return path


LAB = (
    "import math\nfrom dataclasses import dataclass\nfrom utils import launch",
    "SIZE = 3\nTABLE = {}\nTABLE['a'] = SIZE\nUNUSED = 1 / 0",
    "@dataclass\nclass Job:\n    size: int = SIZE\n\n    def twice(self):\n        return helper(self.size)",
    "def helper(x):\n    raise NotImplementedError",
    "def helper(x):\n    return 2 * x + TABLE['a']",
    "run = launch(lambda: 1, ranks=2)\nassert run.values == [0]\nfor ranks in (1, 2):\n    SEEN = launch(helper)",
    "%%ranks 4\nprint(helper(2))",
    "%time x = helper(1)\nhelper(1)\n",
    "def probe(n=1):\n    ranks = [helper(n) for _ in range(2)]\n    return ranks, Job().twice(), math.floor(2.5)",
)


def test_a_function_and_a_call_of_a_notebook(tmp_path: Path) -> None:
    path = notebook(tmp_path, *LAB)
    assert load(f"{path}:probe")() == ([5, 5], 9, 2)
    assert load(f"{path}:probe(SIZE)")() == ([9, 9], 9, 2)
    assert load(f"{path}:[helper(1), {{'a:b': Job(7).twice()}}]")() == [5, {"a:b": 17}]


def test_only_what_is_needed_is_run(tmp_path: Path) -> None:
    load(f"{notebook(tmp_path, *LAB)}:probe")
    space = vars(sys.modules[MODULE])
    assert {"probe", "helper", "Job", "TABLE", "SIZE", "math", "dataclass"} <= set(space)
    assert not {"run", "UNUSED", "launch", "SEEN", "x", "ranks"} & set(space)


def test_its_classes_can_be_pickled_and_its_lines_are_shown(tmp_path: Path) -> None:
    import pickle

    path = notebook(tmp_path, *LAB, "def wrong():\n    y = 1\n    return helper(None)")
    job = load(f"{path}:Job")
    assert pickle.loads(pickle.dumps(job(4))) == job(4)
    with pytest.raises(TypeError) as caught:
        load(f"{path}:wrong")()
    shown = "".join(traceback.format_exception(caught.value))
    assert "lab.ipynb, cell 10" in shown and "return helper(None)" in shown and "return 2 * x + TABLE['a']" in shown


def test_later_changes_of_a_part_count(tmp_path: Path) -> None:
    cells = ("class A:\n    step = 1", "def faster(self):\n    return 2", "A.step = faster", "from math import *")
    assert load(f"{notebook(tmp_path, *cells)}:[A().step(), floor(3.5)]")() == [2, 3]


@pytest.mark.parametrize(
    "target, words",
    [
        ("lab.ipynb:none", "has no function none"),
        ("lab.ipynb:SIZE", "has no function SIZE"),
        ("lab.ipynb:f(", "cannot be read as a function or a call"),
        ("lab.ipynb:UNUSED", r"lab.ipynb, cell 2, line 4 \(UNUSED = 1 / 0\), which failed: ZeroDivisionError"),
        ("gone.ipynb:f", "does not exist here"),
        ("bad.ipynb:f", "is not a notebook of version 4"),
        ("broken.ipynb:f", "left out as no Python: cell 1, line 2"),
        ("no_such_module:f", "cannot be imported"),
    ],
)
def test_what_cannot_be_found_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str, words: str) -> None:
    notebook(tmp_path, "x = 1\ndef f(:\n    pass").rename(tmp_path / "broken.ipynb")
    notebook(tmp_path, *LAB)
    (tmp_path / "bad.ipynb").write_text("{}")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match=words):
        load(target)


def test_a_script_finds_what_lies_beside_it(tmp_path: Path) -> None:
    (tmp_path / "beside_it.py").write_text("def seven():\n    return 7\n")
    (tmp_path / "step.py").write_text("from beside_it import seven\ndef probe(n=0):\n    return seven() + n\n")
    assert load(f"{tmp_path}/step.py:probe")() == 7 and load(f"{tmp_path}/step.py:probe(1)")() == 8
