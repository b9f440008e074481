"""What notebook 07 claims shows in its output: schedules, bubbles, deadlocks, gradients, bytes, tied copies."""

import ast
import re
from pathlib import Path

import pytest

from utils.schedules import most_in_flight, play, read_actions

SOURCE = Path(__file__).resolve().parents[2] / "notebooks" / "07_pipeline.py"
LINE = re.compile(r"^(one process|parts added|parts not added): +(.*)$", re.MULTILINE)


def cells():
    """The functions and the constants made by `rows` of the text source, by name, without running its cells."""
    names = {"read_actions": read_actions, "action_text": lambda action: "{1}{0}{2}".format(*action)}
    for node in ast.parse(SOURCE.read_text()).body:
        wanted = isinstance(node, ast.FunctionDef) and node.name in (
            "rows", "all_f_then_b", "left_over", "with_messages", "blocking_leaves", "stage_costs"
        )  # fmt: skip
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            wanted = getattr(node.value.func, "id", "") == "rows"
        if wanted:
            exec(compile(ast.Module(body=[node], type_ignores=[]), str(SOURCE), "exec"), names)
    return names


CELLS = cells()


def test_the_schedules_written_by_hand_are_what_they_are_called():
    one = CELLS["ONE_F_ONE_B"]
    assert [most_in_flight(actions) for actions in one] == [4, 3, 2, 1]
    assert play(one).seconds == play(CELLS["all_f_then_b"](4, 8)).seconds
    assert CELLS["GPIPE_4"] == CELLS["all_f_then_b"](4, 4)
    assert play(CELLS["NAIVE"]).bubble == pytest.approx(0.75)
    assert play(CELLS["LECTURE"], 1, 1).seconds == 11 and play(CELLS["all_f_then_b"](4, 2), 1, 1).seconds == 10


@pytest.mark.parametrize("name", ["NAIVE", "GPIPE_4", "ONE_F_ONE_B", "LECTURE", "TWO_1F1B"])
def test_what_is_left_over_is_what_play_is_stuck_at(name):
    assert CELLS["left_over"](CELLS[name]) == {} and play(CELLS[name]).stuck == {}
    backwards_first = [actions[::-1] for actions in CELLS[name]]
    stuck = play(backwards_first).stuck
    left = CELLS["left_over"](backwards_first)
    assert {rank: rest[0] for rank, rest in left.items()} == {
        rank: f"{stage}{op}{k}" for rank, (op, stage, k) in stuck.items()
    }


def test_blocking_sends_stop_1f1b_only():
    leaves = CELLS["blocking_leaves"]
    assert [leaves(CELLS["all_f_then_b"](p, m)) for p in (1, 2, 4) for m in (1, 3)] == [{}] * 6
    assert leaves(CELLS["NAIVE"]) == {}
    assert leaves(CELLS["TWO_1F1B"]) == {0: "sends F1 to 1", 1: "sends B0 to 0"}
    assert set(leaves(CELLS["ONE_F_ONE_B"])) == {0, 1, 2, 3}


@pytest.mark.heavy
@pytest.mark.xdist_group("notebooks")
def test_07_agrees_with_one_process_and_with_torch(ran):
    text = ran("07_pipeline").text()
    assert text.count(": agrees with one process") == 5 and "DIFFERS" not in text
    assert "rank 1 sent 65,536 bytes to rank 0, 65,536 bytes to rank 2" in text
    assert "rank 1 sent 131,072 bytes in 8 messages" in text
    sent = re.findall(r"rank 0 sent ([\d,]+) bytes, predicted ([\d,]+); order ([sr]+)", text)
    assert [(a, b) for a, b, _ in sent] == [("65,536", "65,536")] * 2 + [("196,608", "196,608")]
    assert [order for _, _, order in sent][:2] == ["ssssrrrr", "ssrsrsrr"]
    assert ran("07_pipeline").pictures() == 7


@pytest.mark.heavy
@pytest.mark.xdist_group("notebooks")
def test_07_bubbles_deadlocks_and_means(ran):
    text = ran("07_pipeline").text()
    table = re.findall(r"^ +(\d+) +(\d+) +([\d.]+) +([\d.]+) +([\d.]+) +([\d.]+)$", text, re.MULTILINE)
    assert len(table) == 7 and all(a == b and c == d for _, _, a, b, c, d in table)
    assert "4   8     0.2727   0.2727     0.3750   0.3750" in text
    assert "naive 12 units, 75.0% idle; GPipe 5.25 units, 42.9% idle" in text
    assert "interleaved 28.5 units, idle over ideal 0.1875" in text
    assert "every rank waits and no wait can end." in text and "rank 3 waits in send #1 to rank 2" in text
    assert "mean of the means 7.0833; mean of the batch 6.0000" in text
    assert "by count [2, 2, 2, 2]: stages cost [2, 2, 2, 5], step 138 units" in text
    assert "by cost [3, 3, 2, 0]: stages cost [3, 3, 2, 3], step 96 units" in text
    assert len(re.findall(r"^m = \d: predicted .* measured .*%$", text, re.MULTILINE)) == 4


@pytest.mark.heavy
@pytest.mark.xdist_group("notebooks")
def test_07_tied_copies_need_their_sum(ran):
    text = ran("07_pipeline").text()
    lines = {name: line for name, line in LINE.findall(text) if "'" in line}
    losses = {name: re.findall(r"'([\d.]+)'", line) for name, line in lines.items()}
    assert losses["one process"] == losses["parts added"] != losses["parts not added"]
    assert float(losses["parts not added"][-1]) < float(losses["parts not added"][0])
    assert "copies differ by 0.0e+00" in lines["parts added"]
    assert float(re.search(r"copies differ by ([\d.e+-]+),", lines["parts not added"])[1]) > 0.01
