"""Checks of split layers: gradients of copies, and the traffic of each pass, held to real traces."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist

from utils import check, launch

DENSE = torch.tensor([3.0, -1.0, 2.0])
ONCE = [("all_reduce", 12)]


def test_copies_may_each_have_the_gradient_or_add_up_to_it() -> None:
    check.copies_add_up([DENSE, DENSE.clone()], DENSE, "grad")
    check.copies_add_up([DENSE, None], DENSE, "grad")
    check.copies_add_up([DENSE / 3] * 3, DENSE, "grad")
    check.copies_add_up([DENSE - 1, torch.ones(3)], DENSE, "grad")


@pytest.mark.parametrize("got", [[None, None], [2 * DENSE, 2 * DENSE], [DENSE, 2 * DENSE], [DENSE / 3] * 2])
def test_copies_that_are_neither_are_refused(got: list) -> None:
    with pytest.raises(check.CheckFailed, match=r"grad of bias \(rank"):
        check.copies_add_up(got, DENSE, "grad of bias")


def test_a_factor_of_copies_is_named() -> None:
    with pytest.raises(check.CheckFailed, match="twice over"):
        check.copies_add_up([2 * DENSE] * 2, DENSE, "grad", {"twice over": 2.0})


def passes(forward: list[str], backward: list[str], barriers: int = 3) -> None:
    """On a rank: one step that calls these collectives on 12 elements in its passes."""
    x, parts = torch.ones(12), [torch.ones(6), torch.ones(6)]
    calls = {
        "all_reduce": lambda: dist.all_reduce(x),
        "all_gather": lambda: dist.all_gather(parts, torch.ones(6)),
        "reduce_scatter": lambda: dist.reduce_scatter_single(torch.ones(6), x),
    }
    dist.all_reduce(x)  # before the first barrier: not of the step
    for names in (None, forward, backward):
        for name in names or []:
            calls[name]()
        if barriers:
            dist.barrier()
            barriers -= 1
    dist.all_reduce(x)


def traffic(forward: list[str], backward: list[str], budget: tuple, barriers: int = 3) -> None:
    run = launch(passes, forward, backward, barriers, ranks=2)
    check.step_traffic(run.trace, [("layer", *budget)])


@pytest.mark.parametrize(
    ("forward", "backward", "budget"),
    [
        (["all_reduce"], ["all_reduce"], (ONCE, ONCE)),
        ([], ["all_reduce"], ([], ONCE)),
        (["reduce_scatter", "all_gather"], [], (ONCE, [])),
        (["all_gather"], ["reduce_scatter"], ([("all_gather", 12)], [("reduce_scatter", 12)])),
        ([], ["all_gather"], ([], [("all_gather?", 12)])),
        ([], [], ([], [("all_gather?", 12)])),
    ],
)
def test_what_is_allowed_passes(forward: list, backward: list, budget: tuple) -> None:
    traffic(forward, backward, budget)


@pytest.mark.parametrize(
    ("forward", "backward", "budget", "said"),
    [
        (["all_reduce"] * 2, [], (ONCE, []), "sent 96 bytes in the forward pass .* 1 all-reduce too many"),
        ([], [], (ONCE, []), "received 0 bytes in the forward pass; it needs 24"),
        (["all_reduce"], ["all_reduce"], (ONCE, []), "in the backward pass .* Each rank can do this pass alone"),
        (["all_gather", "all_reduce"], [], (ONCE, []), "Nothing has to be gathered here"),
        (["all_reduce"], [], ([("reduce_scatter", 12)], []), "only one of them is needed here"),
    ],
)
def test_what_is_not_allowed_is_told(forward: list, backward: list, budget: tuple, said: str) -> None:
    with pytest.raises(check.CheckFailed, match=said):
        traffic(forward, backward, budget)


def test_a_barrier_of_the_layers_own_is_told() -> None:
    with pytest.raises(check.CheckFailed, match="rank 0 made 2 barriers, 3 are the test's own"):
        traffic(["all_reduce"], [], (ONCE, []), barriers=2)


def test_one_rank_alone_needs_nothing() -> None:
    run = launch(passes_alone, ranks=1)
    check.step_traffic(run.trace, [("layer", ONCE, ONCE)])


def passes_alone() -> None:
    for _ in range(3):
        dist.barrier()
