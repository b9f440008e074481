"""`python -m utils.selfcheck NOTEBOOK`: run it in a fresh kernel, report each test, exit 0 if all passed."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from utils.selfcheck.notebook import Limits, Outcome, kind_of, run_cells
from utils.selfcheck.session import KernelFailed, KernelSession


def read_cells(path: Path) -> list[dict]:
    """The cells of a notebook file, with sources as one string.

    Raises:
        ValueError: one sentence that says why the file is not a readable notebook.
    """
    if not path.is_file():
        raise ValueError(f"there is no file {path}")
    try:
        notebook = json.loads(path.read_text(encoding="utf-8-sig"))
        cells = notebook["cells"]
        for cell in cells:
            cell["source"] = cell["source"] if isinstance(cell["source"], str) else "".join(cell["source"])
            cell.setdefault("metadata", {})
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not UTF-8 text: save it again from JupyterLab") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"{path} is damaged: it stops being JSON at line {error.lineno}") from None
    except (KeyError, TypeError):
        raise ValueError(f"{path} is not a Jupyter notebook of format 4") from None
    return cells


def show(outcome: Outcome) -> None:
    """Print one line for a test, or for another cell that did not run to its end."""
    if outcome.kind == "test":
        reason = f": {outcome.message}" if outcome.message else ""
        print(f"{outcome.status:8}{outcome.name}{reason}", flush=True)
    elif outcome.status not in ("passed", "not run"):
        print(f"note    {outcome.name} {outcome.status}: {outcome.message}", flush=True)


def selfcheck(path: Path, limits: Limits) -> int:
    """Check one notebook; the exit code: 0 all tests passed, 1 some did not, 2 nothing could be checked."""
    try:
        cells = read_cells(path)
    except ValueError as error:
        print(error)
        return 2
    if not any(kind_of(cell) == "test" for cell in cells):
        print(f"{path} has no test cells: is it the lab's notebook, and was it saved by JupyterLab?")
        return 2
    try:
        with KernelSession(path.resolve().parent) as session:
            tests = []
            for outcome in run_cells(session, cells, limits):
                show(outcome)
                tests += [outcome] if outcome.kind == "test" else []
    except KernelFailed as error:
        print(error)
        return 2
    passed = sum(test.status == "passed" for test in tests)
    print(f"{passed} of {len(tests)} tests passed. Grading runs these and further, hidden checks.")
    return 0 if passed == len(tests) else 1


def main(argv: list[str] | None = None) -> int:
    """The command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m utils.selfcheck", description=__doc__)
    parser.add_argument("notebook", type=Path)
    parser.add_argument(
        "--cell-limit", type=float, default=Limits.cell_s, help="seconds a cell of yours may take"
    )
    parser.add_argument("--test-limit", type=float, default=Limits.test_s, help="seconds a test may take")
    args = parser.parse_args(argv)
    try:
        limits = Limits(test_s=args.test_limit, cell_s=args.cell_limit)
    except ValueError as error:
        parser.error(str(error))
    return selfcheck(args.notebook, limits)


if __name__ == "__main__":
    sys.exit(main())
