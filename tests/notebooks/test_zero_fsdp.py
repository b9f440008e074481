"""Notebook 06 shows what its text says: bytes, traffic and values of each stage, and torch's own beside them."""

import re

import pytest

pytestmark = [pytest.mark.heavy, pytest.mark.xdist_group("notebooks")]
NAME = "06_zero_fsdp"


STATES = [("plain DP", 16.0), ("stage 1", 10.0), ("stage 2", 7.0), ("stage 3", 4.7)]  # bytes a parameter


@pytest.mark.parametrize(("stage", "state"), STATES)
def test_06_holds_what_was_predicted(ran, stage, state):
    found = re.search(rf"^{stage}: ([\d.]+) bytes a parameter", ran(NAME).text(), re.MULTILINE)
    assert float(found[1]) == pytest.approx(state, abs=0.25)


@pytest.mark.parametrize(("stage", "times"), [("plain DP", 2.0), ("stage 1", 2.0), ("stage 2", 2.0), ("stage 3", 2.94)])
def test_06_sends_what_was_predicted(ran, stage, times):
    found = re.search(rf"^{stage}: a step sends ([\d.]+) times", ran(NAME).text(), re.MULTILINE)
    assert float(found[1]) == pytest.approx(times, abs=0.02)


def test_06_all_ways_lead_to_the_same_parameters(ran):
    text = ran(NAME).text()
    differences = [float(number) for number in re.findall(r"differ.*? by at most ([\de.+-]+)", text)]
    assert len(differences) == 5 and max(differences) < 1e-5
    assert float(re.search(r"same parameters, to ([\de.+-]+)", text)[1]) < 1e-5


def test_06_counts_torchs_own(ran):
    text = ran(NAME).text()
    assert "ZeroRedundancyOptimizer: 3.00 times (p-1)/p of the parameters a step" in text
    found = re.search(r"fully_shard: ([\d.]+) times", text)
    assert 2.8 < float(found[1]) < 3.0


def test_06_table_of_the_paper_comes_from_its_ledger(ran):
    rows = re.findall(r"on +(\d+) ranks, formula / paper: +(.*)", ran(NAME).text())
    assert len(rows) == 6
    for _, row in rows:
        pairs = re.findall(r"([\d.]+) / ([\d.]+)", row)
        assert len(pairs) == 3
        for ours, theirs in pairs:
            assert abs(float(ours) - float(theirs)) < (1.0 if float(theirs) > 100 else 0.06)


def test_06_pictures(ran):
    assert ran(NAME).pictures() == 5
