"""What code ran: seen by its files, and only while it was looked for."""

from __future__ import annotations

import sys

import pytest
import torch

from utils.checks.by_hand import watched, written_without
from utils.checks.failed import CheckFailed


def test_files_that_ran_are_seen_and_others_are_not() -> None:
    weight = torch.nn.Parameter(torch.ones(2))
    weight.grad = torch.ones(2)
    optimizer = torch.optim.SGD([weight], lr=0.5)
    value, files = watched(lambda scale: (optimizer.step(), scale)[1], 3)
    assert value == 3 and "torch/optim/sgd.py" in files and "torch/optim/adam.py" not in files
    with pytest.raises(CheckFailed, match=r"^step ran code of torch/optim/\w+.py; write it yourself, without.$"):
        written_without(files, ["torch/optim/"], "step")
    written_without(files, ["torch/amp/"], "step")
    assert "torch/optim/sgd.py" not in watched(lambda: weight * 2)[1]


def test_watching_ends_with_an_error_too() -> None:
    with pytest.raises(ZeroDivisionError):
        watched(lambda: 1 / 0)
    assert sys.getprofile() is None
