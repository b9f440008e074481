"""What running a submission came to, kept under a hash of all that it depends on, so that no run is made twice.

`COURSE_DATA/runs/HASH.json`. The hash covers the code cells as they run (tests restored), the limits, the kind of
sandbox, and the environment: Python, torch, this course's own code. So a grader that is killed goes on where it was, a
repeated run is quick, and a mended test runs anew for everybody.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import platform
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from utils.selfcheck.notebook import Limits, Outcome, kind_of

REPO = Path(__file__).resolve().parent.parent
PARTS = (
    "utils",
    "autograder/engine.py",
    "autograder/idle.py",
    "autograder/oracles.py",
    "autograder/verdict.py",
    "autograder/traffic.py",
    "autograder/tampering.py",
    "autograder/sandbox",
)


@dataclass
class Ran:
    """The outcomes of all code cells, and what a person should look at."""

    outcomes: list[Outcome]
    flags: list[str] = field(default_factory=list)
    isolation: str = ""


@lru_cache(maxsize=1)
def environment() -> str:
    """A hash of what results depend on besides the submission."""
    digest = hashlib.sha256(f"{platform.python_version()} {version('torch')} {version('ipython')}".encode())
    for part in PARTS:
        place = REPO / part
        for path in sorted(place.rglob("*.py")) if place.is_dir() else [place]:
            digest.update(path.read_bytes())
    return digest.hexdigest()


def key(cells: list[Any], limits: Limits, launch_s: float, sandbox: str, files: Path | None = None) -> str:
    """The hash of a run; `files` is the folder of what was handed in beside the notebook."""
    code = [
        [c["source"], kind_of(c), _marks(c).get("grade_id"), float(_marks(c).get("points") or 0), bool(c.get("idle"))]
        for c in cells
        if c["cell_type"] == "code"
    ]
    what = [code, asdict(limits), launch_s, sandbox, _beside(files), environment()]
    return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:32]


def _beside(files: Path | None) -> list[list[str]]:
    """Names and hashes of the files in a folder, notebooks and nbgrader's own note left out."""
    if files is None:
        return []
    found = [p for p in sorted(files.rglob("*")) if p.is_file() and not p.is_symlink()]
    kept = [p for p in found if p.suffix != ".ipynb" and p.name != "timestamp.txt"]
    return [[str(p.relative_to(files)), hashlib.sha256(p.read_bytes()).hexdigest()] for p in kept]


def _marks(cell: Any) -> Any:
    return cell["metadata"].get("nbgrader") or {}


def load(data: Path, name: str) -> Ran | None:
    """A kept run; None where there is none, or what is there is not whole."""
    try:
        return from_record(json.loads((data / "runs" / f"{name}.json").read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return None


TEXTS, NUMBERS = ("name", "kind", "status", "message", "picture"), ("index", "number", "points", "seconds")


def from_record(record: Any) -> Ran:
    """A run from plain data.

    Raises:
        ValueError: it is not the record of a run.
    """
    try:
        ran = Ran([Outcome(**outcome) for outcome in record["outcomes"]], record["flags"], record["isolation"])
    except (KeyError, TypeError) as error:
        raise ValueError(f"this is not the record of a run: {error}") from None
    whole = type(ran.isolation) is str and type(ran.flags) is list and all(type(flag) is str for flag in ran.flags)
    for outcome in ran.outcomes:
        whole = whole and all(type(getattr(outcome, name)) is str for name in TEXTS)
        whole = whole and all(type(getattr(outcome, name)) in (int, float) for name in NUMBERS)
        whole = whole and type(outcome.outputs) is list and all(type(output) is dict for output in outcome.outputs)
    if not whole:
        raise ValueError("this is not the record of a run: a field has another type")
    return ran


def save(data: Path, name: str, ran: Ran) -> None:
    """Keep a run, whole or not at all."""
    folder = data / "runs"
    folder.mkdir(parents=True, exist_ok=True)
    handle, part = tempfile.mkstemp(dir=folder, suffix=".part")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        json.dump(asdict(ran), file, ensure_ascii=False)
    os.replace(part, folder / f"{name}.json")


@contextmanager
def at_work(data: Path) -> Iterator[None]:
    """Note that a grader works here, and remove what killed ones left half written, unless another is at work too."""
    with (data / "graders.lock").open("a+") as file:  # lockf: a lock that children do not inherit
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _sweep(data)
        except OSError:
            pass  # what is half written may be the other's
        fcntl.lockf(file, fcntl.LOCK_SH)
        yield


def _sweep(data: Path) -> None:
    for folder in ("runs", "results", "scored", "versions", "kept"):
        for part in (data / folder).rglob("*.part"):
            part.unlink(missing_ok=True)
