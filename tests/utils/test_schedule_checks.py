"""Schedules as data: what plays, what is refused and in which words; the log of stages; the picture."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import pytest
import torch
from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle
from torch import nn

from utils import check, launch
from utils.checks import schedules
from utils.models import Transformer, TransformerConfig
from utils.pictures.schedule import draw_schedule
from utils.schedules import most_in_flight, needs, play, read_actions
from utils.stages import StageLog, cut_model


def rows(text: str) -> list:
    return [read_actions(line) for line in text.split("|")]


def gpipe(p: int, m: int) -> list:
    return [[(op, s, k) for op in "FB" for k in range(m)] for s in range(p)]


def torch_interleaved(p: int, m: int, v: int) -> list:
    """The action lists of torch's ScheduleInterleaved1F1B, made without stages or processes."""
    from torch.distributed.pipelining.schedules import ScheduleInterleaved1F1B

    rounds = max(1, m // p)
    fake = SimpleNamespace(pp_group_size=p, n_local_stages=v, _n_microbatches=m, microbatches_per_round=m // rounds)
    orders = [ScheduleInterleaved1F1B._calculate_single_rank_operations(fake, rank) for rank in range(p)]
    return [read_actions(" ".join(str(action) for action in order if action is not None)) for order in orders]


def refused(fn, *args, **options) -> str:
    with pytest.raises(check.CheckFailed) as caught:
        fn(*args, **options)
    return str(caught.value)


# -- play ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("p", "m", "share", "over"),
    [(4, 1, 0.75, 3.0), (4, 4, 0.4286, 0.75), (4, 8, 0.2727, 0.375), (4, 32, 0.0857, 0.0938), (8, 32, 0.1795, 0.2188)],
)
def test_bubbles_are_those_that_papers_print(p, m, share, over) -> None:
    line = play(gpipe(p, m))
    assert (line.bubble, line.overhead) == (pytest.approx(share, abs=5e-5), pytest.approx(over, abs=5e-5))
    assert line.seconds == 3 * (m + p - 1)


@pytest.mark.parametrize(("p", "m", "v"), [(2, 4, 2), (4, 8, 2), (3, 6, 3), (4, 4, 2)])
def test_torch_interleaved_plays_with_a_vth_of_the_bubble(p, m, v) -> None:
    line = play(torch_interleaved(p, m, v))
    assert line.stuck == {} and line.seconds == 3 * (m * v + p - 1)
    assert line.overhead == pytest.approx((p - 1) / (v * m))


def earliest_by_brute_force(schedule, forward, backward) -> float:
    """The longest path through all needs, found by relaxing every edge until nothing moves."""
    stages = 1 + max(s for own in schedule for _, s, _ in own)
    cost = {a: (forward if a[0] == "F" else backward)[a[1]] for own in schedule for a in own}
    before = {a: needs(a, stages) for a in cost}
    for own in schedule:
        for first, then in itertools.pairwise(own):
            before[then] = [*before[then], first]
    ends = dict.fromkeys(cost, 0.0)
    for _ in cost:
        for action in cost:
            ends[action] = cost[action] + max([ends[b] for b in before[action]], default=0.0)
    return max(ends.values())


@pytest.mark.parametrize("schedule", [gpipe(3, 4), torch_interleaved(2, 4, 2), rows("0F0 0F1 0B1 0B0|1F0 1B0 1F1 1B1")])
def test_play_finds_the_longest_path(schedule) -> None:
    stages = 1 + max(s for own in schedule for _, s, _ in own)
    forward, backward = [1.0, 2.5, 0.5, 3.0][:stages], [2.0, 1.0, 4.0, 0.25][:stages]
    line = play(schedule, forward, backward)
    assert line.seconds == pytest.approx(earliest_by_brute_force(schedule, forward, backward))
    for own in (sorted((s.start, s.end) for s in line.spans if s.rank == r) for r in range(line.ranks)):
        assert all(a[1] <= b[0] for a, b in itertools.pairwise(own))


def test_play_leaves_the_stuck_where_they_wait() -> None:
    line = play(rows("0F0 0B0|1B0 1F0"))
    assert line.stuck == {0: ("B", 0, 0), 1: ("B", 1, 0)} and len(line.spans) == 1


# -- what is refused, and in which words ---------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("got", "part"),
    [
        (None, "a list with one list of actions for each rank is wanted, not None"),
        ([[]], "there is 1 list of actions; each of 2 ranks needs one"),
        ([["0F0"], []], "rank 0 has '0F0' in its list; an action is"),
        (rows("1F0|1F0"), "rank 0 runs F of stage 1, micro-batch 0; that stage is on rank 1"),
        (rows("0F0 2F0|1F0"), "rank 0 runs F of stage 2, micro-batch 0; the stages are 0 to 1"),
        (rows("0F0 0F1|1F0"), "rank 0 runs F of stage 0, micro-batch 1; there is only micro-batch 0"),
        (rows("0F0 0F0|1F0"), "rank 0 runs F of stage 0, micro-batch 0 2 times"),
        (rows("0F0|1F0"), "rank 0 never runs B of stage 0, micro-batch 0"),
        (rows("0B0 0F0|1F0 1B0"), "Rank 0 waits at 0B0 for 0F0, which comes later in its own list"),
        (rows("0F0 0B0|1B0 1F0"), "Rank 1 waits at 1B0 for 1F0"),
    ],
)
def test_incomplete_schedules_are_refused(got, part) -> None:
    assert part in refused(schedules.schedule, got, 2, 1, "gpipe")


def test_a_circle_of_waits_is_told_rank_by_rank() -> None:
    got = rows("0F0 0F1 0B0 0B1|1F1 1B1 1F0 1B0")  # each waits for the other's backward
    text = refused(schedules.schedule, [got[0][:1] + got[0][2:3] + got[0][1:2] + got[0][3:], got[1]], 2, 2, "mine")
    assert "Rank 0 waits at 0B0 for 1B0, which comes later in rank 1's list." in text
    assert "Rank 1 waits at 1F1 for 0F1, which comes later in rank 0's list." in text


def test_a_right_schedule_comes_back_with_tuples() -> None:
    got = [[list(action) for action in own] for own in gpipe(2, 3)]
    assert schedules.schedule(got, 2, 3, "gpipe") == gpipe(2, 3)
    schedules.schedule(torch_interleaved(4, 8, 2), 4, 8, "interleaved", chunks=2)


def test_in_flight_and_seconds_say_what_is_possible() -> None:
    one = rows("0F0 0F1 0B0 0F2 0B1 0B2|1F0 1B0 1F1 1B1 1F2 1B2")
    schedules.in_flight(one, [2, 1], "1f1b")
    assert [most_in_flight(own) for own in one] == [2, 1]
    assert "rank 0 has 3 micro-batches in flight at once; 2 are enough. All forwards" in refused(
        schedules.in_flight, gpipe(2, 3), [2, 1], "1f1b"
    )
    assert "One warm-up forward too many?" in refused(schedules.in_flight, one, [1, 1], "1f1b")
    schedules.schedule_seconds(one, 12, "1f1b")
    assert "takes 12, and 11 is possible" in refused(schedules.schedule_seconds, one, 11, "1f1b")


def test_ran_as_told_names_the_first_action_that_differs() -> None:
    told = read_actions("0F0 0F1 0B0 0B1")
    schedules.ran_as_told(told, told, 0, "a step")
    assert "ran 0B1 where its list says 0B0 (action 2)" in refused(
        schedules.ran_as_told, read_actions("0F0 0F1 0B1"), told, 0, "a step"
    )
    assert "never ran 0B1, action 3" in refused(schedules.ran_as_told, told[:3], told, 0, "a step")
    assert "ran 0B1 after the end" in refused(schedules.ran_as_told, told, told[:3], 0, "a step")


def test_held_at_once_lets_one_linger() -> None:
    told = read_actions("0F0 0B0 0F1 0B1 0F2 0B2")
    schedules.held_at_once(2, 0, told, 0, "a step")
    assert "held the activations of 3 micro-batches at once; its schedule needs 1. None" in refused(
        schedules.held_at_once, 3, 0, told, 0, "a step"
    )
    assert "still holds the activations of 1 micro-batches" in refused(schedules.held_at_once, 1, 1, told, 0, "a step")


def test_boundary_traffic_sees_wrong_peers_and_bytes() -> None:
    def send(sizes):
        import torch.distributed as dist

        rank = dist.get_rank()
        for source, target, numel in sizes:
            if rank == source:
                dist.send(torch.zeros(numel), target)
            elif rank == target:
                dist.recv(torch.zeros(numel), source)

    schedule, right = gpipe(3, 1), [(0, 1, 6), (1, 2, 6), (2, 1, 6), (1, 0, 6)]
    schedules.boundary_traffic(launch(send, right, ranks=3).trace, schedule, [2], 12, "a step")
    twice = launch(send, [*right, (0, 1, 6)], ranks=3).trace
    assert "rank 0 sent 48 bytes to rank 1, 2 times the 24" in refused(
        schedules.boundary_traffic, twice, schedule, [2], 12, "a step"
    )
    far = launch(send, [*right, (0, 2, 6)], ranks=3).trace
    assert "rank 0 sent to rank 2; its stages' neighbours are on rank 1" in refused(
        schedules.boundary_traffic, far, schedule, [2], 12, "a step"
    )


# -- stages --------------------------------------------------------------------------------------------------------
def test_stages_one_after_the_other_are_the_model() -> None:
    model = Transformer(TransformerConfig(layers=3, hidden=8, heads=2, max_len=6))
    tokens = torch.randint(256, (2, 6))
    x = tokens
    stages = cut_model(model, [0, 1, 1, 3])
    for stage in stages:
        x = stage(x)
    assert torch.equal(x, model(tokens))
    names = [name for stage in stages for name, _ in stage.named_parameters()]
    assert set(names) - {"head.weight"} == {name for name, _ in model.named_parameters()}


@pytest.mark.parametrize("bounds", [[0, 2], [1, 3], [0, 2, 1, 3], [3]])
def test_bounds_that_do_not_fit_are_refused(bounds) -> None:
    with pytest.raises(ValueError, match="the 3 blocks"):
        cut_model(Transformer(TransformerConfig(layers=3, hidden=8, heads=2)), bounds)


def test_the_log_counts_what_is_alive() -> None:
    log = StageLog()
    stage = log.around(nn.Sequential(nn.Linear(3, 3), nn.GELU()), 5)
    x = torch.ones(2, 3, requires_grad=True)
    kept = [stage(x), stage(x)]
    assert log.held() == log.most_held == 2
    kept.pop().sum().backward()
    assert log.held() == 1
    kept.pop().sum().backward(retain_graph=True)
    assert log.held() == 0 and log.actions() == [("F", 5, 0), ("F", 5, 1), ("B", 5, 1), ("B", 5, 0)]
    assert all(ran.end is None or ran.end >= ran.start for ran in log.ran)


def test_an_output_kept_counts_although_its_graph_is_gone() -> None:
    log = StageLog()
    output = log.around(nn.Linear(3, 3), 0)(torch.ones(2, 3))
    output.sum().backward()
    shown = output.detach()
    del output
    assert log.held() == 1
    del shown
    assert log.held() == 0


def test_logged_stages_have_the_gradients_of_bare_ones() -> None:
    torch.manual_seed(0)
    bare = nn.Linear(3, 3)
    x, weights = torch.randn(4, 3), torch.randn(4, 3)
    (bare(x) * weights).sum().backward()
    want = bare.weight.grad.clone()
    bare.weight.grad = None
    (StageLog().around(bare, 0)(x) * weights).sum().backward()
    assert torch.equal(bare.weight.grad, want)


# -- the picture ---------------------------------------------------------------------------------------------------
def test_the_picture_has_a_box_for_each_action_where_it_runs() -> None:
    line = play(rows("0F0 0F1 0B0 0B1|1F0 1F1 1B0 1B1"))
    ax = draw_schedule(line, title="GPipe")
    boxes = {(p.get_x(), p.get_y() + 0.42, p.get_width()) for p in ax.patches if isinstance(p, Rectangle)}
    for span in line.spans:
        assert any(abs(x - span.start) + abs(y - (1 - span.rank)) + abs(w - (span.end - span.start)) < 1e-9
                   for x, y, w in boxes)  # fmt: skip
    assert "bubble 33% of the total" in ax.get_title(loc="left")
    colors = {to_hex(p.get_facecolor()) for p in ax.patches if isinstance(p, Rectangle)}
    assert len(colors) >= 4  # two micro-batches, forward and backward apart
    assert {t.get_text() for t in ax.texts} >= {"B0", "B1"}
    plt.close("all")
