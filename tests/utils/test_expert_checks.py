"""Checks of layers of experts: they pass what is right, and say what is wrong."""

from types import SimpleNamespace

import pytest
import torch

from utils.checks.experts import expert_traffic, queued, sent_at_most, went_through
from utils.checks.failed import CheckFailed

WANT = torch.tensor([[0.6, 0.0, 0.4, 0.0], [0.0, 0.7, 0.0, 0.3], [0.0, 0.0, 0.0, 0.0]])


def test_the_right_experts_with_the_right_weights_pass():
    went_through(WANT.clone(), WANT, "layer")
    went_through(torch.empty(0, 4), torch.empty(0, 4), "layer")


@pytest.mark.parametrize(
    ("got", "says"),
    [
        ([[0.6, 0.4, 0, 0], WANT[1], WANT[2]], "token 0 went through experts 0 and 1; the router chose experts 0 and"),
        ([WANT[1], WANT[0], WANT[2]], "token 0 has the result of token 1"),
        ([[0.3, 0, 0.2, 0], WANT[1], WANT[2]], "right experts (0 and 2) with the weights 0.3 and 0.2, wanted 0.6 and"),
        ([WANT[0], WANT[1], [0, 0, 0, 1.0]], "token 2 went through expert 3; the router chose no expert"),
        ([WANT[0], [0, 0, 0, 0.0], WANT[2]], "token 1 went through no expert; the router chose experts 1 and 3"),
        ([WANT[0], [0, float("nan"), 0, 0.3], WANT[2]], "weights nan and 0.3, wanted 0.7 and 0.3"),
    ],
)  # fmt: skip
def test_a_wrong_way_is_named(got, says):
    got = torch.stack([row if isinstance(row, torch.Tensor) else torch.tensor(row) for row in got])
    with pytest.raises(CheckFailed) as failed:
        went_through(got, WANT, "layer")
    assert says in str(failed.value)


def test_another_shape_is_named():
    with pytest.raises(CheckFailed, match=r"shape \(4, 3\), wanted \(3, 4\)"):
        went_through(WANT.t(), WANT, "layer")
    with pytest.raises(CheckFailed, match="NoneType"):
        went_through(None, WANT, "layer")


def event(op, sent=0, sizes=(), peer=None, dtype="float32", shape=()):
    group = SimpleNamespace(ranks=(0, 1))
    return SimpleNamespace(
        op=op, sent=sent, issued=True, peer=peer, dtype=dtype, shape=shape, group=group, sizes=lambda: [list(sizes)]
    )


def trace_of(*ranks):
    """A trace of two ranks; each is the events of its two passes."""
    rows = []
    for passes in ranks:
        rows.append([event("barrier")])
        for part in passes:
            rows[-1] += [*part, event("barrier")]
    return SimpleNamespace(ranks=len(rows), of=rows.__getitem__)


ROWS, FEWEST = [[1, 4], [2, 3]], [[1, 3], [2, 2]]  # rank 0 has 4 choices on rank 1, of 3 tokens; rank 1 has 2 on rank 0
H = 256


def there_and_back(rank, there=None, back=None):
    """One pass: rows there, results back, by all-to-all."""
    there = ROWS[rank][1 - rank] if there is None else there
    back = ROWS[1 - rank][rank] if back is None else back
    sizes = [[99 * H, n * H] if rank == 0 else [n * H, 99 * H] for n in (there, back)]  # what stays at home is free
    return [event("all_to_all", n * H * 4, size) for n, size in zip((there, back), sizes, strict=True)]


def judge(trace):
    expert_traffic(trace, ROWS, FEWEST, 4 * H, 4, "layer")


def test_rows_there_and_results_back_pass():
    small = event("all_gather", 64, shape=(2, 4))
    judge(trace_of(*[[[small, *there_and_back(rank)], there_and_back(rank)] for rank in (0, 1)]))


def test_messages_and_one_row_a_rank_pass():
    once = [[there_and_back(0, 3, 2)] * 2, [there_and_back(1, 2, 3)] * 2]
    judge(trace_of(*once))
    by_messages = [[event("send", 6 * 4 * H, peer=1 - rank), event("recv", peer=1 - rank)] for rank in (0, 1)]
    judge(trace_of(*[[part, part] for part in by_messages]))


def test_padding_gathering_and_no_messages_are_named():
    fine = [there_and_back(1)] * 2
    with pytest.raises(CheckFailed, match=r"in the forward pass rank 0 sent .* padded, or sent twice"):
        judge(trace_of([there_and_back(0, 8, 4), there_and_back(0)], fine))
    with pytest.raises(CheckFailed, match=r"backward pass rank 0 called all_gather of .6, 256.*rank of its expert"):
        judge(trace_of([there_and_back(0), [event("all_gather", 6144, shape=(6, 256))]], fine))
    with pytest.raises(CheckFailed, match="backward pass rank 0 sent 0 bytes to rank 1, where 5 rows"):
        judge(trace_of([there_and_back(0), []], fine))
    with pytest.raises(CheckFailed, match="3 barriers are the test's own"):
        judge(trace_of([there_and_back(0)], fine))


def test_limits_on_parts():
    fine = trace_of([[event("all_reduce", 8)], []], [[event("all_reduce", 8)], []])
    sent_at_most(fine, [("z", 8, "a sum"), ("none", 0, "nothing")])
    with pytest.raises(CheckFailed, match=r"z: rank 0 sent 8 bytes \(all_reduce of \[\]\); 4 are enough: a sum"):
        sent_at_most(fine, [("z", 4, "a sum"), ("none", 0, "nothing")])
    with pytest.raises(CheckFailed, match="rank 0 made 3 barriers, 2 are the test's own"):
        sent_at_most(fine, [("z", 8, "a sum")])


@pytest.mark.parametrize(
    ("by", "left"),
    [
        ("choice", [[[0, 1], [0, -1]], [[1, -1]]]),
        ("token", [[[0, 1], [0, 1]], [[-1, -1]]]),
        ("late", [[[0, -1], [0, 1]], [[1, -1]]]),
        ("rank", [[[0, 1], [0, 1]], [[-1, -1]]]),
    ],
)
def test_one_queue_for_all_ranks(by, left):
    ids = [torch.tensor([[0, 1], [0, 1]]), torch.tensor([[1, 0]])]
    assert [own.tolist() for own in queued(ids, 2, by)] == left
    assert [own.tolist() for own in queued(ids, 3, by)] == [own.tolist() for own in ids]
