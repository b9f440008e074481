"""The oracles of quantisation beside torch's own quantisation and brute force; what the checks say."""

from itertools import product

import pytest
import torch

from utils.checks.quantisation import (
    by_definition,
    output_error,
    quantised_holds,
    rounded_in_order,
    same_bits,
)
from utils.engine.lab_parts import OWN, chosen, given


def draw(seed, *shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("bits", [3, 4, 8])
def test_the_definition_is_torchs_per_tensor(bits):
    x, row = draw(bits, 6, 7), by_definition(draw(bits, 6, 7), bits, symmetric=False)
    theirs = torch.fake_quantize_per_tensor_affine(x, float(row["scale"]), int(row["zero"]), 0, 2**bits - 1)
    torch.testing.assert_close(row["back"], theirs)


@pytest.mark.parametrize("dim", [0, 1])
def test_the_definition_is_torchs_per_channel(dim):
    x = draw(7, 5, 6) * torch.logspace(-1, 1, 6)
    row = by_definition(x, 4, dim=dim)
    theirs = torch.fake_quantize_per_channel_affine(x, row["scale"], row["zero"].int(), dim, -7, 7)
    torch.testing.assert_close(row["back"], theirs)


def test_edges_of_the_definition():
    zeros = by_definition(torch.zeros(1, 4), 4, group_size=2)
    assert not zeros["back"].any() and zeros["scale"].tolist() == [[0.0, 0.0]]
    constant = by_definition(torch.full((1, 2), 500.0), 8, symmetric=False)
    assert constant["back"].tolist() == [[500.0, 500.0]]
    tiny = by_definition(torch.tensor([1e-8, -2e-8]), 4, scale_dtype=torch.float16)
    assert float(tiny["scale"]) == 0 and not tiny["q"].any()


def test_rounding_in_order_is_between_nearest_and_the_best_of_all():
    weight, x, scale = draw(1, 3, 6), draw(2, 40, 6) @ draw(3, 6, 6) + 3 * draw(5, 40, 1), torch.full((3, 1), 0.5)
    errors = {slip: output_error(weight, rounded_in_order(weight, x, scale, 4, 1e-6, slip), scale, x)
              for slip in ("", "nearest")}  # fmt: skip
    steps, best = weight / 0.5, 0.0
    for row in steps:
        around = product(*[[float(v.floor()) + k for k in (-1, 0, 1, 2)] for v in row])  # 4096 of them
        best += float((0.5 * (torch.tensor(list(around)) - row) @ x.t()).square().sum(1).min())
    best = (best / float((x @ weight.t()).square().sum())) ** 0.5
    assert best - 1e-6 <= errors[""] < errors["nearest"]


def test_each_input_is_rounded_where_least_squares_put_it():
    weight, x, scale = draw(4, 1, 3), draw(5, 20, 3) @ draw(6, 3, 3), torch.full((1, 1), 0.3)
    q, w, done = rounded_in_order(weight, x, scale, 8, 1e-9), weight.clone()[0].double(), []
    for i in range(3):
        done.append(float((w[i] / 0.3).round()))
        rest = x[:, i + 1 :].double()
        left = x.double() @ weight[0].double() - x[:, : i + 1].double() @ (0.3 * torch.tensor(done).double())
        if i < 2:
            w[i + 1 :] = torch.linalg.lstsq(rest, left[:, None]).solution[:, 0]
    assert q[0].tolist() == done


def test_a_number_halfway_may_go_either_way_and_no_other():
    x = torch.tensor([-1.0, 0.5, 2.0])
    row = by_definition(x, 4)
    either = {**row, "q": torch.tensor([-3, 2, 7], dtype=torch.int8), "zero": row["zero"].to(torch.int8)}
    quantised_holds(either, x, "quantise", 4)
    with pytest.raises(AssertionError, match=r"element \[1\] is 1, wanted 2"):
        quantised_holds({**either, "q": torch.tensor([-4, 1, 7], dtype=torch.int8)}, x, "quantise", 4)
    with pytest.raises(AssertionError, match="NaN or infinity: was something divided by a scale of 0"):
        quantised_holds({**either, "scale": torch.tensor(torch.nan)}, x, "quantise", 4)


def test_bits_are_compared_and_not_values():
    same_bits(torch.tensor([0.1]), torch.tensor([0.1]), "decode", {})
    with pytest.raises(AssertionError, match="1 of 2 numbers have other bits: element 1"):
        same_bits(torch.tensor([0.5, 0.1]) + torch.tensor([0.0, 1e-8]), torch.tensor([0.5, 0.1]), "decode", {})
    with pytest.raises(AssertionError, match="decode: the sign is the other one"):
        same_bits(torch.tensor([-1.0]), torch.tensor([1.0]), "decode",
                  {"the sign is the other one": torch.tensor([-1.0])})  # fmt: skip


def test_parts_of_empty_cells_are_the_engines():
    def empty():
        raise NotImplementedError()

    mine = object()
    assert chosen(empty, lambda: None, dict) == OWN
    assert given(empty, lambda: {"scheduler": mine, "row_linear": None}) == {"scheduler": mine}
    with pytest.raises(ValueError, match="there is no part 'Scheduler'; parts are column_linear"):
        chosen(lambda: {"Scheduler": mine})
