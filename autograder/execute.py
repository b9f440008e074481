"""Runs the cells of a submission and leaves in each test cell what nbgrader scores: nothing, or one error.

`ExecuteSubmission` takes the place of nbgrader's own Execute in `Autograde.autograde_preprocessors`, so that
`nbgrader autograde` and formgrader's button run submissions as our command does: in a sandbox, and not at all where
the same cells ran before.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import nbformat
from nbgrader.preprocessors import NbGraderPreprocessor
from traitlets import Float, Unicode

from autograder import worker
from autograder.bundle import masked
from autograder.hidden import scrub
from autograder.idle import released_texts
from utils.selfcheck.notebook import Limits, Outcome

MESSAGE_CHARS = 6000

progress = logging.getLogger("autograder.progress")


class ExecuteSubmission(NbGraderPreprocessor):
    """Runs a submission in a sandbox of its own, or takes what that came to before."""

    test_s = Float(60.0, help="Seconds a test cell may take.").tag(config=True)
    cell_s = Float(30.0, help="Seconds any other cell may take.").tag(config=True)
    notebook_s = Float(900.0, help="Seconds a whole submission may take.").tag(config=True)
    launch_s = Float(20.0, help="Seconds the ranks of one launch may take.").tag(config=True)
    sandbox = Unicode("bubblewrap", help="bubblewrap, container, pod; or none: nothing is isolated.").tag(config=True)
    runs_in = Unicode("", help="The course-data folder, where runs are kept.").tag(config=True)

    def terms(self, lab: str) -> worker.Terms:
        """How submissions of a lab are run under this configuration."""
        limits = Limits(self.test_s, self.cell_s, self.notebook_s)
        return worker.Terms(limits, self.launch_s, self.sandbox, tuple(masked(lab)))

    def preprocess(self, nb: Any, resources: dict) -> tuple[Any, dict]:
        """nbconvert calls this with the notebook whose test cells nbgrader has restored."""
        files = resources.get("metadata", {}).get("path")
        lab = resources["nbgrader"]["assignment"]
        cells = worker.plain_cells(nb.cells, released_texts(Path(self.runs_in), lab))
        ran, _ = worker.run_kept(
            Path(self.runs_in),
            cells,
            self.terms(lab),
            Path(files) if files else None,
            progress.info,
        )
        notes = []
        for outcome in ran.outcomes:
            record(nb.cells[outcome.index], outcome)
            if outcome.kind != "test" and outcome.message and outcome.status != "not run":
                notes.append(f"{outcome.name}: {outcome.message}")
        nb.metadata["grading"] = {"notes": notes, "flags": ran.flags, "isolation": ran.isolation}
        return nb, resources


def record(cell: Any, outcome: Outcome) -> None:
    """Write an outcome into its cell, in the form that nbgrader scores and feedback shows."""
    outputs = [dict(output) for output in outcome.outputs]
    if outcome.kind == "test":
        outcome.message = scrub(outcome.message, cell.source)[:MESSAGE_CHARS]
        outputs = _scored(outputs, outcome)
    elif outcome.status == "not run":
        outputs = [{"output_type": "stream", "name": "stdout", "text": outcome.message + "\n"}]
    cell.outputs = [nbformat.from_dict(output) for output in outputs]
    cell.execution_count = outcome.number
    cell.metadata["grading"] = {
        "status": outcome.status,
        "message": outcome.message,
        "seconds": round(outcome.seconds, 2),
    }
    if outcome.picture:
        cell.metadata["grading"]["png"] = outcome.picture


def _scored(outputs: list[dict], outcome: Outcome) -> list[dict]:
    """Outputs of a test cell such that nbgrader gives full points exactly when it passed.

    nbgrader takes any text on stderr for a failure and a cell's last value for partial credit. A number
    from 0 to the cell's points stays (an author's partial credit); any other value is shown, not scored.
    """
    kept = []
    for output in outputs:
        if output["output_type"] == "stream":
            kept.append({**output, "name": "stdout", "text": output["text"]})
        elif output["output_type"] == "execute_result" and not _is_credit(output, outcome):
            kept.append({"output_type": "display_data", "data": output["data"], "metadata": output["metadata"]})
        elif output["output_type"] != "error":
            kept.append(output)
    if outcome.status != "passed":
        text = outcome.message or outcome.status
        kept.append({"output_type": "error", "ename": outcome.status, "evalue": text, "traceback": [text]})
    return kept


def _is_credit(output: dict, outcome: Outcome) -> bool:
    try:
        return outcome.status == "passed" and 0.0 <= float(output["data"].get("text/plain", "")) <= outcome.points
    except ValueError:
        return False
