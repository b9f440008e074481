"""The install script stops with one sentence where it cannot go on, and make says what it can do."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def bare_copy(tmp_path: Path) -> Path:
    """A folder with what make needs and no .venv."""
    (tmp_path / ".ci").mkdir()
    for name in ("Makefile", "requirements.lock", "pyproject.toml", ".ci/install.sh"):
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def fake_python(folder: Path, version: str, good: bool) -> Path:
    """An interpreter that says it is `version`; where it is not `good`, it fails the check of its version."""
    path = folder / "fakepython"
    path.write_text(
        f'#!/bin/sh\ncase "$1" in --version) echo "Python {version}";; '
        f'-c) case "$2" in *ensurepip*) exit 1;; esac; exit {0 if good else 1};; esac\n'
    )
    path.chmod(0o755)
    return path


def make(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    clean = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": os.fspath(folder)}
    return subprocess.run(
        ["make", "-s", *words], cwd=folder, env=clean, text=True, capture_output=True, timeout=60
    )


@pytest.mark.parametrize("target", ["demo", "lab", "test", "notebooks", "test-all"])
def test_an_old_python_is_refused_before_anything_else(bare_copy: Path, target: str) -> None:
    python = fake_python(bare_copy, "3.10.9", good=False)
    result = make(bare_copy, target, f"PYTHON={python}")
    assert result.returncode != 0
    assert f"{python} is Python 3.10.9, and this course needs Python 3.11 or newer" in result.stderr
    assert not (bare_copy / ".venv").exists()


def test_a_missing_python_is_named(bare_copy: Path) -> None:
    result = make(bare_copy, "demo", "PYTHON=/no/such/python3")
    assert result.returncode != 0
    assert "There is no /no/such/python3 here" in result.stderr


def test_a_python_without_venv_gets_advice(bare_copy: Path) -> None:
    result = make(bare_copy, "demo", f"PYTHON={fake_python(bare_copy, '3.12.1', good=True)}")
    assert result.returncode != 0
    assert "apt install python3-venv" in result.stderr
    assert not (bare_copy / ".venv" / ".installed").exists()


def test_ci_runs_make_test() -> None:
    script = (ROOT / ".ci" / "run").read_text()
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
    assert "set -euo pipefail" in script
    made = [line for line in script.splitlines() if line.startswith(("make ", "exec make "))]
    assert made == ["make test", "exec make test-hub HUB_TESTS=tests/hub/test_browser.py"]


def test_every_target_is_explained(bare_copy: Path) -> None:
    result = make(bare_copy)
    assert result.returncode == 0
    for target in (
        "demo",
        "lab",
        "model",
        "test",
        "test-all",
        "test-gpu",
        "test-hub",
        "test-deploy",
        "hub",
        "notebooks",
        "bench",
        "lint",
        "lock",
        "clean",
    ):
        assert f"make {target} " in result.stdout
