"""What lab 08 holds students to is what transformers gives: sampling, left padding, a sliding window."""

from __future__ import annotations

import os
from itertools import product
from pathlib import Path

import pytest
import torch

from autograder.sources.cells import read_source

LAB = Path(__file__).parents[2] / "solutions" / "lab08_kv_cache.py"


@pytest.fixture(scope="module")
def lab() -> dict:
    """The names of the lab's shared cells."""
    names: dict = {"__name__": "__main__"}
    for cell in read_source(LAB).of_kind("shared"):
        exec(compile(cell.text, f"<{cell.name}>", "exec"), names)
    return names


@pytest.fixture(scope="module")
def transformers():
    os.environ["HF_HUB_OFFLINE"] = "1"
    return pytest.importorskip("transformers")


def test_sampling_is_that_of_transformers_warpers(lab: dict, transformers) -> None:
    from transformers.generation import logits_process

    torch.manual_seed(0)
    for temperature, top_k, top_p in product((0.5, 1.0, 2.0), (None, 1, 3, 40), (1.0, 0.9, 0.35, 1e-4)):
        logits = 3 * torch.randn(30)
        scores = logits_process.TemperatureLogitsWarper(temperature)(None, logits[None])
        if top_k:
            scores = logits_process.TopKLogitsWarper(top_k)(None, scores)
        if top_p < 1:
            scores = logits_process.TopPLogitsWarper(top_p)(None, scores)
        ours = lab["kept_probabilities"](logits.tolist(), temperature, top_k, top_p)
        torch.testing.assert_close(ours, scores.softmax(-1)[0], rtol=1e-4, atol=1e-6)


def theirs(lab: dict, kind: type, config: type, **options) -> tuple[torch.nn.Module, torch.nn.Module]:
    """The lab's model, and transformers' of the same sizes and weights."""
    small = lab["SMALL"]
    ours = lab["model_of"](small, 3)
    model = kind(config(
        vocab_size=small.vocab_size, hidden_size=small.hidden, intermediate_size=small.ffn,
        num_hidden_layers=small.layers, num_attention_heads=small.heads, num_key_value_heads=small.kv_heads,
        max_position_embeddings=small.max_len, rms_norm_eps=small.eps, tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": small.rope_theta}, **options,
    ))  # fmt: skip
    model.load_state_dict(ours.state_dict())
    return ours, model.eval()


@torch.no_grad()
def test_a_row_with_padding_is_transformers_row(lab: dict, transformers) -> None:
    ours, model = theirs(lab, transformers.LlamaForCausalLM, transformers.LlamaConfig)
    tokens = lab["draw_tokens"](4, 2, 6)
    mask = torch.tensor([[0, 0, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1]])
    positions = torch.tensor([[-1, -1, 0, 1, 2, 3], [0, 1, 2, 3, 4, 5]])
    want = model(tokens, attention_mask=mask, position_ids=positions.clamp(min=0)).logits
    got = lab["full_logits"](ours, tokens, positions, lab["may_see"](positions.tolist(), positions.tolist()))
    torch.testing.assert_close(got[mask > 0], want[mask > 0], rtol=1e-4, atol=1e-4)


@torch.no_grad()
@pytest.mark.parametrize("window", [1, 3, 50])
def test_a_window_is_transformers_window(lab: dict, transformers, window: int) -> None:
    ours, model = theirs(
        lab, transformers.MistralForCausalLM, transformers.MistralConfig, sliding_window=window, head_dim=8
    )
    tokens, places = lab["draw_tokens"](5, 1, 9), [list(range(9))]
    got = lab["full_logits"](ours, tokens, torch.arange(9), lab["may_see"](places, places, window))
    torch.testing.assert_close(got, model(tokens).logits, rtol=1e-4, atol=1e-4)
