"""Drawing: the probabilities are those of transformers' warpers, the draws follow them, and a seed repeats them."""

from __future__ import annotations

import importlib.util
from collections import Counter

import pytest
import torch

from utils.engine.sampling import Asked, draw, next_token_probabilities

LOGITS = torch.randn(4, 50, generator=torch.Generator().manual_seed(0)) * 3


@pytest.mark.heavy
@pytest.mark.skipif(importlib.util.find_spec("transformers") is None, reason="needs transformers, a dev package")
@pytest.mark.parametrize("temperature, top_k, top_p", [(1, None, 1), (0.3, None, 0.9), (2, 5, 1), (1.5, 7, 0.6)])
def test_probabilities_are_those_of_transformers(temperature: float, top_k: int | None, top_p: float) -> None:
    from transformers import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

    scores = TemperatureLogitsWarper(float(temperature))(None, LOGITS)
    scores = TopKLogitsWarper(top_k)(None, scores) if top_k else scores
    scores = TopPLogitsWarper(float(top_p))(None, scores) if top_p < 1 else scores
    torch.testing.assert_close(next_token_probabilities(LOGITS, temperature, top_k, top_p), scores.softmax(-1))


def test_temperature_zero_and_a_tiny_top_p_take_the_largest() -> None:
    for given in ({"temperature": 0}, {"top_p": 1e-9}):
        assert torch.equal(next_token_probabilities(LOGITS, **given).argmax(-1), LOGITS.argmax(-1))
        assert next_token_probabilities(LOGITS, **given).max(-1).values.tolist() == [1.0] * 4


def test_draws_follow_the_probabilities_and_a_seed_repeats_them() -> None:
    logits = torch.tensor([0.6, 0.3, 0.1]).log()
    one, again = (Asked(0, [1], 1, temperature=1.0, seed=4) for _ in range(2))
    drawn = [draw(logits, one) for _ in range(4000)]
    assert drawn == [draw(logits, again) for _ in range(4000)]
    for token, share in enumerate([0.6, 0.3, 0.1]):
        assert abs(Counter(drawn)[token] / 4000 - share) < 0.04  # five standard deviations
    other = Asked(0, [1], 1, temperature=1.0, seed=5)
    assert drawn[:50] != [draw(logits, other) for _ in range(50)]


@pytest.mark.parametrize("given, said", [
    ({"temperature": -1}, "temperature is -1"), ({"temperature": float("nan")}, "temperature is nan"),
    ({"top_p": 0}, "top_p is 0"), ({"top_p": 1.1}, "top_p is 1.1"), ({"top_k": 0}, "top_k is 0"),
])  # fmt: skip
def test_what_cannot_be_is_refused(given: dict, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Asked(0, [1], 1, **given)
