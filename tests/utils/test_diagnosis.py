"""Hang and mismatch reports: each names the rank that is missing, what the others wait for, and the line."""

from __future__ import annotations

import os
import time

import pytest
import torch
import torch.distributed as dist

from utils import Deadlock, LaunchError, LaunchTimeout, Mismatch, RankFailed, launch


def report(kind: type[LaunchError], fn: object, ranks: int, timeout: float = 30.0) -> str:
    """The text of the error that launching `fn` must raise."""
    with pytest.raises(kind) as caught:
        launch(fn, ranks=ranks, timeout=timeout)  # type: ignore[arg-type]
    return str(caught.value)


def test_one_rank_skips_a_collective_and_stays() -> None:
    def step() -> None:
        x = torch.ones(4)
        dist.all_reduce(x)
        if dist.get_rank() != 3:
            dist.all_reduce(x)  # all but one

    text = report(Deadlock, step, 4)
    assert "rank 3 never reached all_reduce #2 (group world); it has returned from the function" in text
    assert "ranks 0, 1 and 2 wait there, line " in text and "dist.all_reduce(x)  # all but one" in text


def test_a_proved_deadlock_ends_within_a_second_not_at_the_limit() -> None:
    def step() -> None:
        if dist.get_rank() == 0:
            dist.barrier()

    launch(dist.get_rank, ranks=2)  # the fork server is up
    start = time.monotonic()
    launch(dist.get_rank, ranks=2)
    usual = time.monotonic() - start  # of a machine that may be slow or busy
    took = []
    for _ in range(3):
        start = time.monotonic()
        assert "rank 1 never reached barrier #1" in report(Deadlock, step, 2, timeout=60)
        took.append(time.monotonic() - start)
    assert min(took) < 1.0 + 10 * usual, (took, usual)  # the shared machine may pause one of them


def test_one_rank_skips_and_exits() -> None:
    def step() -> None:
        if dist.get_rank() == 1:
            os._exit(0)
        dist.all_reduce(torch.ones(4))  # the others

    text = report(RankFailed, step, 4)
    assert text.startswith("rank 1 ended its process in step (exit code 0)")
    assert "all_reduce #1 (group world)" in text and "# the others" in text


def test_swapped_collectives_of_one_size_are_found_after_the_run() -> None:
    def step() -> list[float]:
        a, b = torch.ones(3), torch.full((3,), 10.0)
        for t in (b, a) if dist.get_rank() == 1 else (a, b):
            dist.all_reduce(t)
        return [a[0].item(), b[0].item()]

    text = report(Mismatch, step, 2)
    assert "rank 1 issued two collectives in the other order than rank 0" in text
    assert "of a (line" in text and "of b (line" in text and "swapped without an error" in text


def test_swapped_lines_are_found_after_the_run() -> None:
    def step() -> None:
        x, y = torch.ones(3), torch.ones(3)

        def first() -> None:
            dist.all_reduce(x)

        def second() -> None:
            dist.all_reduce(y)

        for call in (second, first) if dist.get_rank() == 2 else (first, second):
            call()

    assert "rank 2 issued two collectives in the other order than rank 0" in report(Mismatch, step, 3)


def test_collectives_swapped_between_branches_are_found() -> None:
    def step() -> None:
        grads, loss = torch.ones(3), torch.ones(3)
        if dist.get_rank() == 1:
            dist.all_reduce(loss)
            dist.all_reduce(grads)
        else:
            dist.all_reduce(grads)
            dist.all_reduce(loss)

    text = report(Mismatch, step, 2)
    assert "rank 1 issued two collectives in the other order than rank 0" in text
    assert "of grads (line" in text and "of loss (line" in text


def test_branches_that_issue_the_same_collectives_are_right() -> None:
    def step() -> float:
        x = torch.ones(3)
        if dist.get_rank() == 0:
            dist.all_reduce(x)
            dist.broadcast(x, 1)
        else:
            y = x.clone()
            dist.all_reduce(y)
            dist.broadcast(y, 1)
            x = y
        return x.sum().item()

    assert launch(step, ranks=3).values == [9.0] * 3


def test_sizes_that_differ_abort_in_gloo_and_are_named() -> None:
    def step() -> None:
        dist.all_reduce(torch.ones(3 if dist.get_rank() == 0 else 5))

    text = report(Mismatch, step, 2)
    assert "sizes differ in all_reduce #1 (group world): 3 elements on rank 0, 5 elements on rank 1" in text
    assert "aborted in all_reduce #1" in text


def test_dtypes_that_differ_are_found_after_the_run() -> None:
    def step() -> None:
        dist.all_reduce(torch.ones(3, dtype=torch.float32 if dist.get_rank() == 0 else torch.int32))

    assert "dtypes differ in all_reduce #1 (group world): float32 on rank 0, int32 on rank 1" in report(
        Mismatch, step, 2
    )


@pytest.mark.parametrize("ranks", [2, 3])
def test_every_rank_sends_first(ranks: int) -> None:
    def step() -> None:
        r, p = dist.get_rank(), dist.get_world_size()
        x = torch.ones(2)
        dist.send(x, (r + 1) % p)
        dist.recv(x, (r - 1) % p)

    text = report(Deadlock, step, ranks)
    assert f"rank 0 waits in send #1 to rank 1, line {step.__code__.co_firstlineno + 3}" in text
    assert "Every rank that waits is sending" in text and "isend" in text


def test_a_receive_from_the_wrong_peer() -> None:
    def step() -> None:
        r, x = dist.get_rank(), torch.ones(2)
        if r == 0:
            dist.send(x, 1)
        if r == 1:
            dist.recv(x, 2)

    text = report(Deadlock, step, 3)
    assert "rank 1 waits in recv #1 from rank 2" in text and "rank 2 sent nothing that matches and has returned" in text
    assert "was the receive meant to be from rank 0?" in text


def test_a_receive_with_the_wrong_tag() -> None:
    def step() -> None:
        x = torch.ones(2)
        dist.send(x, 1, tag=3) if dist.get_rank() == 0 else dist.recv(x, 0)

    assert "it sent with tag 3, the receive has tag 0" in report(Deadlock, step, 2)


def test_one_rank_in_an_infinite_loop() -> None:
    def step() -> None:
        x = torch.ones(2)
        if dist.get_rank() == 2:
            while True:
                x += 1
        dist.all_reduce(x)

    text = report(LaunchTimeout, step, 4, timeout=3)
    line = step.__code__.co_firstlineno + 3
    assert "rank 2 never reached all_reduce #1 (group world); it is at line " in text
    assert f"line {line}" in text or f"line {line + 1}" in text
    assert "ranks 0, 1 and 3 wait there" in text


def test_one_rank_raises_while_three_wait() -> None:
    def step() -> None:
        if dist.get_rank() == 0:
            raise KeyError("w1")
        dist.broadcast(torch.ones(1), 0)

    text = report(RankFailed, step, 4)
    assert text.startswith("rank 0 raised KeyError") and "ranks 1, 2 and 3 wait in broadcast #1" in text


def test_different_collectives_at_one_place() -> None:
    def step() -> None:
        x = torch.ones(4)
        dist.all_reduce(x) if dist.get_rank() == 0 else dist.broadcast(x, 0)
        dist.barrier()

    assert "all_reduce #1 on rank 0, broadcast #1 on ranks 1 and 2" in report(Mismatch, step, 3)


def test_roots_and_reductions_that_differ() -> None:
    def roots() -> None:
        dist.broadcast(torch.ones(2), dist.get_rank())

    def reductions() -> None:
        dist.all_reduce(torch.ones(2), dist.ReduceOp.MAX if dist.get_rank() else dist.ReduceOp.SUM)

    assert "roots differ in broadcast #1" in report(Mismatch, roots, 2)
    assert "reductions differ in all_reduce #1 (group world): SUM on rank 0, MAX on rank 1" in report(
        Mismatch, reductions, 2
    )


@pytest.mark.parametrize(("sent", "expected"), [(5, 3), (3, 5)])
def test_a_message_of_another_size(sent: int, expected: int) -> None:
    def step() -> None:
        dist.send(torch.ones(sent), 1) if dist.get_rank() == 0 else dist.recv(torch.ones(expected), 0)

    assert f"{sent} elements sent, {expected} expected" in report(Mismatch, step, 2)


def test_a_message_of_another_dtype() -> None:
    def step() -> None:
        dist.send(torch.ones(4), 1) if dist.get_rank() == 0 else dist.recv(torch.ones(4, dtype=torch.int32), 0)

    assert "float32 sent, int32 expected" in report(Mismatch, step, 2)


@pytest.mark.parametrize("claimed", [4, 1])
def test_all_to_all_splits_must_be_transposed(claimed: int) -> None:
    def step() -> None:
        r = dist.get_rank()
        out = [1, 2] if r == 0 else [claimed, 2]
        dist.all_to_all_single(torch.full((sum(out),), -1.0), torch.ones(4), out, [1, 3] if r == 0 else [2, 2])

    text = report(Mismatch, step, 2)
    assert "splits differ in all_to_all #1" in text


def test_groups_made_in_different_order_are_a_mismatch() -> None:
    def step() -> None:
        dist.new_group([0, 3] if dist.get_rank() in (0, 3) else [1, 2])

    assert "members differ in new_group #1 (group world): [0,3] on ranks 0 and 3, [1,2] on ranks 1 and 2" in report(
        Mismatch, step, 4
    )


def test_groups_made_by_members_only_are_found_though_gloo_lets_them_pass() -> None:
    def step() -> None:
        if dist.get_rank() in (1, 3):
            dist.all_reduce(torch.ones(1), group=dist.new_group([1, 3]))

    assert "ranks 0 and 2 never issued new_group #1" in report(Mismatch, step, 4)


def test_the_group_is_named() -> None:
    def step() -> None:
        group = dist.new_group([0, 2], group_desc="tp")
        if dist.get_rank() == 0:
            dist.all_reduce(torch.ones(1), group=group)

    assert "rank 2 never reached all_reduce #1 (group tp); it has returned" in report(Deadlock, step, 4)


def test_a_send_that_nobody_receives_is_noted() -> None:
    def step() -> None:
        if dist.get_rank() == 0:
            dist.isend(torch.ones(2), 1)

    notes = launch(step, ranks=2, show=False).notes
    assert len(notes) == 1 and "rank 0: send #1 to rank 1 was never matched" in notes[0]


def test_slow_ranks_are_not_a_deadlock() -> None:
    def step() -> float:
        x = torch.ones(2_000_000)
        for _ in range(3):
            time.sleep(0.4 * dist.get_rank())
            dist.all_reduce(x)
            dist.broadcast(x, 1)
            dist.reduce(x, 0)
        return 1.0

    assert launch(step, ranks=3).values == [1.0] * 3


def test_a_thread_that_may_still_send_is_not_a_deadlock() -> None:
    import threading

    def step() -> float:
        x = torch.zeros(1)
        if dist.get_rank() == 0:
            helper = threading.Timer(1.0, lambda: dist.send(torch.ones(1), 1, tag=1))
            helper.start()
            dist.recv(x, 1, tag=2)
            helper.join()
        else:
            dist.recv(x, 0, tag=1)
            dist.send(x, 0, tag=2)
        return x.item()

    assert launch(step, ranks=2).values == [1.0, 1.0]


def test_receive_from_any_source_pairs_with_what_came() -> None:
    def step() -> list[float]:
        x, got = torch.zeros(1), []
        if dist.get_rank() == 0:
            for _ in range(2):
                dist.recv(x)
                got.append(x.item())
        else:
            dist.send(torch.full((1,), float(dist.get_rank())), 0)
        return sorted(got)

    run = launch(step, ranks=3, show=False)
    assert run.values[0] == [1.0, 2.0] and run.notes == []


def test_a_receive_from_any_source_that_nobody_sends_to() -> None:
    def step() -> None:
        if dist.get_rank() == 0:
            dist.recv(torch.zeros(1))

    assert "rank 0 waits in recv #1 from any rank" in report(Deadlock, step, 2)


def test_a_send_whose_work_is_let_go_of() -> None:
    def step() -> None:
        x = torch.ones(2)
        if dist.get_rank() == 0:
            dist.isend(x, 1)
        else:
            time.sleep(0.3)
            dist.recv(x, 0)

    text = report(Deadlock, step, 2)
    assert "rank 0 let go of its send #1 to rank 1" in text and "keep what isend returns, and wait for it" in text


def ended_by_an_exception_of_cpp():
    if dist.get_rank() == 1:
        os.write(2, b"terminate called after throwing an instance of 'c10::Error'\n  what():  why\n" + b"frame\n" * 9)
        os.abort()
    dist.barrier()


def test_last_words_hold_what_cpp_ended_for_however_long_its_stack_is() -> None:
    with pytest.raises(RankFailed, match=r"rank 1 was ended by SIGABRT") as failed:
        launch(ended_by_an_exception_of_cpp, ranks=2, show=False)
    assert "what():  why" in str(failed.value) and str(failed.value).count("rank 1: frame") == 5
