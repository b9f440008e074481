"""`check.outcome` and `check.count`: right results pass, known mistakes are named, others are told as they are."""

from __future__ import annotations

import pytest
import torch

from utils import check

WANT = torch.tensor([300.0, 8.0, 7.0])
STALLED = torch.tensor([256.0, 8.0, 7.0])
SHIFTED = torch.tensor([300.0, 8.0, 6.0])
MISTAKES = {"it stalls at 256": STALLED, "the last one is one too small": SHIFTED}


def said(got: object, mistakes: object = MISTAKES, want: torch.Tensor = WANT, **options: float) -> str:
    with pytest.raises(check.CheckFailed) as caught:
        check.outcome(got, want, "the sum", mistakes, **options)
    return str(caught.value)


def test_a_right_tensor_passes_and_no_mistake_is_worked_out() -> None:
    def never():
        raise RuntimeError("worked out for nothing")

    check.outcome(WANT.clone(), WANT, "the sum", never)
    check.outcome(WANT * (1 + 1e-6), WANT, "the sum", MISTAKES)
    check.outcome(WANT + 0.4, WANT, "the sum", MISTAKES, atol=0.5)
    check.outcome(torch.zeros(0), torch.zeros(0), "nothing", {})


def test_the_mistake_that_gives_the_result_is_named_with_the_first_wrong_element() -> None:
    assert said(STALLED.clone()) == "the sum: it stalls at 256 (the first element is 256, wanted 300)."
    assert said(SHIFTED.clone()) == "the sum: the last one is one too small (element 2 is 6, wanted 7)."


def test_mistakes_may_be_worked_out_late() -> None:
    assert "it stalls at 256" in said(STALLED.clone(), lambda: MISTAKES)


def test_a_mistake_that_does_no_harm_here_is_passed_over() -> None:
    assert "stalls" in said(STALLED.clone(), {"harmless": WANT.clone(), **MISTAKES})
    assert "harmless" not in said(WANT + 1, {"harmless": WANT.clone()})


def test_what_no_mistake_explains_is_told_as_it_is() -> None:
    assert "element [1] is 9, wanted 8" in said(torch.tensor([300.0, 9.0, 7.0]))
    assert "2 times what is wanted" in said(2 * WANT)
    assert "None" in said(None)
    assert "shape (2,)" in said(torch.ones(2))


@pytest.mark.parametrize("spoilt", [STALLED.double(), STALLED.long(), STALLED[:2], [256.0, 8.0, 7.0]])
def test_a_mistake_is_recognised_in_its_own_form_only(spoilt: object) -> None:
    assert "stalls" not in said(spoilt)


def test_nan_and_infinity_can_be_a_mistake() -> None:
    overflow = torch.tensor([torch.inf, 8.0, 7.0])
    assert "it overflows" in said(overflow.clone(), {"it overflows": overflow})
    assert "NaN or infinity" in said(torch.tensor([torch.nan, 8.0, 7.0]))


def test_closeness_is_that_of_the_call() -> None:
    near = WANT + 0.01
    assert "near" in said(near.clone(), {"near": near}, rtol=0, atol=1e-3)
    check.outcome(near, WANT, "the sum", {"near": near}, rtol=0, atol=0.1)


NUMBERS = {"the tied matrix is in it twice": 2000, "biases are missing": 990}


def counted(got: object, mistakes: object = NUMBERS, want: float = 1000, unit: str = "bytes", **options: float) -> str:
    with pytest.raises(check.CheckFailed) as caught:
        check.count(got, want, "weights", unit, mistakes, **options)
    return str(caught.value)


def test_a_right_number_passes_and_no_mistake_is_worked_out() -> None:
    check.count(1000, 1000, "weights", "bytes", lambda: 1 / 0)
    check.count(1000.0001, 1000, "weights", "bytes", NUMBERS)
    check.count(1040, 1000, "weights", "bytes", NUMBERS, rel=0.05)


def test_the_mistake_that_gives_the_number_is_named() -> None:
    assert counted(2000) == "weights is 2000 bytes, wanted 1000: the tied matrix is in it twice."
    assert counted(990, lambda: NUMBERS) == "weights is 990 bytes, wanted 1000: biases are missing."
    assert counted(990, unit="") == "weights is 990, wanted 1000: biases are missing."


def test_of_several_that_fit_the_nearest_is_told() -> None:
    both = {"far": 2100, "near": 2001}
    assert counted(2000, both, rel=0.1).endswith("near.")


def test_a_mistake_that_gives_the_right_number_is_passed_over() -> None:
    assert "harmless" not in counted(2000, {"harmless": 1000, **NUMBERS})
    assert "harmless" not in counted(1500, {"harmless": 1000})


def test_a_number_that_no_mistake_explains() -> None:
    assert counted(1234).startswith("weights is 1234 bytes, wanted 1000")
    assert counted(1234, unit="") == "weights is 1234, wanted 1000."
    assert "4 times too large" in counted(4000)
    assert "the reciprocal" in counted(1e-3)


@pytest.mark.parametrize("got", [None, "1000", [1000], True, float("nan"), float("inf")])
def test_what_is_no_number_is_told_so(got: object) -> None:
    assert "a finite number of bytes is wanted" in counted(got)
