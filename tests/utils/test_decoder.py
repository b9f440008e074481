"""The decoder, held to transformers' Llama with the same random weights, and to rotations by complex numbers."""

from __future__ import annotations

import doctest
import os
from dataclasses import replace

import pytest
import torch

from utils.models import Decoder, DecoderConfig, apply_rope, batches, decoder, train

SMALL = DecoderConfig(vocab_size=50, hidden=24, layers=2, heads=6, kv_heads=2, ffn=40, max_len=32)
UNUSUAL = [
    SMALL,
    replace(SMALL, kv_heads=6, tied=False, rope_theta=100000.0),
    replace(SMALL, kv_heads=1, eps=1e-3, layers=3),
]


def llama(config: DecoderConfig) -> torch.nn.Module:
    """transformers' model of the same sizes, with random weights away from zero, in float64."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    transformers = pytest.importorskip("transformers")
    theirs = transformers.LlamaConfig(
        vocab_size=config.vocab_size, hidden_size=config.hidden, intermediate_size=config.ffn,
        num_hidden_layers=config.layers, num_attention_heads=config.heads, num_key_value_heads=config.kv_heads,
        max_position_embeddings=config.max_len, rms_norm_eps=config.eps, tie_word_embeddings=config.tied,
        rope_parameters={"rope_type": "default", "rope_theta": config.rope_theta},
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(theirs).double()
    for parameter in model.parameters():
        parameter.data.normal_(0.1, 0.3)
    return model


@pytest.mark.parametrize("config", UNUSUAL)
def test_logits_are_those_of_llama(config: DecoderConfig) -> None:
    theirs, ours = llama(config), Decoder(config).double()
    ours.load_state_dict(theirs.state_dict())
    tokens = torch.randint(config.vocab_size, (3, 11))
    positions = torch.arange(11) + torch.tensor([[0], [4], [20]])
    torch.testing.assert_close(ours(tokens), theirs(tokens).logits, rtol=1e-6, atol=1e-6)
    shifted = theirs(tokens, position_ids=positions).logits
    torch.testing.assert_close(ours(tokens, positions), shifted, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("config", UNUSUAL)
def test_parameters_are_counted_and_named_as_llamas(config: DecoderConfig) -> None:
    ours = Decoder(config)
    assert config.num_parameters() == sum(parameter.numel() for parameter in ours.parameters())
    assert set(ours.state_dict()) == set(llama(config).state_dict())


@pytest.mark.parametrize("theta", [10000.0, 500.0])
def test_rope_is_a_product_with_complex_numbers(theta: float) -> None:
    x, positions = torch.randn(2, 3, 5, 8), torch.tensor([[0, 1, 2, 3, 4], [7, 7, 0, 30, 2]])
    angles = positions[:, None, :, None] * theta ** (-torch.arange(4) / 4)
    turned = torch.complex(x[..., :4], x[..., 4:]) * torch.polar(torch.ones_like(angles), angles)
    torch.testing.assert_close(apply_rope(x, positions, theta), torch.cat([turned.real, turned.imag], -1))
    torch.testing.assert_close(apply_rope(x[1, 1], positions[1], theta), apply_rope(x, positions, theta)[1, 1])


def test_rope_depends_on_the_distance_only() -> None:
    q, k = torch.randn(2, 1, 16).double()
    scores = [apply_rope(q, torch.tensor([at + 5])) @ apply_rope(k, torch.tensor([at])).T for at in (0, 3, 90)]
    torch.testing.assert_close(scores[0], scores[1], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(scores[0], scores[2], rtol=1e-5, atol=1e-5)


def test_rope_refuses_positions_that_do_not_fit() -> None:
    with pytest.raises(ValueError, match=r"positions \[4\] do not fit x \[2, 3, 5, 8\]"):
        apply_rope(torch.ones(2, 3, 5, 8), torch.arange(4))
    with pytest.raises(ValueError, match="do not fit"):
        apply_rope(torch.ones(3, 5, 8), torch.zeros(3, 5, dtype=torch.long))


def test_attention_can_be_replaced() -> None:
    model, tokens = Decoder(SMALL), torch.randint(50, (2, 7))
    positions = torch.arange(7) + torch.tensor([[0], [9]])
    seen = []

    def attend(layer, q, k, v, at):
        seen.append((layer, at.tolist(), list(q.shape), list(k.shape), list(v.shape)))
        return decoder.full_attention(layer, q, k, v, at)

    assert torch.equal(model(tokens, positions, attend), model(tokens, positions))
    assert seen == [(layer, positions.tolist(), [2, 6, 7, 4], [2, 2, 7, 4], [2, 2, 7, 4]) for layer in (0, 1)]
    with pytest.raises(ValueError, match=r"attention returned \[2, 2, 7, 4\]"):
        model(tokens, attention=lambda layer, q, k, v, positions: v)


def test_positions_are_below_max_len() -> None:
    with pytest.raises(ValueError, match="position 32; this model knows positions below max_len = 32"):
        Decoder(SMALL)(torch.zeros(1, 1, dtype=torch.long), torch.tensor([32]))
    assert Decoder(SMALL)(torch.zeros(2, 0, dtype=torch.long)).shape == (2, 0, 50)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden": 25}, "does not divide"),
        ({"hidden": 18}, "is odd"),
        ({"kv_heads": 4}, "over kv_heads = 4"),
        ({"layers": 0}, "layers is 0"),
        ({"ffn": 2.5}, "ffn is 2.5"),
        ({"eps": 0.0}, "above 0"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(change: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(SMALL, **change)


def test_it_learns_text() -> None:
    torch.manual_seed(0)
    model = Decoder(DecoderConfig(hidden=32, ffn=88, layers=1))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # a busy machine makes two threads wait for each other
    losses = train(model, batches(16, 32, steps=60), torch.optim.Adam(model.parameters(), lr=1e-2))
    torch.set_num_threads(threads)
    assert losses[0] > 5.4
    assert losses[-1] < 3.2


def test_examples_in_docstrings() -> None:
    assert doctest.testmod(decoder).failed == 0
