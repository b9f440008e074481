"""Releases that were made so far, kept with their tests: a submission is graded by those of its own release.

COURSE_DATA/kept/LAB/RELEASE/ holds `release.ipynb`, the `instructor.ipynb` with its hidden tests, and
`kept.json`. RELEASE is a hash of what students have of a lab's named cells, so a mended hidden test replaces the
kept one and counts for everybody, while a change that students can see is a release of its own.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode
from nbgrader.utils import compute_checksum

KEY = "course"


@dataclass(frozen=True)
class Kept:
    """One release of a lab: its hash, when it was first made, and both notebooks."""

    id: str
    made: datetime
    release: NotebookNode
    instructor: NotebookNode


def fingerprint(release: NotebookNode) -> str:
    """The hash of a release: 12 hexadecimal digits that depend on its named cells alone."""
    named = [
        [cell.cell_type, cell.source, {key: mark for key, mark in cell.metadata.nbgrader.items() if key != "checksum"}]
        for cell in release.cells
        if "nbgrader" in cell.metadata
    ]
    return hashlib.sha256(json.dumps(named, sort_keys=True).encode()).hexdigest()[:12]


def shape(release: NotebookNode) -> list[tuple[Any, ...]]:
    """What the gradebook knows of a lab: the named cells, their kinds and points."""
    marks = [cell.metadata.nbgrader for cell in release.cells if "nbgrader" in cell.metadata]
    return sorted((m.grade_id, m.grade, m.solution, m.locked, float(m.get("points", 0))) for m in marks)


def keep(data: Path, lab: str, release: Path, instructor: Path) -> None:
    """Keep a release that was just made, or replace what was kept of the same one."""
    notebook = nbformat.read(release, as_version=4)
    folder = data / "kept" / lab / fingerprint(notebook)
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder / "release.ipynb", release.read_bytes())
    _write(folder / "instructor.ipynb", instructor.read_bytes())
    note = folder / "kept.json"
    if not note.is_file():
        _write(note, json.dumps({"made": datetime.now(UTC).isoformat()}).encode())


def _write(path: Path, content: bytes) -> None:
    """Write a file at once: a run that is killed leaves the old one or the new one."""
    part = path.with_suffix(".part")
    part.write_bytes(content)
    part.replace(path)


def kept_release(data: Path, lab: str, release_id: str) -> Kept | None:
    """A kept release by its hash; None where it is not kept."""
    folder = data / "kept" / lab / release_id
    if not release_id.isalnum() or not (folder / "kept.json").is_file():
        return None
    made = datetime.fromisoformat(json.loads((folder / "kept.json").read_text(encoding="utf-8"))["made"])
    notebooks = (nbformat.read(folder / f"{name}.ipynb", as_version=4) for name in ("release", "instructor"))
    return Kept(release_id, made, *notebooks)


def kept_releases(data: Path, lab: str) -> list[Kept]:
    """All releases kept of a lab, the newest first."""
    folders = [folder for folder in (data / "kept" / lab).glob("*") if folder.is_dir()]
    found = [kept for folder in folders if (kept := kept_release(data, lab, folder.name))]
    return sorted(found, key=lambda kept: (kept.made, kept.id), reverse=True)


def recognise(notebook: NotebookNode, kept: list[Kept]) -> Kept | None:
    """The release that a submission was made from: by its hash, else the one whose cells fit best, the first of these.

    None where nothing is kept, or nothing fits at all.
    """
    note = notebook.metadata.get(KEY)
    named = note.get("release") if isinstance(note, dict) else None
    by_hash = [one for one in kept if one.id == named]
    if by_hash:
        return by_hash[0]
    texts = {cell.source.strip() for cell in notebook.cells}
    sums = {(cell.metadata.get("nbgrader") or {}).get("checksum") for cell in notebook.cells} - {None}
    fits = [_fit(one.release, texts, sums) for one in kept]
    return kept[fits.index(max(fits))] if fits and max(fits) else None


def _fit(release: NotebookNode, texts: set[str], sums: set[str]) -> int:
    named = [cell for cell in release.cells if "nbgrader" in cell.metadata]
    return sum((cell.source.strip() in texts) + (cell.metadata.nbgrader.get("checksum") in sums) for cell in named)


def give_tests(notebook: NotebookNode, kept: Kept) -> None:
    """Put the whole tests of a release into a submission that has its cells."""
    whole = {cell.metadata.nbgrader.grade_id: cell for cell in kept.instructor.cells if "nbgrader" in cell.metadata}
    for cell in notebook.cells:
        marks = cell.metadata.get("nbgrader") or {}
        original = whole.get(marks.get("grade_id"))
        if original is not None and not marks.get("solution"):
            cell.source = original.source
            marks["checksum"] = compute_checksum(cell)
