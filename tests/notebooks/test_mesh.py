"""Notebook 09 shows what its text says; times are never looked at."""

import re

import pytest

pytestmark = [pytest.mark.heavy, pytest.mark.xdist_group("notebooks")]

NAME = "09_mesh_and_planner"


def test_groups_are_those_of_the_text(ran):
    text = ran(NAME).text()
    assert "its tp group: [4, 5]" in text and "its pp group: [5, 7]" in text and "its dp group: [1, 5]" in text
    assert "= 64 GPUs, 8 nodes of 8" in text and "= 3840 GPUs, 480 nodes of 8" in text
    assert text.count("init_device_mesh agrees: True") == 4
    assert "members differ in new_group" in text


def test_ranks_train_as_one_process_does(ran):
    text = ran(NAME).text()
    off = {kind: float(x) for kind, x in re.findall(r"torch\.(float\d\d): loss .* off by (\S+)", text)}
    assert off["float64"] < 1e-9 and off["float32"] < 1e-4
    first, last = re.search(r"torch\.float64: loss (\S+) -> (\S+),", text).groups()
    assert float(last) < float(first) - 1
    assert "all ranks report the same: True" in text


def test_bytes_along_each_axis_are_as_predicted(ran):
    rows = re.findall(r"(dp|pp|tp): predicted +(\d+) bytes, measured +(\d+)", ran(NAME).text())
    assert len(rows) == 9
    assert all(int(guess) <= int(seen) <= int(guess) + 64 for _, guess, seen in rows)


def test_zero_agrees_with_torchs_own(ran):
    text = ran(NAME).text()
    found = re.search(r"difference: (\S+)\nbytes sent by ranks 0 and 1: ours \[(.*?)\]  Zero\S+ \[(.*?)\]", text)
    assert float(found[1]) < 1e-12
    ours, theirs = (sum(map(int, found[k].split(", "))) for k in (2, 3))
    assert ours == theirs


def test_a_save_goes_on_at_another_layout(ran):
    text = ran(NAME).text()
    assert re.search(r"stage0\.pt \d+ tensors", text) and re.search(r"stage1\.pt \d+ tensors", text)
    assert float(re.findall(r"largest difference: (\S+)", text)[-1]) < 1e-9


def test_overlap_changes_no_gradient_and_plans_are_priced(ran):
    text = ran(NAME).text()
    assert "same gradients: True" in text
    plans = re.findall(r"DP +\d+ PP \d TP +\d+ ZeRO-\d: +[\d.]+ GB (fits|does not fit)", text)
    assert len(plans) == 5 and set(plans) == {"fits", "does not fit"}
    assert re.search(r"TP 16 ZeRO-1: cannot be: tp = 16 is more than the 8 GPUs of a node", text)
    assert ran(NAME).pictures() == 7


def test_one_thing_changes_and_the_planner_says_what(ran):
    text = ran(NAME).text()
    assert re.search(r"now / before: recomputation full / none", text)
    assert text.count("What limits it most is") == 3
    assert 20 < int(re.search(r"one slow GPU of 64 costs all of them (\d+)%", text)[1]) < 50
    assert re.search(r"98304 GPUs, \d+ tasks, simulated", text) and "are computed again" in text


def test_the_planner_beats_a_constant_and_searches(ran):
    text = ran(NAME).text()
    ours, constant = (tuple(map(float, re.search(rf"{name}: median ([\d.]+)%, worst ([\d.]+)%", text).groups()))
                      for name in ("error", "a constant for all"))  # fmt: skip
    assert ours[0] < constant[0] and ours[1] < constant[1]
    found = re.search(r"(\d+) legal shapes, (\d+) priced; the best takes ([\d.]+) s", text)
    assert int(found[1]) > 1000 and float(found[3]) > 0
