"""The guide for writers of labs is followed word by word: its files are written, its commands run, its outputs shown.

A block ```python file=PATH is a file; ```sh is run by bash, ```sh fails must fail; ```text after it is what the command
shows, line by line, where `...` stands for anything.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from autograder.course import REPO

GUIDE = REPO / "autograder" / "GUIDE.md"
NEEDED = (
    "autograder",
    "utils",
    "notebooks",
    "tests/conftest.py",
    "tests/answers/test_answers.py",
    "pyproject.toml",
    "nbgrader_config.py",
    "requirements.lock",
    "environment.yml",
    "README.md",
    "LICENSE",
    "THIRD_PARTY.md",
)
_BLOCK = re.compile(r"^```(\w+)(.*?)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """One fenced block: its language, the rest of its first line, its text."""

    kind: str
    about: str
    text: str


def blocks() -> list[Block]:
    text = GUIDE.read_text(encoding="utf-8")
    found = [Block(kind, about.strip(), body) for kind, about, body in _BLOCK.findall(text)]
    assert text.count("```") == 2 * len(found), "a block of the guide does not pair"
    return found


def shows(output: str, wanted: str) -> str:
    """The first wanted line that the output does not show after those before it, or an empty string."""
    rest = output.splitlines()
    for line in wanted.splitlines():
        if line.strip() == "...":
            continue
        pattern = re.compile(r".*".join(re.escape(part) for part in re.split(r" *\.\.\. *", line)))
        place = next((i for i, shown in enumerate(rest) if pattern.fullmatch(shown.rstrip())), None)
        if place is None:
            return line
        rest = rest[place + 1 :]
    return ""


def run(script: str, folder: Path, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a block as one types it: it stops at the first command that fails."""
    return subprocess.run(
        ["bash", "-e", "-c", script],
        cwd=folder,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=250,
    )


def copy_of_the_repository(folder: Path) -> None:
    for name in NEEDED:
        source = REPO / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__", ".ipynb_checkpoints"))
        elif source.exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, folder / name)
    (folder / "solutions").mkdir()
    (folder / "labs").mkdir()


@pytest.mark.heavy
@pytest.mark.timeout(600)
def test_the_guide_from_nothing_to_a_graded_lab(tmp_path: Path) -> None:
    work, scratch = tmp_path / "repository", tmp_path / "my_first_lab"
    work.mkdir()
    copy_of_the_repository(work)
    env = {
        "PATH": f"{Path(sys.executable).parent}:{os.defpath}",
        "HOME": str(tmp_path),
        "LANG": "C.UTF-8",
        "PYTHONPATH": str(work),
    }
    exported = ""
    output = ""
    ran = 0
    for block in blocks():
        text = block.text.replace("/tmp/my_first_lab", str(scratch))
        if block.kind == "python":
            target = work / block.about.removeprefix("file=")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
        elif block.kind == "sh" and text.startswith("export "):
            exported += text
        elif block.kind == "sh":
            done = run(exported + text, work, env)
            output, ran = done.stdout, ran + 1
            assert (done.returncode != 0) == (block.about == "fails"), f"{text}\n{output}"
        else:
            missing = shows(output, text)
            assert not missing, f"the guide promises {missing!r}; shown was:\n{output}"
    assert ran >= 9
    assert not scratch.exists() and not (work / "solutions" / "lab97_mean.py").exists()


def test_the_guide_shows_what_it_promises_and_nothing_else_passes() -> None:
    assert shows("a\nthe mark: 5 / 20  x\nb", "a\nthe mark: ... x") == ""
    assert shows("b\na", "a\nb") == "b", "the order counts"
    assert shows("a 5", "a") == "a", "a whole line is meant"


def test_the_guides_files_stay_out_of_the_course() -> None:
    files = [block.about.removeprefix("file=") for block in blocks() if block.kind == "python"]
    assert all(re.search(r"lab97|^tryout/", name) for name in files)
    assert not [name for name in files if (REPO / name).exists()]
