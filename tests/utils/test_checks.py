"""Checks say what they saw: each misconception gives its own sentence, and what is right gives none."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from utils import check
from utils.trace.events import Trace

INPUTS = [torch.tensor(row) for row in ([1.0, 2, 3, 4, 5, 6], [10.0, 20, 31, 40, 50, 60], [7.0, 5, 2, 1, 9, 8])]
TOTAL = sum(INPUTS)


def said(got: list, want: list | None = None, **options: object) -> str:
    with pytest.raises(check.CheckFailed) as caught:
        check.ranks_hold(got, want or [TOTAL] * 3, "sum", options.pop("inputs", INPUTS), **options)
    return str(caught.value)


def with_rank_2(tensor: object) -> list:
    return [TOTAL, TOTAL, tensor]


def test_right_values_pass() -> None:
    check.ranks_hold([TOTAL] * 3, [TOTAL] * 3, "sum", INPUTS)
    check.ranks_hold([None, TOTAL], [None, TOTAL.clone()], "reduce")
    check.ranks_hold([TOTAL * (1 + 1e-7)], [TOTAL], "sum", rtol=1e-6)


@pytest.mark.parametrize(
    ("tensor", "part"),
    [
        (INPUTS[2], "all 6 elements still hold the rank's own input (element 0 is 7, not 18)"),
        (INPUTS[0], "hold rank 0's input"),
        (TOTAL / 3, "are 1/3 of the wanted values: divided by the number of ranks?"),
        (TOTAL / 7, "divided by 7"),
        (TOTAL * 2, "are 2 times the wanted values"),
        (TOTAL + INPUTS[2], "have its own share in the sum twice"),
        (TOTAL - INPUTS[0], "lack rank 0's share of the sum"),
        (torch.cat([TOTAL[:4], INPUTS[2][4:]]), "elements 4..5 of 6 still hold the rank's own input"),
        (torch.cat([TOTAL[:5], INPUTS[2][5:]]), "element 5 of 6 still holds the rank's own input"),
        (torch.cat([TOTAL[2:], TOTAL[:2]]), "wrong order: rotated by 1"),
        (torch.full((6,), torch.nan), "NaN"),
        (TOTAL[:5], "the last 1 element got lost"),
        (TOTAL.double(), "it must stay torch.float32"),
        (None, "Does the function return it?"),
        (3, "the result is int"),
        (TOTAL + torch.arange(6.0), "elements 1..5 of 6 are wrong (element 1 is 28, not 27)"),
    ],
)
def test_each_misconception_has_its_sentence(tensor: object, part: str) -> None:
    message = said(with_rank_2(tensor))
    assert part in message
    assert "Rank 2: " in message


def test_only_the_root_is_right() -> None:
    assert "only rank 0 is right" in said([TOTAL, INPUTS[1], INPUTS[2]])
    assert "ranks 0, 1 and 2 of 3 are wrong" in said([INPUTS[0], INPUTS[1], INPUTS[2]])


def test_what_was_there_before_and_what_was_written_after() -> None:
    assert "never written" in said(with_rank_2(torch.full((6,), 99.0)), unwritten=99)
    late = torch.cat([TOTAL[:2] - INPUTS[1][:2] + 99, TOTAL[2:]])
    assert "contain 99, which the caller wrote after" in said(with_rank_2(late), overwritten=99)


def test_whole_numbers_are_compared_to_the_last_digit() -> None:
    big = torch.tensor([2**53 + 1, 2**53 + 3])
    rounded = big.double().to(torch.int64)
    assert "another number type" in said([rounded], [big], inputs=None)


def test_unchanged() -> None:
    check.unchanged([INPUTS[0], None], [INPUTS[0].clone(), None], "gather")
    with pytest.raises(check.CheckFailed, match="rank 0's x must stay unchanged, but element 1 was 2 and is 9 now"):
        check.unchanged([torch.tensor([1.0, 9])], [torch.tensor([1.0, 2])], "gather")


class FakeTrace:
    """Messages as (sender, receiver, bytes), sent one after the other and received at once."""

    def __init__(self, messages: list[tuple[int, int, int]], collective: str = "") -> None:
        self.messages, self.events = messages, []
        for at, (source, to, size) in enumerate(messages):
            for op, rank, peer in (("send", source, to), ("recv", to, source)):
                moment = {"start": at, "end": at + 0.5}
                self.events.append(SimpleNamespace(op=op, call=op, rank=rank, peer=peer, nbytes=size, **moment))
        if collective:
            self.events.append(SimpleNamespace(op=collective, call=collective, rank=1, peer=None, start=0, end=1))

    def bytes_sent(self, rank: int) -> int:
        return sum(size for source, _, size in self.messages if source == rank)

    def bytes_received(self, rank: int) -> int:
        return sum(size for _, to, size in self.messages if to == rank)

    def peers(self, rank: int) -> set[int]:
        return {to for source, to, _ in self.messages if source == rank}


def ring(ranks: int, chunk: int, step: int = 1, laps: int = 2) -> FakeTrace:
    turns = laps * (ranks - 1)
    return FakeTrace([(rank, (rank + step) % ranks, chunk) for _ in range(turns) for rank in range(ranks)])


@pytest.mark.parametrize("step", [1, -1])
def test_a_ring_passes_in_either_direction(step: int) -> None:
    check.ring_traffic(ring(4, 48, step), 48, 4, 4)


@pytest.mark.parametrize(
    ("trace", "part"),
    [
        (FakeTrace([], "all_reduce"), "Rank 1 called the built-in all_reduce"),
        (FakeTrace([(r, 0, 192) for r in (1, 2, 3)] + [(0, r, 192) for r in (1, 2, 3)]), "received 3 times the buffer"),
        (ring(4, 192), "6 times the buffer"),
        (ring(4, 48, laps=1), "0.75 times the buffer"),
        (FakeTrace([(0, 1, 288), (1, 0, 288), (2, 3, 288), (3, 2, 288)]), "Messages went from rank 0 to 1, 1 to 0"),
        (FakeTrace([(0, 1, 288)]), "Ranks 1, 2 and 3 sent nothing"),
    ],
)
def test_other_traffic_is_named(trace: FakeTrace, part: str) -> None:
    with pytest.raises(check.CheckFailed) as caught:
        check.ring_traffic(trace, 48, 4, 4)
    assert part in str(caught.value)


def test_by_messages_wants_what_cannot_be_known_and_no_more() -> None:
    trace = FakeTrace([(0, 1, 8)])
    check.by_messages(trace, "scatter", [0, 8], [8, 0])
    with pytest.raises(check.CheckFailed, match="only 8 bytes reached rank 1 and it needs 12"):
        check.by_messages(trace, "scatter", [0, 12])
    with pytest.raises(check.CheckFailed, match="rank 0 sent 8 bytes where 4 are enough"):
        check.by_messages(trace, "scatter", [0, 8], [4, 0], "each piece once")


@pytest.mark.parametrize(
    ("messages", "rounds"),
    [
        ([(0, 1, 4), (0, 2, 4), (1, 3, 4)], 2),
        ([(0, 1, 4), (0, 2, 4), (0, 3, 4)], 3),
        ([(3, 2, 4), (2, 1, 4), (1, 0, 4)], 3),
        ([(1, 0, 4), (3, 2, 4), (2, 0, 4)], 2),
        ([], 0),
    ],
)
def test_rounds(messages: list, rounds: int) -> None:
    assert check.rounds_needed(FakeTrace(messages))[0] == rounds


def test_a_trace_is_cut_at_the_probes_own_barriers() -> None:
    def event(rank: int, op: str, function: str, start: float) -> SimpleNamespace:
        return SimpleNamespace(rank=rank, op=op, function=function, start=start)

    rows = [
        [("send", "first"), ("barrier", "first"), ("barrier", "probe"), ("send", "second")],
        [("recv", "first"), ("barrier", "probe"), ("recv", "second"), ("barrier", "second")],
    ]
    trace = Trace(2, [event(rank, *told, i) for rank, row in enumerate(rows) for i, told in enumerate(row)], 1.0)
    before, after = check.parts(trace, "probe")
    assert [before.ops(0), before.ops(1)] == [["send", "barrier"], ["recv"]]
    assert [after.ops(0), after.ops(1)] == [["send"], ["recv", "barrier"]]
    assert [event.start for event in before] == [0, 0, 1]


def test_numbers_and_their_slips() -> None:
    check.number(1.0 + 1e-9, 1.0, "alpha", "s")
    for got, part in ((1e8, "reciprocal"), (4e-8, "4 times too large"), (-1e-8, "sign"), (float("nan"), "finite")):
        with pytest.raises(check.CheckFailed, match=part):
            check.number(got, 1e-8, "beta", "s/byte", floor=0)
    with pytest.raises(check.CheckFailed, match="2 numbers are wanted"):
        check.numbers((1, 2, 3), 2, "fit")
    with pytest.raises(check.CheckFailed, match="Is the unit right"):
        check.between(60.0, 1e-7, 0.1, "alpha", "s")


def test_the_form_of_answers() -> None:
    answers = check.answer({"a": "B", "n": 2.5, "l": (1, 2)}, "question")
    check.has_letter(answers, "a", "ABC", "question")
    check.has_number(answers, "n", "question")
    check.has_list_of_ints(answers, "l", "question")
    for wrong in (
        lambda: check.answer(None, "question"),
        lambda: check.has_letter(answers, "l", "ABC", "question"),
        lambda: check.has_letter({"a": "AB"}, "a", "ABC", "question"),
        lambda: check.has_number({"n": True}, "n", "question"),
        lambda: check.has_list_of_ints({"l": [1.5]}, "l", "question"),
        lambda: check.has_number({}, "n", "question"),
    ):
        with pytest.raises(check.CheckFailed, match="question"):
            wrong()


def test_answers_agree_names_the_question_and_not_the_answer() -> None:
    check.answers_agree({"a": "B", "l": (1, 2)}, {"a": "B", "l": [1, 2]}, "question")
    with pytest.raises(check.CheckFailed) as caught:
        check.answers_agree({"a": "A", "l": [1, 2]}, {"a": "B", "l": [1, 2]}, "question")
    assert str(caught.value) == "question: 1 of 2 are right. Think again about a."


def test_reference_runs_on_ranks() -> None:
    def total() -> torch.Tensor:
        x = torch.tensor([1.0 + torch.distributed.get_rank()])
        torch.distributed.all_reduce(x)
        return x

    assert [x.item() for x in check.reference(total, ranks=2).values] == [3.0, 3.0]
