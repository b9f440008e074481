"""Lab 04 beside torch's own FSDP2: what it demands of stage 3, and what its reference does, are FSDP2's parameters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from autograder.sources.cells import read_source
from utils import check, launch

LAB = Path(__file__).parents[2] / "solutions" / "lab04_zero.py"
STEPS = 2


def lab() -> dict[str, Any]:
    """What the lab's shared cells and its reference define."""
    names: dict[str, Any] = {"__name__": "__main__"}
    for cell in read_source(LAB).of_kind("shared", "solution"):
        exec(compile(cell.text, f"<lab04 {cell.name}>", "exec"), names)
    return names


def train_fully_sharded(build, batch, my_rows, config, lr):
    from torch.distributed.fsdp import fully_shard

    model, history = build(config), []
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
    for step in range(STEPS):
        model.loss(*(my_rows(part) for part in batch(config, step))).backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= lr * parameter.grad
                parameter.grad = None
        history.append({name: parameter.full_tensor().detach() for name, parameter in model.named_parameters()})
    return history


def train_stage_3(train_sharded, ZeroThree, sgd, config):
    def make_zero(model):
        return ZeroThree(model, list(model.blocks), sgd)

    return train_sharded(make_zero, config, STEPS, values=lambda zero: zero.full_parameters())


def test_stage_3_has_the_parameters_of_fsdp2() -> None:
    own, ranks = lab(), 3
    config = own["ODDER"]
    theirs = launch(train_fully_sharded, own["build"], own["batch"], own["my_rows"], config, own["LR"], ranks=ranks)
    ours = launch(train_stage_3, own["train_sharded"], own["ZeroThree"], own["sgd"], config, ranks=ranks)
    _, *demanded = own["one_process"](config, own["torch_sgd"], STEPS)
    for rank in range(ranks):
        for step in range(STEPS):
            where = f"p = {ranks}, rank {rank}, after step {step + 1}"
            wanted = theirs.values[rank][step]
            check.agree(demanded[step], wanted, f"one process, {where}", rtol=1e-4, atol=1e-5)
            check.agree(ours.values[rank][step], wanted, f"ZeroThree, {where}", rtol=1e-4, atol=1e-5)
