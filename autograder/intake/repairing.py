"""Gives a submission the cells of its release again: marks, kinds, read-only texts, order; each repair is told.

What a student wrote stays. Where a cell was copied, the answer in its place counts: cells above it run as they
are, a rival answer below it is kept as text, because it would take the answer's place.
"""

from __future__ import annotations

import copy
from typing import Any

from nbformat import NotebookNode

from autograder.intake.decoding import Unreadable
from autograder.intake.matching import Matching, cell_key, defined_names, same_text
from autograder.intake.reading import give_ids, grade_id, is_answer

LISTED = 6
MARKS = ("points", "grade", "solution", "locked", "task")


def repair(notebook: NotebookNode, release: NotebookNode) -> list[str]:
    """Bring a submission's cells back to what the release made of them; what was done, in sentences.

    Raises:
        Unreadable: the notebook has none of the lab's tasks.

    Example:
        notes = repair(notebook, release)       # ['cell ring_sum was missing and has been put back']
    """
    match = Matching(notebook, release)
    _refuse_other_labs(notebook, release, match)
    chosen, notes = _choose(match)
    notes += _marked_again(match, chosen)
    for name, place in chosen.items():
        notes += _restore(notebook.cells[place], match.named[name])
    for i, cell in enumerate(notebook.cells):
        if i not in chosen.values():
            cell.metadata.pop("nbgrader", None)
            if cell.id in match.named:
                cell.id = ""
    notebook.cells = [cell for cell in notebook.cells if not cell.pop("dropped", False)]
    notes += _in_order(notebook, match)
    notes += _put_back(notebook, match)
    notes += _kernel(notebook, release)
    notebook.metadata = copy.deepcopy(release.metadata)
    give_ids(notebook.cells)
    return notes


def listed(names: list[str]) -> str:
    """Names in one phrase, not more than a few of them."""
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return ("cells " if len(names) > 1 else "cell ") + ", ".join(names[:LISTED]) + more


def _refuse_other_labs(notebook: NotebookNode, release: NotebookNode, match: Matching) -> None:
    if any(grade_id(cell) and cell_key(cell) in match.places and not _shared(cell) for cell in release.cells):
        return
    lab = (notebook.metadata.get("course") or {}).get("lab", "")
    own = (release.metadata.get("course") or {}).get("lab", "")
    if lab and lab != own:
        raise Unreadable(f"The notebook has none of this lab's cells: it is the one of {lab}.")
    raise Unreadable("The notebook has none of this lab's cells: another lab's, or a new one with other text.")


def _shared(cell: Any) -> bool:
    return not is_answer(cell) and not cell.metadata.nbgrader.get("grade")


def _choose(match: Matching) -> tuple[dict[str, int], list[str]]:
    """Which of several cells counts, by name; what the others became is written into them."""
    chosen, notes = {}, []
    for name, places in match.places.items():
        if len(places) == 1:
            chosen[name] = places[0]
        elif is_answer(match.named[name]):
            chosen[name], note = _choose_answer(match, name, places)
            notes += note
        else:
            chosen[name], note = _choose_read_only(match, name, places)
            notes += note
    return chosen, notes


def _choose_answer(match: Matching, name: str, places: list[int]) -> tuple[int, list[str]]:
    """The last answer in the task's place, as running the cells in order would have it."""
    stub, cells = match.named[name].source, match.cells
    asked = defined_names(stub)
    copies = [i for i in places if same_text(cells[i].source, stub)]
    rivals = [i for i in places if i not in copies and (not asked or asked & defined_names(cells[i].source))]
    before, after = match.window(name)
    inside = [i for i in rivals if before < i < after]
    earlier = [i for i in rivals if i < after]
    keep = (inside or earlier or rivals[:1] or copies[:1] or places)[-1]
    kept_as_text = [i for i in rivals if i > keep]
    for i in set(copies) - {keep}:
        cells[i].dropped = True
    for i in kept_as_text:
        _to_text(cells[i])
    if len(copies) + len(rivals) < 2:
        return keep, []  # the others are helpers that a copied cell was used for
    which = "the answer in its place counts" if rivals else "nothing is answered in it"
    also = "; a later copy was not run" if kept_as_text else ""
    return keep, [f"cell {name} was there {len(places)} times; {which}{also}"]


def _choose_read_only(match: Matching, name: str, places: list[int]) -> tuple[int, list[str]]:
    text = match.named[name].source
    before, after = match.window(name)
    inside = [i for i in places if before < i < after] or places
    same = [i for i in inside if same_text(match.cells[i].source, text)]
    keep = (same or inside)[0]
    for i in places:
        if i != keep and same_text(match.cells[i].source, text):
            match.cells[i].dropped = True
    return keep, [f"cell {name} was there {len(places)} times; the one in its place counts"]


def _to_text(cell: Any) -> None:
    cell.cell_type = "raw"
    cell.pop("outputs", None)
    cell.pop("execution_count", None)


def _marked_again(match: Matching, chosen: dict[str, int]) -> list[str]:
    lost = [name for name, place in chosen.items() if grade_id(match.cells[place]) != name]
    if not lost:
        return []
    return [
        f"the course's marks were missing from {listed(lost)}, as when another editor saves a notebook; "
        "they were put back by content and position"
    ]


def _restore(cell: Any, original: Any) -> list[str]:
    """Make a cell the release's cell again, except for the text of an answer."""
    notes, name = [], grade_id(original)
    if cell.cell_type != original.cell_type:
        notes.append(f"cell {name} had been turned into {cell.cell_type} and is {original.cell_type} again")
        _to_kind(cell, original.cell_type)
    own, marks = cell.metadata.get("nbgrader", {}), original.metadata.nbgrader
    changed = [mark for mark in MARKS if own and own.get(mark, False) != marks.get(mark, False)]
    if changed == ["points"] and "points" in marks:
        notes.append(f"the points of cell {name} had been changed and are {marks.points} again")
    elif changed:
        notes.append(f"the course's marks of cell {name} ({', '.join(changed)}) had been changed and are restored")
    if not is_answer(original):
        if not same_text(cell.source, original.source):
            notes.append(f"cell {name} is read-only and had been changed; its released text was used")
        cell.source = original.source
    cell.metadata = copy.deepcopy(original.metadata)
    cell.id = original.id
    return notes


def _to_kind(cell: Any, kind: str) -> None:
    cell.cell_type = kind
    if kind == "code":
        cell.outputs, cell.execution_count = [], None
        cell.pop("attachments", None)
    else:
        cell.pop("outputs", None)
        cell.pop("execution_count", None)


def _in_order(notebook: NotebookNode, match: Matching) -> list[str]:
    """Sort the lab's cells as released; a student's own cells stay behind the cell that they follow."""
    rank = {name: i for i, name in enumerate(match.named)}
    blocks: list[list[Any]] = [[]]
    for cell in notebook.cells:
        if grade_id(cell):
            blocks.append([])
        blocks[-1].append(cell)
    head, *rest = blocks
    ordered = sorted(rest, key=lambda block: rank[grade_id(block[0])])
    if ordered == rest:
        return []
    notebook.cells = head + [cell for block in ordered for cell in block]
    return ["the lab's cells had been moved; they were run in the lab's order"]


def _put_back(notebook: NotebookNode, match: Matching) -> list[str]:
    """Insert what is missing: a test before the release's next cell, so that what it tests has run."""
    for name in match.missing:
        place = _place_for(name, notebook.cells, match)
        notebook.cells.insert(place, copy.deepcopy(match.named[name]))
    answers = [name for name in match.missing if is_answer(match.named[name])]
    others = [name for name in match.missing if name not in answers]
    back = "missing and ha{} been put back"
    notes = [f"{listed(others)} w{_were(others)} {back.format('ve' if len(others) > 1 else 's')}"] if others else []
    return notes + ([f"{listed(answers)} w{_were(answers)} missing; nothing is answered in it"] if answers else [])


def _were(names: list[str]) -> str:
    return "ere" if len(names) > 1 else "as"


def _place_for(name: str, cells: list[Any], match: Matching) -> int:
    """Between the named cells around it: a test as late, all else as early as the released texts there allow."""
    here = match.keys.index(name)
    places = {cell_key(cell): i for i, cell in reversed(list(enumerate(cells)))}
    around = [i for i, key in enumerate(match.keys) if key in match.named and key in places]
    before = max((i for i in around if i < here), default=-1)
    after = min((i for i in around if i > here), default=len(match.keys))
    first = places[match.keys[before]] + 1 if before >= 0 else 0
    last = places[match.keys[after]] if after < len(match.keys) else len(cells)
    is_test = match.named[name].metadata.nbgrader.get("grade")
    texts = match.keys[here + 1 : after] if is_test else match.keys[before + 1 : here]
    there = [places[key] for key in texts if first <= places.get(key, -1) < last]
    return min(there, default=last) if is_test else max(there, default=first - 1) + 1


def _kernel(notebook: NotebookNode, release: NotebookNode) -> list[str]:
    """A sentence where the notebook was set to another language; another Python's name is no matter."""
    spec = notebook.metadata.get("kernelspec")
    info = notebook.metadata.get("language_info")
    spoken = [part.get("language", part.get("name", "")) for part in (spec, info) if isinstance(part, dict)]
    other = [str(name)[:30] for name in spoken if name and not str(name).lower().startswith(("python", "ipython"))]
    return [f"the notebook was set to the kernel {other[0]!r}; it was run with Python"] if other[:1] else []
