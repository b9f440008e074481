"""Files beside a notebook: pictures and data come along, what would take the place of a module stays behind."""

from __future__ import annotations

import shutil
import sys
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

MOST_BYTES = 100_000_000
MOST_FILES = 1_000
OURS = {"utils", "autograder", "sitecustomize", "usercustomize", "ipython_config", "jupyter_config", "conftest"}
CODE = {".py", ".pyc", ".pyi", ".so", ".pyd", ".dylib", ".dll"}
LISTED = 5


def copy_beside(files: dict[Path, Path], target: Path) -> list[str]:
    """Copy a hand-in's other files below `target`, each to its place there; what was set aside, in sentences.

    Example:
        copy_beside({Path("in/a.png"): Path("a.png"), Path("in/numpy.py"): Path("numpy.py")}, Path("out"))
        # ['numpy.py was set aside: it would take the place of the module numpy']
    """
    shadows: dict[str, str] = {}
    large: list[str] = []
    size = count = 0
    for path, place in files.items():
        if place.suffix.lower() == ".ipynb":
            continue
        if module := shadowed(place):
            shadows.setdefault(place.parts[0], module)
        elif size + path.lstat().st_size > MOST_BYTES or count >= MOST_FILES:
            large.append(str(place))
        else:
            size, count = size + path.lstat().st_size, count + 1
            (target / place).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target / place, follow_symlinks=False)
    told = list(shadows.items())[:LISTED]
    notes = [f"{name} was set aside: it would take the place of {what}" for name, what in told]
    if len(shadows) > LISTED:
        notes.append(f"{len(shadows) - LISTED} more files that take the place of modules were set aside")
    if large:
        names = f"{large[0]} and {len(large) - 1} more" if len(large) > 1 else large[0]
        notes.append(f"{names} left out: files beside a notebook may take {MOST_BYTES // 10**6} MB, {MOST_FILES} files")
    return notes


def shadowed(place: Path) -> str:
    """What a file beside the notebook would take the place of when something is imported; empty where nothing."""
    first = place.parts[0]
    module = first.split(".")[0]
    if place.suffix.lower() == ".pth":
        return "Python's own list of folders"
    is_code = place.suffix.lower() in CODE
    if not is_code or (module.lower() not in _modules() and module not in OURS):
        return ""
    return f"the module {module}"


@cache
def _modules() -> frozenset[str]:
    """Names of all modules that a notebook may import: Python's and the installed packages'."""
    return frozenset(name.lower() for name in (*sys.stdlib_module_names, *packages_distributions()))
