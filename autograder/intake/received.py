"""Keeps what students sent as they sent it, where a hand-in is mended in its own place.

nbgrader's exchange collects into submitted/, and grading reads from there. The first time a hand-in is met there,
it goes to COURSE_DATA/received/STUDENT/LAB/ as it is; the mended one takes its place. `received/STUDENT/LAB.json`
says which file we wrote and what was noted, so that a second run knows its own work from a new hand-in.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import stat
from pathlib import Path


def original_of(data: Path, student: str, lab: str) -> tuple[Path, list[str]]:
    """The folder with a student's work as it was sent, and the notes that are known of it.

    Moves nothing away: a hand-in that is new in submitted/ is copied to received/ first.
    """
    submitted, received = data / "submitted" / student / lab, data / "received" / student / lab
    record = _record(data, student, lab)
    if submitted.is_dir():
        if record and record["written"] == digest(submitted / f"{lab}.ipynb"):
            return (received, []) if received.is_dir() else (submitted, list(record["notes"]))
        shutil.rmtree(received, ignore_errors=True)
        shutil.copytree(submitted, received, symlinks=True, ignore=_special)
    return received, []


def is_ours(data: Path, student: str, lab: str) -> bool:
    """Whether the notebook in submitted/ is the one that intake wrote."""
    record = _record(data, student, lab)
    return bool(record) and record["written"] == digest(data / "submitted" / student / lab / f"{lab}.ipynb")


def students(data: Path, lab: str) -> list[str]:
    """All who have a hand-in of a lab in submitted/ or received/."""
    folders = [path for step in ("submitted", "received") for path in (data / step).glob(f"*/{lab}") if path.is_dir()]
    return sorted({path.parent.name for path in folders if not path.parent.name.startswith(".")})


def note_written(data: Path, student: str, lab: str, notes: list[str]) -> None:
    """Remember the notebook that intake wrote to submitted/, and what it said of it."""
    path = data / "received" / student / f"{lab}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    record = {"written": digest(data / "submitted" / student / lab / f"{lab}.ipynb"), "notes": notes}
    path.write_text(json.dumps(record, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def forget(data: Path, student: str, lab: str) -> None:
    """Drop what is kept of an earlier hand-in: a new one came from elsewhere."""
    shutil.rmtree(data / "received" / student / lab, ignore_errors=True)
    (data / "received" / student / f"{lab}.json").unlink(missing_ok=True)


def digest(path: Path) -> str:
    """A hash of a file's content; empty where it is no ordinary file."""
    if path.is_symlink() or not path.is_file():
        return ""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _record(data: Path, student: str, lab: str) -> dict | None:
    try:
        return json.loads((data / "received" / student / f"{lab}.json").read_text(encoding="utf-8"))
    except (FileNotFoundError, json.JSONDecodeError):
        return None


def _special(folder: str, names: list[str]) -> list[str]:
    """Names of a folder that are neither files, folders nor links: a copy of a pipe would wait for ever."""
    kinds = (stat.S_ISREG, stat.S_ISDIR, stat.S_ISLNK)
    return [name for name in names if not any(kind((Path(folder) / name).lstat().st_mode) for kind in kinds)]
