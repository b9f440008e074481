"""The verdict side: probes go to the answer's process, everything else stays; nothing that comes back is trusted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from autograder.verdict import AnswerLost, Verdict
from utils.answering import probes
from utils.ranks import plain

SHARED = """
import torch, torch.distributed as dist
from utils import check, launch
def start(rank):
    return torch.arange(4.0) + 10 * rank
"""
STUDENT = """
import torch, torch.distributed as dist
def add(x):
    dist.all_reduce(x)
answer_steps = 6
"""
TEST = """
def probe():
    x = start(dist.get_rank())
    add(x)
    return x
run = launch(probe, ranks=3, show=False)
expected = start(0) + start(1) + start(2)
for rank, got in enumerate(run.values):
    assert torch.equal(got, expected), f"rank {rank} holds {got.tolist()}"
assert run.trace.collectives(0) == ["all_reduce"]
"""


class Here:
    """A link to a namespace in this process: the wire format in between is the real one."""

    def __init__(self, student: str, spoil: Callable[[dict[str, Any]], Any] = lambda fields: fields) -> None:
        self.namespace: dict[str, Any] = {}
        exec(student, self.namespace)
        self.spoil, self.payloads = spoil, []

    def probe(self, payload: bytes, options: Mapping[str, Any], limit_s: float) -> Mapping[str, Any]:
        self.payloads.append(payload)
        from utils.ranks import api

        before, api.router = api.router, None  # this process plays both parts
        try:
            fields = probes.answer(payload, options, self.namespace)
        finally:
            api.router = before
        return self.spoil(plain.decode(plain.encode(fields)))


def verdict(link: Any) -> Verdict:
    made = Verdict(link, launch_s=20)
    made.share("shared", SHARED)
    return made


def test_a_right_answer_passes_and_its_trace_comes_back() -> None:
    judged = verdict(Here(STUDENT)).test("sum", TEST, 60)
    assert (judged.status, judged.text) == ("passed", "") and len(judged.traces) == 1


def test_a_wrong_answer_fails_with_the_verdicts_message() -> None:
    judged = verdict(Here(STUDENT.replace("dist.all_reduce(x)", "dist.all_reduce(x); x += 1"))).test("sum", TEST, 60)
    assert judged.status == "failed" and judged.kind == "AssertionError" and "rank 0 holds [31.0" in judged.text


def test_a_missing_name_is_the_students_name_error() -> None:
    judged = verdict(Here("x = 1")).test("sum", TEST, 60)
    assert judged.kind == "RankFailed" and "name 'add' is not defined" in judged.text


def test_answers_to_questions_come_by_a_probe() -> None:
    link = Here(STUDENT)
    test = "value = launch(lambda: answer_steps, ranks=None).value\nassert value == 6, value"
    assert verdict(link).test("steps", test, 60).status == "passed"
    assert verdict(Here("answer_steps = 7")).test("steps", test, 60).text == "7"


def test_what_crosses_to_the_answer_holds_no_expected_value_and_no_verdict() -> None:
    link = Here(STUDENT)
    test = TEST.replace("expected =", "secret_expectation =").replace("expected)", "secret_expectation)")
    assert verdict(link).test("sum", test, 60).status == "passed"
    assert b"secret_expectation" not in link.payloads[0] and b"holds" not in link.payloads[0]


def test_a_student_who_patches_torch_gains_nothing() -> None:
    patch = STUDENT.replace("dist.all_reduce(x)", "x.zero_()") + "\ntorch.equal = lambda *a: True\n"
    import torch

    before = torch.equal
    try:
        link = Here(patch)
        torch.equal = before  # the answer's process is another one; here it is this one
        judged = verdict(link).test("sum", TEST, 60)
    finally:
        torch.equal = before
    assert judged.status == "failed"


@pytest.mark.parametrize(
    "spoil",
    [
        lambda f: {**f, "values": f["values"][:2]},
        lambda f: {**f, "values": tuple(f["values"])},
        lambda f: {**f, "peak_bytes": [-1, 0, 0]},
        lambda f: {**f, "stdout": [b"", "", ""]},
        lambda f: {**f, "trace": None},
        lambda f: {**f, "trace": {**f["trace"], "ranks": 2}},
        lambda f: {},
        lambda f: {"error": "SystemExit", "text": "0"},
        lambda f: {"error": "Deadlock", "text": 3},
    ],
)
def test_forged_runs_fail_the_test_and_nothing_else(spoil: Callable[[dict[str, Any]], Any]) -> None:
    judged = verdict(Here(STUDENT, spoil)).test("sum", TEST, 60)
    assert judged.status == "failed" and judged.kind in ("RankFailed", "Deadlock")


def test_a_lost_answer_and_a_spent_limit_are_told_apart() -> None:
    class Gone:
        def probe(self, payload: bytes, options: Mapping[str, Any], limit_s: float) -> Mapping[str, Any]:
            raise AnswerLost("exit code 3")

    assert verdict(Gone()).test("sum", TEST, 60).status == "lost"
    assert verdict(Here(STUDENT)).test("sum", TEST, 0).status == "stopped"


def test_oracles_on_ranks_stay_on_the_verdict_side() -> None:
    link = Here("def add(x): raise ValueError")
    test = "def oracle():\n    x = start(dist.get_rank())\n    dist.all_reduce(x)\n    return x\n"
    test += "assert check.reference(oracle, ranks=2).values[1].tolist() == [10.0, 12.0, 14.0, 16.0]"
    assert verdict(link).test("oracle", test, 60).status == "passed" and link.payloads == []
