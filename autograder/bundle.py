"""What students get: notebooks, the labs so far, an installable `utils`, and nothing that answers."""

from __future__ import annotations

import re
import shutil
import tempfile
import tomllib
import zipfile
from pathlib import Path

from autograder.course import REPO, Course, UserError

NAME = "distributed-llm-course-student"
# Modules that answer a lab: students get them when a later lab is out, not while this one is on.
ANSWERS_LAB = {"utils/planner/schedules.py": "lab05", "utils/planner/search.py": "lab07"}
# Modules that answer earlier labs and that a later one builds on: they come with the release of the later one.
NEEDED_FROM = {"utils/mesh": "lab07", "utils/planner": "lab07", "utils/engine": "lab12"}
STAFF_ONLY = ("nbgrader", "jupytext", "jinja2", "markupsafe", "packaging", "pygments", "rapidfuzz", "sqlalchemy",
              "alembic", "jsonschema")  # fmt: skip

README = """# Distributed LLM training and inference

1. `python -m venv .venv && .venv/bin/pip install -e .` installs what the course needs.
2. `.venv/bin/jupyter lab` opens the course: the notebooks lie in `notebooks/`, the labs in `labs/`.
3. `.venv/bin/python -m utils.selfcheck labs/LAB/LAB.ipynb` checks your answers in a fresh process, as
   grading does before it adds its hidden checks.

Labs here: {labs}.
"""


def bundle(course: Course, out: Path, labs: list[str] | None = None) -> Path:
    """Write the bundle to a folder, or to a zip file where `out` ends in .zip; returns where it is.

    Args:
        labs: full names of the labs to include; each is released anew. None takes those under labs/.

    Raises:
        UserError: a folder that is not an earlier bundle stands in the way, or a lab cannot be released.
    """
    if labs is None:
        labs = sorted(path.parent.name for path in course.releases.glob("*/*.ipynb"))
    else:
        from autograder.release import release

        for lab in labs:
            release(course, lab)
    with tempfile.TemporaryDirectory(prefix="bundle-") as temporary:
        content = Path(temporary) / NAME
        _fill(content, course, labs)
        if out.suffix == ".zip":
            _zip(content, out)
        else:
            _replace(content, out)
    return out


def held_back(labs: list[str]) -> list[str]:
    """Paths of the repository that answer a lab which is to come, or is still on while only `labs` are out."""
    answers = [path for path, lab in ANSWERS_LAB.items() if not any(name[: len(lab)] > lab for name in labs)]
    return answers + _to_come(labs)


def masked(lab: str) -> list[str]:
    """Paths of the repository that a submission of `lab` must not see while it runs: what answers it or a later lab."""
    answers = [path for path, answered in ANSWERS_LAB.items() if answered >= lab[: len(answered)]]
    return answers + _to_come([lab])


def _to_come(labs: list[str]) -> list[str]:
    return [path for path, lab in NEEDED_FROM.items() if not any(name >= lab for name in labs)]


def _fill(content: Path, course: Course, labs: list[str]) -> None:
    hold = {REPO / path for path in held_back(labs)}

    def skip(folder: str, names: list[str]) -> list[str]:
        return [
            name for name in names if name[0] == "." or name == "__pycache__" or Path(folder) / name in hold
        ]

    shutil.copytree(REPO / "utils", content / "utils", ignore=skip)
    for path in sorted((REPO / "notebooks").glob("*.ipynb")):
        (content / "notebooks").mkdir(exist_ok=True)
        shutil.copy(path, content / "notebooks")
    for lab in labs:
        (content / "labs" / lab).mkdir(parents=True)
        shutil.copy(course.releases / lab / f"{lab}.ipynb", content / "labs" / lab)
    shutil.copy(REPO / "LICENSE", content)
    (content / "pyproject.toml").write_text(_pyproject(), encoding="utf-8")
    text = README.format(labs=", ".join(labs) or "none yet")
    (content / "README.md").write_text(text, encoding="utf-8")


def _pyproject() -> str:
    """The students' pyproject.toml: the same requirements, less what only staff need."""
    project = tomllib.loads((REPO / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    needed = [text for text in project["dependencies"] if re.split(r"[<>=\[ ]", text)[0] not in STAFF_ONLY]
    listed = "\n".join(f'    "{text}",' for text in needed)
    return (
        f'[build-system]\nrequires = ["setuptools>=77.0.3"]\nbuild-backend = "setuptools.build_meta"\n\n'
        f'[project]\nname = "{NAME}"\nversion = "{project["version"]}"\n'
        f'description = "What students of the course need"\nreadme = "README.md"\n'
        f'requires-python = "{project["requires-python"]}"\nlicense = "Apache-2.0"\n'
        f"dependencies = [\n{listed}\n]\n\n"
        f'[tool.setuptools.packages.find]\ninclude = ["utils*"]\n\n'
        f'[tool.setuptools.package-data]\n"utils.serving" = ["*.json"]\n'
        f'"utils.planner" = ["models/*.yaml", "clusters/*.yaml"]\n'
    )


def _zip(content: Path, out: Path) -> None:
    out.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(content.rglob("*")):
            if path.is_file():
                # A fixed date: the same course gives the same file.
                entry = zipfile.ZipInfo(str(path.relative_to(content.parent)), (2000, 1, 1, 0, 0, 0))
                entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
                archive.writestr(entry, path.read_bytes())


def _replace(content: Path, out: Path) -> None:
    if out.exists() and (not out.is_dir() or (any(out.iterdir()) and not _is_bundle(out))):
        raise UserError(f"{out} is there and is not an earlier bundle: name another place with --out.")
    shutil.rmtree(out, ignore_errors=True)
    out.parent.mkdir(parents=True, exist_ok=True)
    shutil.copytree(content, out)


def _is_bundle(folder: Path) -> bool:
    project = folder / "pyproject.toml"
    return project.is_file() and f'name = "{NAME}"' in project.read_text(encoding="utf-8")
