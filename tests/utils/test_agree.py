"""`check.agree` says what a wrong tensor looks like, and is silent about a right one."""

from __future__ import annotations

import pytest
import torch

from utils import check
from utils.checks.agree import close

WANT = {"fc.weight": torch.tensor([[1.0, -2.0], [3.0, 0.5]]), "fc.bias": torch.tensor([0.25, -1.0])}
SUSPECTS = {"summed over the 4 ranks but never divided": 4.0, "divided twice by the 4 ranks": 0.25}


def said(got: object, want: object = WANT, **options: object) -> str:
    with pytest.raises(check.CheckFailed) as caught:
        check.agree(got, want, "gradients (p = 4)", **{"suspects": SUSPECTS, **options})
    return str(caught.value)


def with_weight(tensor: object) -> dict:
    return {**WANT, "fc.weight": tensor}


def test_right_values_pass() -> None:
    check.agree(WANT["fc.bias"].clone(), WANT["fc.bias"], "bias")
    check.agree({name: tensor * (1 + 1e-6) for name, tensor in WANT.items()}, WANT, "gradients", suspects=SUSPECTS)
    check.agree({"a": None}, {"a": None}, "not looked at")
    check.agree(torch.zeros(0, 3), torch.zeros(0, 3), "empty")
    check.agree(torch.tensor([torch.inf, 1.0]), torch.tensor([torch.inf, 1.0]), "infinite where it should be")


@pytest.mark.parametrize(
    ("got", "part"),
    [
        ({k: 4 * v for k, v in WANT.items()}, "4 times what is wanted: summed over the 4 ranks but never divided."),
        ({k: 4 * v for k, v in WANT.items()}, "(all 2 tensors are wrong)"),
        (with_weight(WANT["fc.weight"] / 4), '"fc.weight" is 1/4 of what is wanted: divided twice by the 4 ranks.'),
        (with_weight(WANT["fc.weight"] / 4), '(1 of 2 tensors is wrong: "fc.weight")'),
        (with_weight(WANT["fc.weight"] * 1.75), '"fc.weight" is 1.75 times what is wanted. ('),
        (with_weight(-WANT["fc.weight"]), "-1 times what is wanted: the sign is wrong"),
        (with_weight(torch.zeros(2, 2)), '"fc.weight" is exactly 0'),
        (with_weight(None), '"fc.weight" is None'),
        (with_weight([1.0]), '"fc.weight" is list; a tensor is wanted'),
        (with_weight(torch.ones(4)), "has shape (4,), wanted (2, 2)"),
        (with_weight(WANT["fc.weight"].double()), "has type torch.float64, wanted torch.float32"),
        (
            with_weight(torch.tensor([[1.0, -2.0], [torch.nan, 0.5]])),
            "NaN or infinity (1 value of 4, the first at element [1, 0])",
        ),
        (
            with_weight(torch.tensor([[1.0, -2.0], [3.5, 0.6]])),
            "2 of 4 elements; element [1, 0] is 3.5, wanted 3",
        ),
        ({"fc.bias": WANT["fc.bias"]}, '"fc.weight" is missing; there is "fc.bias"'),
        ({**WANT, "head.weight": torch.ones(1)}, '"head.weight" should not be there'),
        ({}, "there are no names at all"),
        (None, "None came back; a dictionary of tensors is wanted"),
    ],
)
def test_each_fault_has_its_sentence(got: object, part: str) -> None:
    message = said(got)
    assert part in message
    assert message.startswith("gradients (p = 4): ")


def test_a_single_number_is_believed_for_named_factors_only() -> None:
    one = torch.tensor(2.0)
    assert "never divided" in said(4 * one, one)
    assert "its value is 6, wanted 2" in said(3 * one, one)


def test_exact_comparison() -> None:
    x = torch.arange(3.0)
    check.agree(x.clone(), x, "moved", rtol=0, atol=0)
    assert "1 of 3 elements" in said(x + torch.tensor([0, 0, 1e-6]), x, rtol=0, atol=0)


def test_zero_may_be_a_suspect() -> None:
    message = said(torch.zeros(2), torch.ones(2), suspects={"its rank's share never arrived": 0.0})
    assert "never arrived" in message


def test_the_closest_suspect_is_named() -> None:
    near = {"wrong": 1.9985, "right": 2.0}
    assert "right" in said(2 * WANT["fc.bias"], WANT["fc.bias"], suspects=near)


def test_other_values_are_recognised() -> None:
    own = torch.tensor([5.0, 7.0])
    likes = {"this rank's own gradient, nothing was reduced": own}
    assert said(own.clone(), WANT["fc.bias"], resembles=likes).endswith(
        "the tensor is not what is wanted: this rank's own gradient, nothing was reduced."
    )
    named = {sentence: {"fc.bias": tensor} for sentence, tensor in likes.items()}
    assert "nothing was reduced" in said({**WANT, "fc.bias": own}, resembles=named)
    assert "nothing was reduced" not in said({**WANT, "fc.bias": own + 1}, resembles=named)


def test_whole_numbers_are_compared_to_the_last_digit() -> None:
    large = torch.tensor([2**60 + 20, 3])
    check.agree(large.clone(), large, "seen")
    assert f"element [0] is {2**60}, wanted {2**60 + 20}" in said(torch.tensor([2**60, 3]), large)
    assert "2 times what is wanted" in said(torch.tensor([2, 4]), torch.tensor([1, 2]), suspects={})


def test_rounding_too_small_to_show_is_named() -> None:
    x = torch.rand(5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert "less precise number type" in said(x.float().double(), x, rtol=1e-12, atol=0)


def test_closeness_does_not_ask_for_the_number_type() -> None:
    assert close(torch.tensor([1, 2]), torch.tensor([1.0, 2.0]), 1e-6, 0)
    assert not close(torch.tensor([1, 3]), torch.tensor([1.0, 2.0]), 1e-6, 0)
    assert not close(torch.tensor([1.0]), torch.tensor([1.0, 1.0]), 1e-6, 0) and not close([1.0], torch.ones(1), 1, 1)
