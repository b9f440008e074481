"""Work counts what torch's own counter counts, and the fused attention of the CPU besides."""

from __future__ import annotations

import doctest

import pytest
import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

from utils import work
from utils.models import Decoder, DecoderConfig
from utils.work import Work

MODEL = Decoder(DecoderConfig(hidden=24, heads=6, kv_heads=2, ffn=40, vocab_size=50))
LINEAR = sum(p.numel() for p in MODEL.parameters() if p.dim() == 2)


def plainly(layer, q, k, v, positions):
    k, v = k.repeat_interleave(3, 1), v.repeat_interleave(3, 1)
    return (q @ k.mT).softmax(-1) @ v


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_products_are_counted_as_torch_does(mode) -> None:
    tokens = torch.randint(50, (2, 7))
    with mode(), Work() as seen, FlopCounterMode(display=False) as theirs:
        MODEL(tokens, attention=plainly)
    assert seen.flops == theirs.get_total_flops() == 2 * LINEAR * 14 + 4 * 2 * 2 * 24 * 7 * 7
    assert seen.weight_flops == 2 * LINEAR * 14


@pytest.mark.parametrize("mask", [None, torch.ones(5, 9, dtype=torch.bool)])
@pytest.mark.parametrize("kv_heads", [6, 2])
def test_fused_attention_is_counted(kv_heads: int, mask: torch.Tensor | None) -> None:
    q, k = torch.randn(2, 6, 5, 8), torch.randn(2, kv_heads, 9, 8)
    with torch.no_grad(), Work() as seen:
        F.scaled_dot_product_attention(q, k, k, attn_mask=mask, enable_gqa=True)
    assert seen.flops == 4 * 2 * 6 * 5 * 9 * 8


def test_the_backward_pass_is_counted() -> None:
    with Work() as seen:
        MODEL(torch.randint(50, (2, 7)), attention=plainly).sum().backward()
    assert seen.weight_flops > 2 * (2 * LINEAR * 14)


def test_bytes_read_are_those_of_what_is_multiplied() -> None:
    x, w = torch.ones(1, 3), torch.ones(3, 5)
    with Work() as seen:
        x.expand(2, 3) @ w
        torch.relu(w)
    assert seen.bytes_read == 4 * (3 + 15)
    assert seen.operators == {"expand": 1, "mm": 1, "relu": 1}


def test_example_in_the_docstring() -> None:
    assert doctest.testmod(work).failed == 0
