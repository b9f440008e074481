"""Notebooks 01 and 04 show what their text says: values, bytes and counts; never times."""

import ast
import re
from math import inf
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

pytestmark = [pytest.mark.heavy, pytest.mark.xdist_group("notebooks")]


def kib(text):
    """Bytes of "128 KiB", "1.58 MiB" or "0 B"."""
    number, unit = text.split()
    return float(number) * {"B": 1, "KiB": 2**10, "MiB": 2**20}[unit]


def rows_of_table(text):
    """Notebook 01's table by scheme and rank: kept, peak, operations, sent, by."""
    pattern = r"^ *(\w[\w ]*?)(?: ([01]))? {1,2}([\d.]+ \w+) +([\d.]+ \w+) +([\d,]+) +([\d.]+ \w+) +(.*)$"
    found = re.findall(pattern, text, re.MULTILINE)
    return {
        (name, int(rank or 0)): (kib(kept), kib(peak), int(flops.replace(",", "")), kib(sent), by)
        for name, rank, kept, peak, flops, sent, by in found
    }


def test_01_two_ranks_make_the_step_of_one(ran):
    text = ran("01_one_training_step").text()
    mean, whole = (re.search(rf"^{start}.*?: +(.*)$", text, re.MULTILINE)[1] for start in ("mean, on both", "one rank"))
    for ours, theirs in zip(re.findall(r"-?\d+\.\d+", mean), re.findall(r"-?\d+\.\d+", whole), strict=True):
        assert float(ours) == pytest.approx(float(theirs), abs=2e-3)
    assert float(re.search(r"parameters differ from the single rank's by at most (\S+)", text)[1]) < 1e-6


def test_01_memory_is_highest_after_forward(ran):
    found = re.findall(r"^after +(\w+): ([\d.]+ \w+)$", ran("01_one_training_step").text(), re.MULTILINE)
    after = {name: kib(held) for name, held in found}
    assert after["forward"] > after["backward"] > after["start"]


def test_01_table_holds_the_bytes_of_the_schemes(ran):
    table = rows_of_table(ran("01_one_training_step").text())
    whole, state = 2 * 64 * 256 * 4, 3 * 2 * 64 * 256 * 4
    assert len(table) == 9
    assert table["one rank", 0][0] == state and table["one rank", 0][2:4] == (5 * 2 * 32 * 64 * 256, 0)
    for rank in range(2):
        assert table["data parallel", rank][0] == state
        assert table["data parallel", rank][2:4] == (5 * 32 * 64 * 256, whole)  # 2(p-1)/p of the gradients
        assert table["tensor parallel", rank][0] == state / 2
        assert table["tensor parallel", rank][3] == 32 * 64 * 4  # y, once
        assert table["pipeline", rank][0] == state / 2
        assert table["pipeline", rank][3] == 32 * 256 * 4  # h there, its gradient back
        assert table["sharded state", rank][0] == state / 2
        assert table["sharded state", rank][3] == 5 * whole / 4
        assert table["sharded state", rank][4] == "3 all_gather, 2 reduce_scatter"
    assert sum(table["pipeline", rank][2] for rank in range(2)) == table["one rank", 0][2]


def test_01_all_schemes_make_the_same_step(ran):
    text = ran("01_one_training_step").text()
    gaps = {n: float(g) for n, g in re.findall(r"^ *([\w ]+): differs from one rank by at most (\S+)$", text, re.M)}
    assert set(gaps) == {"one rank", "data parallel", "tensor parallel", "pipeline", "sharded state"}
    assert max(gaps.values()) < 1e-6 < float(re.search(r"moved the weights by up to (\S+)", text)[1])


def test_01_only_traffic_of_activations_grows_with_the_batch(ran):
    text = ran("01_one_training_step").text()
    grown = {
        name: kib(after) / kib(before)
        for name, before, after in re.findall(r"^ *([\w ]+): sent +([\d.]+ \w+) -> +([\d.]+ \w+) ", text, re.M)
    }
    assert grown == {"data parallel": 1, "tensor parallel": 4, "pipeline": 4, "sharded state": 1}
    assert ran("01_one_training_step").pictures() == 1


def test_04_replicas_keep_their_distance(ran):
    found = re.findall(r"^broadcast first: +(\w+) .*step: +(.*)$", ran("04_data_parallel").text(), re.MULTILINE)
    distances = {start: [float(d) for d in row.split()] for start, row in found}
    assert distances["True"] == [0.0] * 6
    assert min(distances["False"]) > 0.05 and max(distances["False"]) == pytest.approx(min(distances["False"]), rel=0.1)


def test_04_equals_one_process(ran):
    text = ran("04_data_parallel").text()
    gap, distance = re.search(r"differs from one process by at most (\S+); distance (\S+)", text).groups()
    assert float(gap) < 1e-3 and float(distance) == 0
    assert float(re.search(r"distance of rank 3 from rank 0 after 30 steps: (\S+)", text)[1]) > 0.01


def test_04_a_factor_shows_under_sgd_and_hides_under_adam(ran):
    found = re.findall(r"^ *([a-z, ]+) {2,}(\S+) {2,}(\S+)$", ran("04_data_parallel").text(), re.MULTILINE)
    rows = {name.strip(): (float(sgd), float(adam)) for name, sgd, adam in found if "divided" in name}
    right = rows["divided once"]
    for name in ("summed, never divided", "divided twice"):
        sgd = rows[name][0] if rows[name][0] == rows[name][0] else inf
        assert sgd > right[0] + 0.1
        assert rows[name][1] == pytest.approx(right[1], abs=1e-2)


def test_04_averaged_weights_are_equal_under_sgd_only(ran):
    text = ran("04_data_parallel").text()
    gaps = {name: float(gap) for name, gap in re.findall(r"(\w+_step): largest difference.*: (\S+)$", text, re.M)}
    assert gaps["sgd_step"] < 1e-5 < 1e-3 < gaps["adam_step"]


def test_04_torch_sends_the_same(ran):
    text = ran("04_data_parallel").text()
    ddp, flat = re.search(r"DDP in step 2 (\d+) bytes, one flat all-reduce (\d+) bytes", text).groups()
    assert ddp == flat
    step_1, step_2 = (re.search(rf"^step {k}: (.*)$", text, re.MULTILINE)[1].count("all_reduce") for k in (1, 2))
    assert step_1 == 1 < step_2
    assert max(float(gap) for gap in re.search(r"difference of any gradient: (.*)$", text, re.M)[1].split()) < 1e-5
    assert "with no_sync: 1 all-reduces" in text and "without: 4 all-reduces" in text


def test_04_reports_unequal_branches_and_counts_tokens(ran):
    text = ran("04_data_parallel").text()
    assert "mean over tokens 0.6875, mean of means 1.2500" in text
    assert "ranks issued different collectives at the same place: all_reduce #3 on rank 0, barrier #1 on rank 1" in text
    assert "on ranks 0 and 1: [4.5, 1.5, 9.0, 3.0] [4.5, 1.5, 9.0, 3.0]" in text


def test_04_bytes_through_the_server(ran):
    text = ran("04_data_parallel").text()
    assert "parameter server: 1 workers 2.00 S, 2 workers 4.00 S, 4 workers 8.00 S, 8 workers 16.00 S" in text
    assert "all-reduce: 1 workers 0.00 S, 2 workers 2.00 S, 4 workers 3.00 S, 8 workers 3.50 S" in text
    assert ran("04_data_parallel").pictures() == 6


def test_04_predictions_follow_the_schedule():
    """The prediction of a step with buckets, held to a walk in steps of a hundredth of a millisecond."""
    tree = ast.parse((ROOT / "notebooks" / "04_data_parallel.py").read_text())
    names = ("message_seconds", "predicted_step")
    wanted = [n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name in names]
    constants = [n for n in tree.body if isinstance(n, ast.Assign) and "ALPHA" in ast.unparse(n.targets[0])]
    cells: dict = {}
    exec(compile(ast.Module(body=[*constants, *wanted], type_ignores=[]), "04", "exec"), cells)
    assert cells["predicted_step"](4, 2) == pytest.approx(9 * 4e-3, rel=0.02)  # eight layers and the last message
    for per_bucket in (1, 2, 4, 8, 16):
        assert cells["predicted_step"](4, per_bucket) == pytest.approx(walked(cells, 4, per_bucket), abs=5e-4)


def walked(cells, world, per_bucket):
    sizes = [4 * cells["WIDTH"] ** 2, 4 * cells["WIDTH"]] * cells["LAYERS"]
    queue = [list(range(i, min(i + per_bucket, len(sizes)))) for i in range(0, len(sizes), per_bucket)]
    now, busy_until, tick = 0.0, 0.0, 1e-5
    while queue:
        layers_done = int(now / cells["LAYER_SECONDS"] + 1e-9)
        if now >= busy_until and queue[0][-1] // 2 < layers_done:
            bucket = queue.pop(0)
            busy_until = now + cells["message_seconds"](world, sum(sizes[k] for k in bucket))
        now += tick
    return busy_until
