"""Reads a file that a student handed in as a notebook, and makes a sound one of it.

A notebook is built anew from the parts that grading needs (kind, text, metadata, pictures in text cells), so
whatever else is odd in a file - missing or doubled cell ids, outputs that are none, an old format - cannot reach
nbgrader. Outputs are left out: grading makes its own.
"""

from __future__ import annotations

import copy
import re
import stat
from itertools import chain, count, zip_longest
from pathlib import Path
from typing import Any

from nbformat import NotebookNode, from_dict
from nbformat.v4 import nbformat_minor

from autograder.intake.decoding import (
    LARGE,
    Unreadable,
    json_of,
    sides_of_conflict,
    text_of,
    whole_cells,
    without_outputs,
)
from autograder.kept import KEY

LARGEST_FILE = 2 << 30
LARGEST_CELL = 10 << 20
LONGEST_MARK = 200
MOST_CELLS = 5_000
KINDS = ("code", "markdown", "raw")


def read_notebook(path: Path, release: NotebookNode | None = None) -> tuple[NotebookNode, list[str]]:
    """A notebook from a file that may be damaged, and what was odd about it, in sentences.

    A file whose end is missing, or that has the marks of a merge conflict, is read where that loses no answer:
    `release` says which cells are answers.

    Raises:
        Unreadable: one sentence that says why it cannot be read.

    Example:
        notebook, notes = read_notebook(Path("Ada.ipynb"), release)
    """
    text, notes = text_of(_bytes(path))
    if len(text) > LARGE:
        text = without_outputs(text)
    try:
        value, more = json_of(text)
    except Unreadable as error:
        value, more = _saved(text, release, error)
    notebook, odd = sound(value)
    return notebook, notes + more + odd


def grade_id(cell: Any) -> str:
    """A cell's task id, or an empty string."""
    return (cell.metadata.get("nbgrader") or {}).get("grade_id", "")


def is_answer(cell: Any) -> bool:
    """Whether a cell of a release is one that students fill in."""
    return bool((cell.metadata.get("nbgrader") or {}).get("solution"))


def _bytes(path: Path) -> bytes:
    try:
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode):
            raise Unreadable(f"{path.name} is a link or a device, not a file: hand in the notebook itself.")
        if status.st_size > LARGEST_FILE:
            size = f"{status.st_size / 1e9:.1f} GB"
            raise Unreadable(f"The file is {size} large, more than the {LARGEST_FILE / 1e9:.0f} GB that can be read.")
        return path.read_bytes()
    except OSError as error:
        raise Unreadable(f"The file cannot be opened: {error.strerror}.") from None


def _saved(text: str, release: NotebookNode | None, error: Unreadable) -> tuple[Any, list[str]]:
    """What can be had of a text that is no JSON, without guessing what an answer was."""
    sides = sides_of_conflict(text)
    if sides:
        return _of_conflict(sides)
    cells = whole_cells(text)
    if not cells:
        raise error
    after = f"it is cut off after cell {len(cells)}"
    have = {grade_id(cell) for cell in sound({"cells": cells})[0].cells}
    lost = [grade_id(cell) for cell in release.cells if is_answer(cell)] if release else []
    lost = [name for name in lost if name not in have]
    if lost or not release:
        raise Unreadable(f"{error} {after.capitalize()}{_without(lost)}: hand in the whole file.")
    return {"cells": cells}, [f"the file is no whole notebook: {after}, but every answer is there"]


def _without(lost: list[str]) -> str:
    more = f" and {len(lost) - 3} more" if len(lost) > 3 else ""
    return f", without the cells {', '.join(lost[:3])}{more}" if lost else ""


def _of_conflict(sides: tuple[str, str]) -> tuple[Any, list[str]]:
    read = []
    for side in sides:
        try:
            read.append(json_of(side)[0])
        except Unreadable:
            continue
    marks = "the file has the marks of a merge conflict"
    if not read:
        raise Unreadable(f"T{marks[1:]}, and is not valid JSON: resolve the conflict and hand it in again.")
    if len(read) == 1:
        return read[0], [f"{marks}; of its two versions the one that can be read was taken"]
    first, second = ([cell.source for cell in sound(value)[0].cells if cell.cell_type == "code"] for value in read)
    if first != second:
        place = next(i for i, (a, b) in enumerate(zip_longest(first, second), start=1) if a != b)
        raise Unreadable(
            f"T{marks[1:]}, and its two versions differ in code cell {place}: "
            "resolve the conflict and hand it in again."
        )
    return read[0], [f"{marks}; both versions have the same code"]


def sound(value: Any) -> tuple[NotebookNode, list[str]]:
    """A sound notebook from the JSON of one, and what had to be left out, in sentences.

    Raises:
        Unreadable: the JSON is no notebook.
    """
    if not isinstance(value, dict):
        raise Unreadable("The file is JSON but no notebook: it does not begin with a notebook's fields.")
    raw = value.get("cells", _old_cells(value.get("worksheets")))
    if not isinstance(raw, list):
        raise Unreadable("The file is JSON but no notebook: it holds no list of cells.")
    if not raw:
        raise Unreadable("The notebook holds no cell.")
    notes: list[str] = []
    cells = [_cell(cell, number, notes) for number, cell in enumerate(raw[:MOST_CELLS], start=1)]
    if len(raw) > MOST_CELLS:
        notes.append(f"of {len(raw)} cells only the first {MOST_CELLS} were read")
    cells = [cell for cell in cells if cell]
    if not cells:
        raise Unreadable("The file is JSON but no notebook: none of its cells has a kind and a text.")
    give_ids(cells)
    metadata = from_dict(_told(value.get("metadata")))
    return NotebookNode(nbformat=4, nbformat_minor=nbformat_minor, metadata=metadata, cells=cells), notes


def _told(metadata: Any) -> dict[str, dict[str, str]]:
    """What a notebook says of its kernel, its language, and the lab and release that it was made from."""
    told = {}
    for key in ("kernelspec", "language_info", KEY):
        entry = metadata.get(key) if isinstance(metadata, dict) else None
        if isinstance(entry, dict):
            told[key] = {name: text[:LONGEST_MARK] for name, text in entry.items() if isinstance(text, str)}
    return told


def _old_cells(worksheets: Any) -> list[Any] | None:
    """The cells of format 3, in the words of format 4."""
    if not isinstance(worksheets, list):
        return None
    cells = []
    for sheet in worksheets:
        for cell in (sheet.get("cells") if isinstance(sheet, dict) else None) or []:
            if isinstance(cell, dict):
                kind = "markdown" if cell.get("cell_type") in ("heading", "html") else cell.get("cell_type")
                cells.append({**cell, "cell_type": kind, "source": cell.get("input", cell.get("source"))})
    return cells


def _cell(raw: Any, number: int, notes: list[str]) -> NotebookNode | None:
    source = _text(raw.get("source")) if isinstance(raw, dict) else None
    if source is None:
        notes.append(f"cell {number} is damaged and was left out")
        return None
    if len(source) > LARGEST_CELL:
        notes.append(f"cell {number} holds {len(source) / 1e6:.0f} MB of text; it was emptied")
        source = ""
    kind = raw.get("cell_type")
    if not isinstance(kind, str) or kind not in KINDS:
        notes.append(f"cell {number} is of the unknown kind {str(kind)[:20]!r}; it is taken as text")
        kind = "raw"
    # nbformat's own makers check every cell against the schema, which takes most of the time of reading a class.
    own = raw["id"] if isinstance(raw.get("id"), str) else ""
    cell = NotebookNode(id=own, cell_type=kind, metadata=from_dict(_marks(raw.get("metadata"))), source=source)
    if kind == "code":
        cell.outputs, cell.execution_count = [], None
    if kind != "code" and _are_attachments(raw.get("attachments")):
        cell.attachments = copy.deepcopy(raw["attachments"])
    return cell


def _text(value: Any) -> str | None:
    if isinstance(value, list) and all(isinstance(line, str) for line in value):
        value = "".join(value)
    # Half a surrogate pair is legal in JSON and can be written in no encoding.
    return value.encode("utf-8", "replace").decode("utf-8") if isinstance(value, str) else None


def _marks(metadata: Any) -> dict[str, Any]:
    """The course's marks of a cell, as far as they are plain; everything else in a cell's metadata is for editors."""
    marks = metadata.get("nbgrader") if isinstance(metadata, dict) else None
    if not isinstance(marks, dict) or not isinstance(marks.get("grade_id"), str):
        return {}
    plain = {_text(key): mark for key, mark in marks.items() if isinstance(mark, bool | int | float)}
    texts = {_text(key): _text(mark[:LONGEST_MARK]) for key, mark in marks.items() if isinstance(mark, str)}
    return {"nbgrader": plain | texts}


def _are_attachments(value: Any) -> bool:
    """Whether these are pictures by name and kind, as Jupyter stores them in a cell of text."""
    if not isinstance(value, dict) or any(_text(name) != name or not isinstance(value[name], dict) for name in value):
        return False
    return all(isinstance(part, str) and part.isascii() for files in value.values() for part in chain(*files.items()))


def give_ids(cells: list[NotebookNode]) -> None:
    """Give every cell an id of its own; the first that has one keeps it."""
    used: set[str] = set()
    for number, cell in enumerate(cells):
        if not re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", cell.id) or cell.id in used:
            cell.id = next(name for i in count(number) if (name := f"extra-{i}") not in used)
        used.add(cell.id)
