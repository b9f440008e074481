"""Lab 11's oracles are what transformers' own layers of experts compute: two sources, one result."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from autograder.sources.cells import read_source

LAB = Path(__file__).resolve().parents[2] / "solutions" / "lab11_moe.py"
E, K, H, FFN = 5, 2, 6, 4


@pytest.fixture
def oracles():
    """What the lab's shared cells define, but with the gated experts that transformers' layers have."""
    names: dict = {}
    for cell in read_source(LAB).of_kind("shared"):
        exec(cell.text, names)

    def gated(rows, up, up_bias, down, down_bias):
        gate, value = F.linear(rows, up, up_bias).chunk(2, -1)
        return F.linear(F.silu(gate) * value, down, down_bias)

    names["expert"] = gated
    return names


def layer(kind: str, again: bool):
    if kind == "mixtral":
        from transformers.models.mixtral.modeling_mixtral import MixtralConfig as Config
        from transformers.models.mixtral.modeling_mixtral import MixtralSparseMoeBlock as Block

        config = Config(hidden_size=H, intermediate_size=FFN, num_local_experts=E, num_experts_per_tok=K)
    else:
        from transformers.models.olmoe.modeling_olmoe import OlmoeConfig as Config
        from transformers.models.olmoe.modeling_olmoe import OlmoeSparseMoeBlock as Block

        config = Config(hidden_size=H, intermediate_size=FFN, num_experts=E, num_experts_per_tok=K)
        config.norm_topk_prob = again
    config._experts_implementation = "eager"
    block = Block(config)
    with torch.no_grad():
        for seed, parameter in enumerate(block.parameters()):
            parameter.copy_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(seed)))
    return block


@pytest.mark.parametrize(("kind", "again"), [("mixtral", True), ("olmoe", False), ("olmoe", True)])
def test_values_and_gradients_are_those_of_transformers(oracles, kind, again):
    pytest.importorskip("transformers")
    block = layer(kind, again)
    x = torch.randn(7, H, generator=torch.Generator().manual_seed(9)).requires_grad_()
    up = torch.randn(7, H, generator=torch.Generator().manual_seed(10))
    theirs = block(x[None])
    theirs = (theirs[0] if isinstance(theirs, tuple) else theirs)[0]
    parameters = [block.gate.weight, block.experts.gate_up_proj, block.experts.down_proj]
    wanted = torch.autograd.grad((theirs * up).sum(), [x, *parameters])

    case = {"up": parameters[1], "up_bias": torch.zeros(E, 2 * FFN)}
    case |= {"down": parameters[2], "down_bias": torch.zeros(E, H)}
    ours = oracles["mixed"](x, oracles["picked"](x @ parameters[0].t(), K, again), case)
    torch.testing.assert_close(ours, theirs)
    for got, want in zip(torch.autograd.grad((ours * up).sum(), [x, *parameters]), wanted, strict=True):
        torch.testing.assert_close(got, want)


def test_the_balance_loss_is_that_of_transformers_divided_by_k(oracles):
    mixtral = pytest.importorskip("transformers.models.mixtral.modeling_mixtral")
    logits = torch.randn(11, E, generator=torch.Generator().manual_seed(3))
    theirs = mixtral.load_balancing_loss_func((logits,), E, K)
    ours = oracles["balance_of"](logits, logits.topk(K).indices)
    torch.testing.assert_close(ours.float(), theirs / K)
