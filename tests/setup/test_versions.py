"""pyproject.toml, requirements.lock, environment.yml and what is installed agree on every package."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[2]
# Where conda calls a package by another name than the index of Python packages does.
CONDA_NAMES = {"torch": "pytorch", "matplotlib": "matplotlib-base"}
# What the course is written for: another version of one of these is a change to try, not a bump.
PILLARS = {"torch": "2.13.0", "nbgrader": "0.9.6", "jupyterlab": "4.6."}


def wanted() -> dict[str, Requirement]:
    """The requirements of the project and its dev extra, by canonical name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = project["dependencies"] + project["optional-dependencies"]["dev"]
    return {canonicalize_name(Requirement(line).name): Requirement(line) for line in lines}


def locked() -> list[Requirement]:
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    return [Requirement(line) for line in lines if line.strip() and not line.startswith("#")]


def locked_here() -> dict[str, str]:
    """The locked versions that apply to this interpreter."""
    return {
        canonicalize_name(requirement.name): str(requirement.specifier).removeprefix("==")
        for requirement in locked()
        if requirement.marker is None or requirement.marker.evaluate()
    }


def conda() -> dict[str, str]:
    """The version ranges of environment.yml by conda's names, dashes for underscores."""
    entries = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
    pairs = [re.match(r"([a-z0-9_-]+)(.*)", entry).groups() for entry in entries if isinstance(entry, str)]
    return {name.replace("_", "-"): ranges for name, ranges in pairs}


def test_lock_pins_everything_exactly() -> None:
    assert [str(r) for r in locked() if not re.fullmatch(r"==[^*,]+", str(r.specifier))] == []


def test_lock_names_no_host_and_no_cuda_package() -> None:
    text = (ROOT / "requirements.lock").read_text()
    assert "://" not in text and "--" not in text
    assert re.findall(r"^(?:nvidia-|cuda-|triton).*", text, re.MULTILINE) == []


@pytest.mark.parametrize("name", sorted(wanted()))
def test_lock_is_within_the_ranges(name: str) -> None:
    versions = [str(r.specifier).removeprefix("==") for r in locked() if canonicalize_name(r.name) == name]
    assert versions, f"{name} is in pyproject.toml and not in requirements.lock: run make lock"
    assert all(wanted()[name].specifier.contains(v) for v in versions)


@pytest.mark.parametrize("name", sorted(wanted()))
def test_conda_has_the_same_range(name: str) -> None:
    assert conda()[CONDA_NAMES.get(name, name)] == ordered(wanted()[name])


def ordered(requirement: Requirement) -> str:
    """The specifier as pyproject.toml writes it: the lower bound first."""
    return ",".join(sorted((str(s) for s in requirement.specifier), reverse=True))


def test_conda_adds_only_python_and_pip() -> None:
    known = {CONDA_NAMES.get(name, name) for name in wanted()}
    assert set(conda()) - known == {"python", "pip"}


def test_python_is_the_same_everywhere() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["project"]["requires-python"] == conda()["python"]
    oldest = project["project"]["requires-python"].removeprefix(">=")
    assert project["tool"]["ruff"]["target-version"] == "py" + oldest.replace(".", "")


@pytest.mark.parametrize("name", sorted(wanted()))
def test_tests_run_with_locked_versions(name: str) -> None:
    # a wheel from another index has a local part, as in 2.13.0+cpu
    assert Version(version(name)).public == locked_here()[name]


def test_pillars_have_the_versions_that_the_course_is_written_for() -> None:
    for name, start in PILLARS.items():
        assert locked_here()[name].startswith(start)
