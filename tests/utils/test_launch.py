"""Launching: values, output, seeds, refusals, the first failure."""

from __future__ import annotations

import dataclasses
import os
import sys
import threading
from typing import NamedTuple

import pytest
import torch
import torch.distributed as dist

from utils import BadLaunch, LaunchError, LaunchTimeout, RankFailed, launch


@dataclasses.dataclass
class Shard:
    rank: int
    data: torch.Tensor


class Pair(NamedTuple):
    left: int
    right: str


def test_values_of_four_ranks_are_their_all_reduce() -> None:
    def add() -> float:
        x = torch.tensor([1.0 + dist.get_rank()])
        dist.all_reduce(x)
        return x.item()

    assert launch(add, ranks=4).values == [10.0] * 4


@pytest.mark.parametrize("ranks", [1, 2, 3, 8])
def test_every_rank_knows_its_number_and_the_world(ranks: int) -> None:
    run = launch(lambda: (dist.get_rank(), dist.get_world_size(), dist.get_backend()), ranks=ranks)
    assert run.values == [(r, ranks, "gloo") for r in range(ranks)]


def test_without_ranks_there_is_one_fresh_process_and_no_group() -> None:
    run = launch(lambda: (dist.is_initialized(), os.getpid()), ranks=None)
    assert run.values == [run.value] and run.value[0] is False and run.value[1] != os.getpid()


def test_arguments_globals_and_closures_travel_by_value() -> None:
    base = {"offset": 7}
    run = launch(lambda a, b=0: a + b + base["offset"], 1, kwargs={"b": 2}, ranks=2)
    assert run.values == [10, 10] and base == {"offset": 7}


def test_ranks_are_fresh_each_time() -> None:
    def mark() -> bool:
        import utils

        seen = hasattr(utils, "mark")
        utils.mark = True
        return seen

    assert launch(mark, ranks=2).values == [False, False]
    assert launch(mark, ranks=2).values == [False, False]


def test_ranks_start_with_different_seeds_that_the_call_sets() -> None:
    def draw() -> float:
        return torch.rand(1).item()

    first, again, other = (launch(draw, ranks=4, seed=s).values for s in (5, 5, 6))
    assert first == again and len(set(first + other)) == 8


def test_every_kind_of_plain_value_comes_back() -> None:
    def make() -> dict:
        import numpy as np

        r = dist.get_rank()
        return {
            "none": None,
            "bool": True,
            "int": 2**80,
            "float": float("nan"),
            "complex": 1 + 2j,
            "text": "é",
            "bytes": b"\x00\xff",
            (1, 2): [1, (2,), {3}, frozenset({4})],
            "bf16": torch.full((2, 3), r, dtype=torch.bfloat16),
            "empty": torch.empty(0, 3),
            "scalar": torch.tensor(3),
            "bool_t": torch.tensor([True, False]),
            "strided": torch.arange(6).view(2, 3).T,
            "array": np.arange(3, dtype=np.int16),
            "np": np.float32(1.5),
            "dtype": torch.int8,
            "size": torch.Size([2, 3]),
            "device": torch.device("cpu"),
            "shard": Shard(r, torch.ones(1)),
            "pair": Pair(1, "b"),
            "range": range(1, 5, 2),
            "slice": slice(1, None),
            "grad": torch.ones(1, requires_grad=True),
        }

    value = launch(make, ranks=2).values[1]
    assert (
        value["none"] is None and value["bool"] is True and value["int"] == 2**80 and value["float"] != value["float"]
    )
    assert value["complex"] == 1 + 2j and value["text"] == "é" and value["bytes"] == b"\x00\xff"
    assert value[1, 2] == [1, (2,), {3}, frozenset({4})] and value["bf16"].tolist() == [[1.0] * 3] * 2
    assert value["bf16"].dtype is torch.bfloat16 and value["empty"].shape == (0, 3) and value["scalar"].shape == ()
    assert value["bool_t"].tolist() == [True, False] and value["strided"].tolist() == [[0, 3], [1, 4], [2, 5]]
    assert value["array"].tolist() == [0, 1, 2] and value["array"].dtype == "int16" and value["np"] == 1.5
    assert (
        value["dtype"] is torch.int8 and value["size"] == torch.Size([2, 3]) and value["device"] == torch.device("cpu")
    )
    assert isinstance(value["shard"], Shard) and value["shard"].rank == 1 and value["shard"].data.item() == 1
    assert isinstance(value["pair"], Pair) and value["pair"] == Pair(1, "b")
    assert value["range"] == range(1, 5, 2) and value["slice"] == slice(1, None) and value["grad"].requires_grad


def test_output_comes_back_by_rank_and_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    def speak() -> None:
        print("hello from", dist.get_rank())
        print("oops", file=sys.stderr)
        os.write(1, b"raw\n")

    run = launch(speak, ranks=2)
    assert run.stdout == ["hello from 0\nraw\n", "hello from 1\nraw\n"] and run.stderr == ["oops\n"] * 2
    shown = capsys.readouterr().out
    assert "[rank 0] hello from 0\n" in shown and "[rank 1] raw\n" in shown
    assert launch(speak, ranks=2, show=False).stdout == run.stdout and capsys.readouterr().out == ""


def test_endless_output_keeps_both_ends() -> None:
    run = launch(lambda: print("first", *["x" * 99] * 40_000, "last", sep="\n"), ranks=None, show=False)
    text = run.stdout[0]
    assert text.startswith("first\n") and text.endswith("last\n") and "characters cut" in text and len(text) < 2_000_000


def test_peak_bytes_see_what_a_rank_held() -> None:
    def hold(mb: int) -> None:
        torch.ones(mb * 262144)

    small, large = (launch(hold, mb, ranks=2).peak_bytes for mb in (1, 64))
    assert all(b > 60e6 for b in large) and all(b < 20e6 for b in small)


def test_delay_starts_a_rank_late() -> None:
    import time

    started = launch(lambda: (dist.barrier(), time.monotonic())[1] and None, ranks=2, delay={1: 0.8})
    waits = [e.wait for e in started.trace.of(0)]
    assert started.trace.of(1)[0].start - started.trace.of(0)[0].start > 0.2 and waits[0] is not None


def test_two_threads_may_launch_at_once() -> None:
    results: list[list[int]] = []
    threads = [threading.Thread(target=lambda: results.append(launch(dist.get_rank, ranks=2).values)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert results == [[0, 1]] * 3


# -- refusals, each in one sentence with the numbers ------------------------------------------------------------------
def refused(*args: object, **kwargs: object) -> str:
    with pytest.raises(BadLaunch) as caught:
        launch(*args, **kwargs)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_bad_numbers_of_ranks_are_refused() -> None:
    assert "ranks=0" in refused(dist.get_rank, ranks=0)
    assert "between 1 and 256" in refused(dist.get_rank, ranks=-3)
    assert "2.0" in refused(dist.get_rank, ranks=2.0)
    assert "True" in refused(dist.get_rank, ranks=True)


def test_what_is_no_dictionary_is_refused() -> None:
    assert "delay=0.5: give a dictionary, such as {1: 0.02}." in refused(dist.get_rank, delay=0.5)
    assert "kwargs=[1]" in refused(dist.get_rank, kwargs=[1])


def test_what_is_not_a_function_or_a_time_is_refused() -> None:
    assert "launch(step), not launch(step())" in refused(3)
    assert "timeout=-1" in refused(dist.get_rank, timeout=-1)
    assert "rank 5" in refused(dist.get_rank, ranks=2, delay={5: 1.0})
    assert "rank 2" in refused(dist.get_rank, ranks=2, debug=2)
    assert "gloo" in refused(dist.get_rank, backend="mpi")
    assert "cuda" in refused(dist.get_rank, device="tpu")


@pytest.mark.skipif(torch.cuda.is_available(), reason="says what a machine without a GPU says")
def test_more_ranks_than_gpus_are_refused_with_both_numbers() -> None:
    assert "2 ranks, but 0 GPUs" in refused(dist.get_rank, ranks=2, backend="nccl")
    assert "needs a GPU" in refused(dist.get_rank, ranks=2, device="cuda")


def test_a_function_that_names_a_module_pickle_does_not_know() -> None:
    def uses_ops() -> int:
        return torch.ops.aten.add(torch.tensor(1), torch.tensor(2)).item()

    assert launch(uses_ops, ranks=2).values == [3, 3]


def test_what_cannot_be_shipped_is_named() -> None:
    lock, nested = threading.Lock(), {"tools": [1, threading.Lock()]}

    def uses_lock() -> object:
        return lock

    def uses_nested() -> object:
        return nested

    def calls_it() -> object:
        return uses_lock()

    assert "the variable lock is a lock" in refused(uses_lock)
    assert "the variable nested['tools'][1] is a lock" in refused(uses_nested)
    assert "the variable lock (used by uses_lock) is a lock" in refused(calls_it)
    assert "its argument 0 is a lock" in refused(print, lock)


def test_what_cannot_come_back_is_named_by_type_and_path() -> None:
    assert "result['model'][0] is a Linear" in refused(lambda: {"model": [torch.nn.Linear(2, 2)]})
    assert "result is a function" in refused(lambda: print and (lambda: 1))
    assert "sparse" in refused(lambda: torch.eye(2).to_sparse())


def test_a_launch_inside_a_rank_is_refused() -> None:
    def inner() -> None:
        from utils import launch

        launch(dist.get_rank, ranks=2)

    with pytest.raises(RankFailed, match="called inside a rank"):
        launch(inner, ranks=2)


def test_windows_is_told_about_wsl(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    assert "WSL2" in refused(dist.get_rank)


# -- failures --------------------------------------------------------------------------------------------------------
def test_the_first_rank_to_fail_comes_first_and_the_others_are_told() -> None:
    def step() -> None:
        x = torch.ones(2)
        if dist.get_rank() == 2:
            raise ValueError("chunk 3 is missing")
        dist.all_reduce(x)

    with pytest.raises(RankFailed) as caught:
        launch(step, ranks=4)
    text = str(caught.value)
    assert caught.value.rank == 2 and text.startswith("rank 2 raised ValueError, line ")
    assert "ValueError: chunk 3 is missing" in text and 'raise ValueError("chunk 3 is missing")' in text
    assert "ranks 0, 1 and 3 wait in all_reduce #1 (group world)" in text
    assert "site-packages" not in text and "utils/ranks" not in text


def test_exit_and_os_exit_are_explained() -> None:
    with pytest.raises(RankFailed, match=r"rank 0 called exit\(3\)|rank 1 called exit\(3\)"):
        launch(lambda: sys.exit(3), ranks=2)
    with pytest.raises(RankFailed, match=r"rank 1 ended its process in .*exit code 7"):
        launch(lambda: os._exit(7) if dist.get_rank() == 1 else dist.barrier(), ranks=2)


def test_the_time_limit_ends_a_run_and_says_where_it_was() -> None:
    def loop() -> None:
        if dist.get_rank() == 1:
            while True:
                pass
        dist.barrier()

    with pytest.raises(LaunchTimeout) as caught:
        launch(loop, ranks=2, timeout=2.0)
    assert "within 2 s" in str(caught.value) and "rank 1 never reached barrier #1 (group world); it is at line" in str(
        caught.value
    )
    assert launch(dist.get_rank, ranks=2).values == [0, 1]


def test_the_environment_caps_the_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    monkeypatch.setenv("UTILS_TIMEOUT", "0.5")
    with pytest.raises(LaunchTimeout, match=r"within 0\.5 s"):
        launch(time.sleep, 60, ranks=2)


def test_a_report_is_one_of_our_errors() -> None:
    assert all(issubclass(kind, LaunchError) for kind in (BadLaunch, RankFailed, LaunchTimeout))


def test_breakpoint_and_input_inside_ranks_are_explained() -> None:
    with pytest.raises(RankFailed, match=r"debug=RANK"):
        launch(lambda: breakpoint(), ranks=2)
    with pytest.raises(RankFailed, match="EOFError"):
        launch(lambda: input("name? "), ranks=2)
