"""Probes: what a test sends to the student's definitions, and what comes back."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from autograder.sandbox import Ended
from autograder.verdict import AnswerLost, read_run
from tests.sandbox.conftest import ask, see
from utils.answering import probes

RING = """
import torch.distributed as dist
def ring_sum(x):
    rank, p = dist.get_rank(), dist.get_world_size()
    part = x.clone()
    for _ in range(p - 1):
        request = dist.isend(part, (rank + 1) % p)
        new = part.clone()
        dist.recv(new, (rank - 1) % p)
        request.wait()
        part = new
        x += part
def by_file(x):
    import time, torch
    rank, p = dist.get_rank(), dist.get_world_size()
    torch.save(x, f"/tmp/{rank}.part"); open(f"/tmp/{rank}.done", "w").close()
    import os
    while not all(os.path.exists(f"/tmp/{r}.done") for r in range(p)):
        time.sleep(0.01)
    x.copy_(sum(torch.load(f"/tmp/{r}.part") for r in range(p)))
helper = 3
def uses_helper():
    return helper + 1
"""


@pytest.fixture(scope="module")
def answers(inside):
    """A sandbox whose student has defined what RING says."""
    assert inside.cell(1, RING, 20).status == "ok"
    return inside


def ring_probe(numel):
    x = torch.full((numel,), float(dist.get_rank()))
    ring_sum(x)  # noqa: F821  the student's
    return x


def test_values_and_traffic_come_back(answers) -> None:
    run = read_run(ask(answers, ring_probe, 12, ranks=4), 4)
    assert all(torch.equal(v, torch.full((12,), 6.0)) for v in run.values)
    assert [run.trace.peers(r) for r in range(4)] == [{1}, {2}, {3}, {0}]
    assert [run.trace.bytes_sent(r) for r in range(4)] == [3 * 48] * 4
    assert run.trace.of(0)[0].function == "ring_sum" and run.trace.of(0)[0].line == 6


def test_student_helpers_are_found_and_own_names_win(answers) -> None:
    assert ask(answers, lambda: uses_helper(), ranks=None)["values"] == [4]  # noqa: F821
    helper = 10
    assert ask(answers, lambda: helper, ranks=None)["values"] == [10]


def test_names_in_nested_functions_and_methods_are_found(answers) -> None:
    def outer():
        class Caller:
            def call(self):
                return [uses_helper() for _ in range(2)]  # noqa: F821

        return (lambda: Caller().call() + [helper])()  # noqa: F821

    assert ask(answers, outer, ranks=None)["values"] == [[4, 4, 3]]


def test_missing_name_is_the_error_a_student_sees(answers) -> None:
    told = ask(answers, lambda: not_written_yet(), ranks=None)  # noqa: F821
    assert told["error"] == "RankFailed" and "NameError: name 'not_written_yet' is not defined" in told["text"]


def test_builtins_stay_the_tests_own(opened) -> None:
    _, channel = opened()
    see(channel, "def sum(values): return 99\ndef len(values): return 99", "1")
    assert ask(channel, lambda: (sum([1, 2]), len([1])), ranks=None)["values"] == [(3, 1)]


def test_student_error_has_its_line(opened) -> None:
    _, channel = opened()
    channel.cell(1, "def broken():\n    values = [1]\n    return values[5]", 20)
    told = ask(channel, lambda: broken(), ranks=2)  # noqa: F821
    assert told["error"] == "RankFailed" and told["rank"] in (0, 1)
    assert "return values[5]" in told["text"] and "IndexError" in told["text"]


def test_deadlock_and_mismatch_reports(opened) -> None:
    _, channel = opened()
    code = """
import torch, torch.distributed as dist
def waits():
    dist.recv(torch.empty(1), 1 - dist.get_rank())
def differs():
    dist.all_reduce(torch.ones(3 if dist.get_rank() else 5))
"""
    see(channel, code, "1")
    started = time.monotonic()
    told = ask(channel, lambda: waits())  # noqa: F821
    assert told["error"] == "Deadlock" and "recv" in told["text"] and time.monotonic() - started < 8
    assert ask(channel, lambda: differs())["error"] == "Mismatch"  # noqa: F821
    assert see(channel, "", "2") == 2


def test_time_limit_of_a_launch(opened) -> None:
    _, channel = opened()
    see(channel, "def spins():\n    while True: pass", "1")
    told = ask(channel, lambda: spins(), timeout=0.5)  # noqa: F821
    assert told["error"] == "LaunchTimeout" and "0.5" in told["text"]


def test_value_that_cannot_come_back(answers) -> None:
    told = ask(answers, lambda: {"model": torch.nn.Linear(1, 1)}, ranks=None)
    assert told["error"] == "BadLaunch" and "result['model']" in told["text"]


def test_dataclasses_come_back_as_records(answers) -> None:
    cell = "from dataclasses import dataclass\n@dataclass\nclass Result:\n    loss: float\n"
    shared = {"__name__": "__main__"}  # as the shared cell that both sides run
    exec(cell + "probe = lambda: Result(0.5)", shared)
    answers.cell(1, cell, 20)
    (value,) = ask(answers, shared["probe"], ranks=None)["values"]
    assert value.loss == 0.5


def test_answer_of_too_many_bytes(opened, monkeypatch) -> None:
    _, channel = opened()
    see(channel, "import utils.answering.probes as p\np.MOST_ANSWER = 1 << 20", "1")
    told = ask(channel, lambda: torch.zeros(1 << 20), ranks=2)
    assert told["error"] == "BadLaunch" and "8 MiB together; one launch may return at most 1 MiB" in told["text"]


def test_delayed_rank_seeds_and_output(answers) -> None:
    def probe():
        print("hello from", dist.get_rank())
        return torch.rand(1).item()

    told = ask(answers, probe, ranks=2, delay={1: 0.2}, seed=5)
    assert told["stdout"] == ["hello from 0\n", "hello from 1\n"]
    again = ask(answers, probe, ranks=2, seed=5)
    assert told["values"] == again["values"] and told["values"][0] != told["values"][1]


def test_rank_that_exits_costs_the_launch_only(opened) -> None:
    _, channel = opened()
    see(channel, "def leaves():\n    import os; os._exit(0)", "1")
    told = ask(channel, lambda: leaves())  # noqa: F821
    assert told["error"] == "RankFailed" and "ended its process" in told["text"]
    assert ask(channel, lambda: 1)["values"] == [1, 1]


def test_answering_process_that_is_killed_by_a_rank(opened) -> None:
    box, channel = opened()
    see(
        channel, "import os\npid = os.getpid()\ndef kills():\n    import os, time; os.kill(pid, 9); time.sleep(20)", "1"
    )
    with pytest.raises(Ended, match="killed by signal 9") as caught:
        ask(channel, lambda: kills())  # noqa: F821
    assert caught.value.exit_code == -9 and isinstance(caught.value, AnswerLost)
    with pytest.raises(Ended, match="already"):
        ask(channel, lambda: 1)
    box.close()


def test_rank_server_that_is_killed_is_replaced(opened) -> None:
    _, channel = opened()
    see(channel, "import os\nfrom utils.ranks import client\nos.kill(client.client().process.pid, 9)", "1")
    time.sleep(0.2)
    assert ask(channel, lambda: dist.get_rank())["values"] == [0, 1]


def test_loopback_counts_what_ranks_send(opened) -> None:
    box, channel = opened()
    channel.cell(1, RING, 20)
    before = box.usage().loopback_bytes
    ask(channel, ring_probe, 1 << 18, ranks=4)
    sent = box.usage().loopback_bytes - before
    predicted = 4 * 3 * (1 << 20)
    assert predicted < sent < 1.1 * predicted

    def file_probe(numel):
        x = torch.full((numel,), float(dist.get_rank()))
        by_file(x)  # noqa: F821
        return x.sum().item()

    before = box.usage().loopback_bytes
    told = ask(channel, file_probe, 1 << 18, ranks=4)
    assert told["values"] == [6.0 * (1 << 18)] * 4
    assert box.usage().loopback_bytes - before < 0.05 * predicted


def test_ranks_are_not_imported_anew(answers) -> None:
    ask(answers, lambda: 1)
    started = time.process_time()
    assert ask(answers, lambda: os.getppid() > 0, ranks=4)["values"] == [True] * 4
    assert time.process_time() - started < 5
    argv = ask(answers, lambda: Path(f"/proc/{os.getppid()}/cmdline").read_text(), ranks=None)["values"][0]
    assert "utils.ranks.server" not in argv  # forked from the answering process, not started


def test_fill_leaves_what_is_carried_and_what_nobody_has() -> None:
    namespace = {"__builtins__": __builtins__, "mine": 1}
    exec("def f(): return mine, theirs, missing, print", namespace)
    probes.fill([namespace["f"]], {"mine": 2, "theirs": 3, "print": 4, "unused": 5})
    assert (namespace["mine"], namespace["theirs"]) == (1, 3)
    assert not {"missing", "print", "unused"} & set(namespace)
