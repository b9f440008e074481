"""Every notebook is run once, in a kernel of its own; tests look at what it left."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Executed:
    """A notebook after a run from top to bottom, with the outputs of each kind."""

    name: str
    cells: list
    seconds: float

    def outputs(self, kind: str) -> list:
        return [o for cell in self.cells for o in cell.get("outputs", []) if o.output_type == kind]

    def text(self) -> str:
        """All that was printed, in order."""
        return "".join(o.text for o in self.outputs("stream") if o.name == "stdout")

    def pictures(self) -> int:
        return sum("image/png" in o.data for o in self.outputs("display_data"))


def execute(path: Path) -> Executed:
    """Run a built notebook where it lies; errors stay in the outputs."""
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(
        notebook,
        timeout=120,
        kernel_name="python3",
        allow_errors=True,
        resources={"metadata": {"path": str(path.parent)}},
    )
    here = {name: value for name, value in os.environ.items() if name != "MPLBACKEND"}  # pictures are wanted
    start = perf_counter()
    client.execute(env={**here, "PYTHONPATH": str(ROOT)})
    return Executed(path.stem, notebook.cells, perf_counter() - start)


@pytest.fixture(scope="session")
def ran():
    """ran("02_collectives") is that notebook, run once for all tests that ask."""
    done: dict[str, Executed] = {}

    def run(name: str) -> Executed:
        if name not in done:
            done[name] = execute(ROOT / "notebooks" / f"{name}.ipynb")
        return done[name]

    return run
