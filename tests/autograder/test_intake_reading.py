"""Files that are no proper notebooks: read where that loses nothing, else one plain sentence."""

from __future__ import annotations

import json
import random
from pathlib import Path

import nbformat
import pytest

from autograder.course import Course
from autograder.intake import grade_id
from autograder.intake.decoding import Unreadable, without_outputs
from autograder.intake.reading import read_notebook, sound
from tests.autograder.intake_tools import TOY, Answered, cell_of, extra, hand_in, put, released


def text_of(notebook: object) -> str:
    return nbformat.writes(notebook)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b'{"cells": [', "not valid JSON"),
        (b"<<<<<<< HEAD\n{}\n", "not valid JSON"),
        (b"", "empty"),
        (b"\0" * 500, "empty"),
        (b'{"nbformat": 4}', "no list of cells"),
        (b'{"cells": []}', "no cell"),
        (b'{"cells": [{"source": 1}]}', "none of its cells"),
        (b"[1, 2]", "no notebook"),
        (b"null", "not valid JSON|no notebook"),
        (b"[" * 200_000, "nested too deeply"),
        (b'{"cells": ' + b"9" * 10_000 + b"}", "not valid JSON"),
        (b"<!DOCTYPE html><html>", "web page"),
        (b"%PDF-1.7", "PDF"),
        (b"PK\x03\x04", "zip archive"),
        (b"# %%\nprint(1)\n", "not valid JSON"),
        (bytes(range(256)) * 3, "no text"),
    ],
)
def test_what_cannot_be_read_gets_one_sentence(tmp_path: Path, content: bytes, why: str) -> None:
    with pytest.raises(Unreadable, match=why) as error:
        read_notebook(put(tmp_path / "bad.ipynb", content))
    assert "\n" not in str(error.value) and str(error.value).endswith(".")


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "gb18030", "latin-1"])
def test_other_encodings_are_read(toy_course: Course, answered: Answered, tmp_path: Path, encoding: str) -> None:
    word = "学生写的" if encoding != "latin-1" else "Bücher, s'il vous plaît"
    notebook = answered()
    notebook.cells.insert(2, extra(f"# {word}"))
    text = text_of(notebook).replace("\u2014", "-")
    submission, got = hand_in(toy_course, tmp_path, text.encode(encoding))
    assert submission.problem == ""
    assert any(cell.source == f"# {word}" for cell in got.cells)
    assert len(submission.notes) == (encoding != "utf-8-sig")


def test_a_file_that_is_cut_off_is_read_where_no_answer_is_lost(
    toy_course: Course, answered: Answered, tmp_path: Path
) -> None:
    notebook = answered()
    cut = text_of(notebook)
    whole = cut[: cut.index('"steps_value"')]
    submission, got = hand_in(toy_course, tmp_path, whole)
    assert submission.problem == ""
    assert "every answer is there" in submission.notes[0]
    assert cell_of(got, "answer_steps").source == cell_of(notebook, "answer_steps").source
    submission, _ = hand_in(toy_course, tmp_path, cut[: cut.index('"answer_steps"')])
    assert "cut off" in submission.problem and "without the cells answer_steps" in submission.problem


def merged(notebook: object, ours: str, theirs: str, mark: str) -> str:
    text = text_of(notebook)
    assert mark in text
    line = next(line for line in text.splitlines(keepends=True) if mark in line)
    conflict = f"<<<<<<< HEAD\n{line.replace(mark, ours)}=======\n{line.replace(mark, theirs)}>>>>>>> theirs\n"
    return text.replace(line, conflict, 1)


def test_marks_of_a_merge_conflict(toy_course: Course, answered: Answered, tmp_path: Path) -> None:
    notebook = answered(answer_steps="def answer_steps(p):\n    return 2 * (p - 1)")
    notebook.metadata["language_info"]["version"] = "3.11.1"
    harmless = merged(notebook, "3.11.2", "3.12.0", "3.11.1")
    submission, _ = hand_in(toy_course, tmp_path, harmless)
    assert submission.problem == ""
    assert "both versions have the same code" in submission.notes[0]
    submission, _ = hand_in(toy_course, tmp_path, merged(notebook, "2 * (p - 1)", "p", "2 * (p - 1)"))
    assert "merge conflict" in submission.problem and "code cell" in submission.problem
    submission, _ = hand_in(toy_course, tmp_path, merged(notebook, "3.11.2", '"""', "3.11.1"))
    assert submission.problem == "" and "the one that can be read" in submission.notes[0]


def test_odd_notebooks_become_sound_ones(toy_course: Course, answered: Answered, tmp_path: Path) -> None:
    raw = json.loads(text_of(answered()))
    raw["nbformat_minor"] = 0
    raw["metadata"] = {"widgets": {"state": "x" * 100_000}, "kernelspec": 3}
    for cell in raw["cells"]:
        cell.pop("id")
        cell["outputs"] = [{"output_type": "stream"}, 7]
    raw["cells"] += [None, {"cell_type": "video", "source": "x"}, {"cell_type": "code"}, 5]
    raw["cells"].append({"cell_type": "code", "source": ["a = '\ud800'", "\n"], "metadata": [], "outputs": None})
    raw["cells"].append({"cell_type": "code", "source": "y" * (11 << 20), "metadata": {}})
    submission, got = hand_in(toy_course, tmp_path, json.dumps(raw))
    assert submission.problem == ""
    assert sum("is damaged and was left out" in note for note in submission.notes) == 3
    assert any("unknown kind 'video'" in note for note in submission.notes)
    assert any("it was emptied" in note for note in submission.notes)
    nbformat.validate(got)
    assert all(cell.outputs == [] for cell in got.cells if cell.cell_type == "code")


def test_the_third_format_is_read(toy_course: Course, answered: Answered, tmp_path: Path) -> None:
    cells = json.loads(text_of(answered()))["cells"]
    old = [{**cell, "input": cell["source"]} if cell["cell_type"] == "code" else cell for cell in cells]
    for cell in old:
        if "input" in cell:
            del cell["source"]
    old.append({"cell_type": "heading", "level": 1, "source": "The end", "metadata": {}})
    submission, got = hand_in(toy_course, tmp_path, json.dumps({"nbformat": 3, "worksheets": [{"cells": old}]}))
    assert (submission.problem, submission.notes) == ("", [])
    assert got.cells[-1].cell_type == "markdown"


def test_a_later_format_and_doubled_keys_are_read(toy_course: Course, answered: Answered, tmp_path: Path) -> None:
    text = text_of(answered()).replace('"nbformat": 4', '"nbformat": 5')
    assert hand_in(toy_course, tmp_path, text)[0].notes == []
    text = text.replace('"nbformat": 5', '"cells": [], "nbformat": 4')
    assert "no cell" in hand_in(toy_course, tmp_path, text)[0].problem
    double = text_of(answered()).replace('"cell_type": "code",', '"cell_type": "raw", "cell_type": "code",', 1)
    assert '"cell_type" twice' in hand_in(toy_course, tmp_path, double)[0].notes[0]
    more = text_of(answered()) + text_of(answered())
    assert "only its beginning" in hand_in(toy_course, tmp_path, more)[0].notes[0]


def test_outputs_of_a_hundred_megabytes_are_passed_over(
    toy_course: Course, answered: Answered, tmp_path: Path
) -> None:
    notebook = answered()
    lines = ["a line of output with \\ and \" in it\n"] * 1_000_000
    cell_of(notebook, "pass_on").outputs = [nbformat.v4.new_output("stream", text="".join(lines))]
    cell_of(notebook, "imports").outputs = [
        nbformat.v4.new_output("display_data", {"image/png": "A" * 60_000_000, "application/json": {"outputs": [1]}})
    ]
    submission, got = hand_in(toy_course, tmp_path, notebook)
    assert (submission.problem, submission.notes) == ("", [])
    assert cell_of(got, "pass_on").source == cell_of(notebook, "pass_on").source


def test_outputs_are_cut_out_exactly() -> None:
    cells = [
        {"source": 'x = {"outputs": [1, 2]}', "outputs": [{"text": "] } [ \\\" \\\\"}, [[]]], "z": 1},
        {"outputs": [], "source": ["a", '"outputs": ['], "metadata": {"outputs": 3}},
    ]
    text = json.dumps({"cells": cells, "metadata": {}})
    for cell in cells:
        cell["outputs"] = []
    assert json.loads(without_outputs(text)) == {"cells": cells, "metadata": {}}


def test_pictures_in_text_are_kept(toy_course: Course, answered: Answered, tmp_path: Path) -> None:
    notebook = answered()
    notebook.cells[0].attachments = {"plot.png": {"image/png": "iVBORw0K"}}
    _, got = hand_in(toy_course, tmp_path, notebook)
    assert got.cells[0].attachments == {"plot.png": {"image/png": "iVBORw0K"}}


@pytest.mark.parametrize("seed", range(40))
def test_no_damage_to_a_file_is_a_crash(toy_course: Course, answered: Answered, tmp_path: Path, seed: int) -> None:
    """Bytes changed, removed, doubled and moved at random: a notebook comes out, or a sentence."""
    rng = random.Random(seed)
    raw = bytearray(text_of(answered()).encode())
    for _ in range(rng.choice([1, 3, 30])):
        at, size = rng.randrange(len(raw)), rng.choice([1, 5, 200])
        change = rng.randrange(4)
        if change == 0:
            raw[at : at + size] = rng.randbytes(size)
        elif change == 1:
            del raw[at : at + size]
        elif change == 2:
            raw[at:at] = raw[at : at + size]
        else:
            raw[at:at] = rng.choice([b'"', b"{", b"]", b"\\u", b"\xff", b"null", b"<<<<<<< a\n", b"\n=======\n"])
    submission, got = hand_in(toy_course, tmp_path, bytes(raw))
    if submission.problem:
        assert "\n" not in submission.problem
    else:
        nbformat.validate(got)
        names, wanted = ([grade_id(cell) for cell in one.cells] for one in (got, released(toy_course)))
        assert [name for name in names if name] == [name for name in wanted if name]


def test_too_large_a_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autograder.intake.reading.LARGEST_FILE", 10)
    with pytest.raises(Unreadable, match="more than the"):
        read_notebook(put(tmp_path / f"{TOY}.ipynb", "{" + " " * 20 + "}"))


def test_endless_cells_are_cut() -> None:
    notebook, notes = sound({"cells": [{"cell_type": "code", "source": "1"}] * 6_000})
    assert len(notebook.cells) == 5_000 and "only the first 5000" in notes[0]
