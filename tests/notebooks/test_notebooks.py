"""Each notebook runs from top to bottom without errors or noise, in time, and shows what its text says."""

import re
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted(path.stem for path in (ROOT / "notebooks").glob("*.ipynb"))
LONGEST = 60  # seconds, kernel start included: what a reader is asked to wait for
LONGER = {"15_end_to_end": 120}  # a whole pretrained model, many times

pytestmark = [pytest.mark.heavy, pytest.mark.xdist_group("notebooks")]


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_runs_from_top_to_bottom(ran, name):
    notebook = ran(name)
    assert [(o.ename, o.evalue) for o in notebook.outputs("error")] == []
    assert [o.text for o in notebook.outputs("stream") if o.name == "stderr"] == []
    assert notebook.seconds < LONGER.get(name, LONGEST)


def test_00_shows_ranks_and_reports(ran):
    text = ran("00_start_here").text()
    assert "values[3] = {'rank': 3, 'square': 9" in text
    assert re.search(r"on the ranks: \[10, 11, 12\] - here: 0", text)
    assert "rank 2 raised ZeroDivisionError, line 4" in text
    assert "rank 3 never reached all_reduce #1 (group world); it waits in recv #1 from rank 0" in text
    assert "rank 1 issued two collectives in the other order than rank 0" in text
    assert "rank 1 never reached barrier #1" in text
    again = re.findall(r"^seed=7.*: +(\[.*\])$", text, re.MULTILINE)
    assert len(again) == 2 and again[0] == again[1] and len(set(eval(again[0]))) == 4
    assert ran("00_start_here").pictures() == 1


def test_00_peak_is_that_of_each_rank(ran):
    peaks = re.findall(r"rank (\d): sum (\d+), peak +([\d.]+) MiB", ran("00_start_here").text())
    assert [int(total) for _, total, _ in peaks] == [(r + 1) * 4 * 2**20 for r in range(4)]
    assert all(16 * (int(r) + 1) <= float(peak) < 16 * (int(r) + 1) + 12 for r, _, peak in peaks)


def test_02_agrees_with_torch_and_counts_bytes(ran):
    text = ran("02_collectives").text()
    assert text.count(" agrees") == 16 and "DIFFERS" not in text
    assert "messages sent by each rank: [3, 0, 0, 0]" in text
    assert "rank 0 sent 3.00 S, received 3.00 S" in text
    assert [f"rank {r} sent 1.50 S, only to [{(r + 1) % 4}]" in text for r in range(4)] == [True] * 4
    assert text.count("waits in send #1 to rank") >= 4
    assert ran("02_collectives").pictures() == 14


def test_03_predicts_and_measures(ran):
    text = ran("03_cost_model").text()
    assert text.count("[0.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0]") == 2  # ring and tree are right first
    assert len(re.findall(r"^(?:ring|tree): measured over predicted.*$", text, re.MULTILINE)) == 6
    assert "predicted crossover: 586 KiB" in text and "measured crossover: " in text
    rows = dict(re.findall(r"^ +(all_reduce|all_gather|reduce_scatter|broadcast) +(.*)$", text, re.MULTILINE))
    for op, factor in (("all_reduce", 1.5), ("all_gather", 0.75), ("reduce_scatter", 0.75), ("broadcast", 1)):
        alg, bus = (float(rate) for rate in re.findall(r"([\d.]+) GB/s", rows[op]))
        assert bus == pytest.approx(alg * factor, abs=0.02)
    assert ran("03_cost_model").pictures() == 4


def test_the_front_page_lists_every_notebook_and_lab():
    text = "".join(c.source for c in nbformat.read(ROOT / "notebooks" / "index.ipynb", 4).cells)
    for path in [*(ROOT / "notebooks").glob("[0-9]*.ipynb"), *(ROOT / "labs").glob("*/*.ipynb")]:
        assert path.name in text, f"notebooks/index.py does not link to {path.name}"


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_links_lead_somewhere(name):
    cells = nbformat.read(ROOT / "notebooks" / f"{name}.ipynb", 4).cells
    links = re.findall(r"\]\(([^)#]+)\)", "\n".join(c.source for c in cells if c.cell_type == "markdown"))
    gone = [link for link in links if "://" not in link and not (ROOT / "notebooks" / link).exists()]
    assert gone == []


@pytest.mark.parametrize("name", [name for name in NOTEBOOKS if name[0].isdigit()])
def test_opening_says_what_is_built_needed_and_how_long(name):
    opening = nbformat.read(ROOT / "notebooks" / f"{name}.ipynb", 4).cells[0].source
    for promise in ("**You will build**", "**You need**", "**Time**"):
        assert promise in opening


@pytest.mark.parametrize("name", [name for name in NOTEBOOKS if name[0].isdigit()])
def test_predictions_come_before_the_cell_that_answers_them(name):
    cells = nbformat.read(ROOT / "notebooks" / f"{name}.ipynb", 4).cells
    asked = [k for k, c in enumerate(cells) if c.cell_type == "markdown" and "**Predict" in c.source]
    assert len(asked) >= 5
    assert [k for k in asked if cells[k + 1].cell_type != "code"] == []
