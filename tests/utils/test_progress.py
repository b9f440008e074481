"""The student's map reads saved notebooks and never mistakes a placeholder for work."""

import json

import pytest

from utils.progress import find_labs, my_progress, read_lab

STUB = "def f():\n    # YOUR CODE HERE\n    raise NotImplementedError()"
DONE = "def f():\n    return 1"


def cell(source, outputs=(), count=None, **nbgrader):
    cell = {"cell_type": "code", "source": source, "outputs": list(outputs), "execution_count": count}
    return {**cell, "metadata": {"nbgrader": nbgrader}}


def task(source):
    return cell(source, solution=True, grade=False, grade_id="f")


def exam(count=None, failed=False):
    outputs = (
        [{"output_type": "error", "ename": "CheckFailed", "evalue": "", "traceback": []}] if failed else []
    )
    return cell("assert f() == 1", outputs, count, solution=False, grade=True, grade_id="t", points=2)


@pytest.fixture
def course(tmp_path):
    def write(*cells, name="lab01_allreduce"):
        path = tmp_path / "labs" / name / f"{name}.ipynb"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))
        return path

    (tmp_path / "notebooks").mkdir()
    write.folder = tmp_path
    return write


@pytest.mark.parametrize(
    "cells, word, written, passed",
    [
        ([task(STUB), task(STUB), exam(), exam()], "blank", 0, 0),
        ([task(STUB), task(DONE), exam(3, failed=True), exam(4)], "begun", 1, 1),
        ([task(DONE), task(DONE), exam(3), exam()], "written", 2, 1),
        ([task(DONE), task(DONE), exam(3), exam(4)], "checked", 2, 2),
        ([task(DONE), task(STUB), exam(3), exam(4)], "begun", 1, 2),
    ],
)
def test_state_of_a_lab(course, cells, word, written, passed):
    lab = read_lab(course(*cells))
    assert (lab.word, lab.written, lab.tasks, lab.passed, lab.tests) == (word, written, 2, passed, 2)


def test_source_may_be_a_list_of_lines(course):
    assert read_lab(course(task(STUB.splitlines(keepends=True)), exam())).written == 0


@pytest.mark.parametrize("text", ["", "{", "[]", '{"cells": [1]}', '{"cells": null}'])
def test_a_broken_file_is_said_to_be_unreadable(course, text):
    path = course()
    path.write_text(text)
    assert read_lab(path).word == "cannot be read"
    assert "cannot be read" in my_progress(course.folder).data


def test_map_links_to_every_lab_beside_the_notebooks(course):
    course(task(STUB), exam())
    course(task(DONE), exam(1), name="lab02_data_parallel")
    table = my_progress(course.folder / "notebooks").data
    assert (
        "[lab01_allreduce](../labs/lab01_allreduce/lab01_allreduce.ipynb) | blank | 0 of 1 | 0 of 1" in table
    )
    assert "[lab02_data_parallel](../labs/lab02_data_parallel/lab02_data_parallel.ipynb) | checked" in table


def test_no_labs_is_said_in_words(tmp_path, monkeypatch):
    assert find_labs(tmp_path) == []
    monkeypatch.delenv("JUPYTERHUB_USER", raising=False)
    assert "No labs are here yet: there is no `labs` folder" in my_progress(tmp_path).data
    monkeypatch.setenv("JUPYTERHUB_USER", "ada")
    assert "No labs are here yet: fetch one in the menu" in my_progress(tmp_path).data
