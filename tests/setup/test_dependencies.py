"""What the packages import is declared, and what they read beside their code is part of an installation."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from autograder.bundle import STAFF_ONLY

ROOT = Path(__file__).parents[2]
OWN = ("utils", "autograder", "tests", "leftovers", "benchmarks")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def declared(*extras: str) -> set[str]:
    lines = [*PROJECT["dependencies"], *(line for extra in extras for line in PROJECT["optional-dependencies"][extra])]
    return {canonicalize_name(Requirement(line).name) for line in lines}


def imported(*folders: str, but: tuple[str, ...] = ()) -> Iterator[tuple[str, str]]:
    """Pairs of a file and a distribution that it imports from, anywhere in it; files below `but` are left out."""
    distributions = packages_distributions()
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            if str(path.relative_to(ROOT)).startswith(but):
                continue
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
                if isinstance(node, ast.ImportFrom) and not node.level:
                    names = [node.module or ""]
                for top in {name.partition(".")[0] for name in names} - sys.stdlib_module_names - set(OWN):
                    yield str(path.relative_to(ROOT)), canonicalize_name(distributions.get(top, [top])[0])


@pytest.mark.parametrize(
    ("folder", "extras"),
    [("utils", ["parity"]), ("autograder", ["cluster", "hub"]), ("notebooks", ["parity"]), ("solutions", []),
     ("benchmarks", ["parity"]), ("tests", ["dev", "parity", "hub"])],
)  # fmt: skip
def test_what_is_imported_is_declared(folder: str, extras: list[str]) -> None:
    known, cells = declared(*extras), ("tests/answers/lab", "tests/sample_class/")  # those are students' cells
    assert [pair for pair in imported(folder, but=cells) if pair[1] not in known] == []


def test_students_get_what_utils_imports() -> None:
    kept = declared("parity") - {canonicalize_name(name) for name in STAFF_ONLY}
    assert [pair for pair in imported("utils", "notebooks", "solutions") if pair[1] not in kept] == []
    assert {canonicalize_name(name) for name in STAFF_ONLY} <= declared()


def test_an_installation_has_the_files_that_the_packages_read(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE", "THIRD_PARTY.md"):
        shutil.copy(ROOT / name, source)
    for name in ("utils", "autograder"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    code = f"from setuptools.build_meta import build_wheel; print(build_wheel({str(tmp_path)!r}))"
    done = subprocess.run([sys.executable, "-c", code], cwd=source, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    with zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as wheel:
        there = set(wheel.namelist())
    wanted = {str(path.relative_to(ROOT)) for folder in ("utils", "autograder")
              for path in (ROOT / folder).rglob("*") if path.is_file() and "__pycache__" not in path.parts}  # fmt: skip
    assert wanted - there == set()
