"""Checks of many dimensions: silent about what is right, and each mistake has its sentence."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from utils.checks import meshes
from utils.checks.failed import CheckFailed


def said(function, *args: object, **options: object) -> str:
    with pytest.raises(CheckFailed) as caught:
        function(*args, **options)
    return str(caught.value)


def trace_of(*calls: list[str]) -> SimpleNamespace:
    """A journal in which rank r called new_group for `calls[r]`, such as "0,1"."""
    events = [[SimpleNamespace(op="new_group", extra=ranks) for ranks in own] for own in calls]
    return SimpleNamespace(ranks=len(calls), of=lambda rank: events[rank])


PAIRS = [[0, 1], [2, 3], [0, 2], [1, 3]]
ALL = ["0,1", "2,3", "0,2", "1,3"]


def test_groups() -> None:
    meshes.groups_made(trace_of(*[ALL] * 4), PAIRS, "make_groups")
    meshes.groups_made(trace_of(*[["0", "0,1,2,3", *ALL]] * 4), [[0], [0, 1, 2, 3], *PAIRS], "make_groups")
    assert "no rank called dist.new_group" in said(meshes.groups_made, trace_of(*[[]] * 4), PAIRS, "make_groups")
    members = trace_of(["0,1", "0,2"], ["0,1", "1,3"], ["2,3", "0,2"], ["2,3", "1,3"])
    text = said(meshes.groups_made, members, PAIRS, "make_groups")
    assert "ranks 2 and 3 never called new_group for [0, 1]: every rank makes every group" in text
    turned = trace_of(ALL, ALL, ALL, ALL[::-1])
    assert "call 1 of new_group is for other ranks on rank 3" in said(meshes.groups_made, turned, PAIRS, "make_groups")


def test_a_number_that_all_ranks_share() -> None:
    likes = {"counted twice": 4.0}
    meshes.ranks_agree_on([2.0, 2.0], 2.0, "norm", likes, 1e-9)
    assert said(meshes.ranks_agree_on, [2.0, 4.0], 2.0, "norm", likes, 1e-9) == (
        "norm: rank 1 has 4, wanted 2: counted twice."
    )
    assert "rank 0 has 3, wanted 2; rank 1 has 2" in said(meshes.ranks_agree_on, [3.0, 2.0], 2.0, "norm", likes, 1e-9)
    assert "returned NoneType; a number" in said(meshes.ranks_agree_on, [None], 2.0, "norm", likes, 1e-9)


def test_losses() -> None:
    meshes.losses([[5.0, 3.0]] * 2, [5.0, 3.0], "step", 1e-9)
    assert "Step 1 is right, so the update is not" in said(meshes.losses, [[5.0, 4.0]], [5.0, 3.0], "step", 1e-9)
    zero = said(meshes.losses, [[5.0], [0.0]], [5.0], "step", 1e-9)
    assert "on rank 1 is 0" in zero and "that only the last stage knows" in zero
    assert "2 times that: the mean" in said(meshes.losses, [[10.0]], [5.0], "step", 1e-9)
    clip = {"The gradients were not clipped.": [5.0, 4.0]}
    assert said(meshes.losses, [[5.0, 4.0]], [5.0, 3.0], "step", 1e-9, lambda: clip).endswith("were not clipped.")
    assert "a number (the loss) is wanted" in said(meshes.losses, [[None]], [5.0], "step", 1e-9)


def test_what_is_written() -> None:
    want = {"w": torch.ones(4), "step": torch.tensor(2.0)}
    meshes.written_once([{"w": torch.ones(4)}, {}, {"step": torch.tensor(2.0)}], want, "save", 1e-9)
    assert "nobody writes" in said(meshes.written_once, [{"w": torch.ones(4)}], want, "save", 1e-9)
    assert 'written by ranks 0 and 1' in said(meshes.written_once, [want, want], want, "save", 1e-9)
    shard = [{**want, "w": torch.ones(2)}]
    assert "this is one rank's shard" in said(meshes.written_once, shard, want, "save", 1e-9)
    assert "rank 1 returned NoneType" in said(meshes.written_once, [want, None], want, "save", 1e-9)
    assert '"w"' in said(meshes.written_once, [{**want, "w": torch.zeros(4)}], want, "save", 1e-9)


def test_a_split() -> None:
    legal = {(4, 1, 1, 1): 3.0, (2, 2, 1, 4): 2.0}
    meshes.split_found((2, 2, 1, 4), legal, str, "split")
    meshes.split_found(None, {}, str, "split")
    assert "there is a legal split that takes 2 s" in said(meshes.split_found, (4, 1, 1, 1), legal, str, "split")
    assert "there are 2 legal splits" in said(meshes.split_found, None, legal, str, "split")
    text = said(meshes.split_found, (1, 4, 1, 2), legal, lambda split: "too large.", "split")
    assert text == "split: (dp 1, pp 4, tp 1, 2 micro-batches) is not legal: too large."
    assert "a Split, or None, is wanted" in said(meshes.split_found, (1.5, 2, 1, 1), legal, str, "split")


def test_bytes_along_an_axis() -> None:
    meshes.axis_bytes({"dp": 64, "tp": 8}, {"tp": (8, "a count"), "pp": (0, "nothing")}, "sync")
    text = said(meshes.axis_bytes, {"tp": 64}, {"tp": (8, "a count")}, "sync", 2)
    assert text == "sync: rank 2 sent 64 bytes along tp; 8 are enough (a count)."
    meshes.axis_needs({"dp": 64}, {"dp": (64, "gradients"), "pp": (0, "nothing")}, "sync, rank 1")
    text = said(meshes.axis_needs, {"tp": 64}, {"dp": (64, "gradients")}, "sync, rank 1")
    assert text.startswith("sync, rank 1: 0 bytes came along dp, and it needs 64 (gradients)")
