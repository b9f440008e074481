"""The small Transformer, its text and its training loop, held to torch's own modules and to sums written out."""

from __future__ import annotations

import math
from itertools import product
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from utils.models import IGNORED, Attention, FeedForward, Transformer, TransformerConfig, batches, stdlib_bytes, train
from utils.models import text as texts

SMALL = {"hidden": 24, "heads": 6, "layers": 2, "vocab_size": 50, "max_len": 12}


def filled(module: nn.Module, seed: int = 0) -> nn.Module:
    """The module in float64 with every parameter, biases too, away from zero."""
    generator = torch.Generator().manual_seed(seed)
    module.double()
    for parameter in module.parameters():
        parameter.data.normal_(0, 0.3, generator=generator)
    return module


@pytest.mark.parametrize(("gated", "tied", "kv_heads", "bias"), list(product((0, 1), (0, 1), (None, 2, 1), (0, 1))))
def test_parameters_are_counted(gated: bool, tied: bool, kv_heads: int | None, bias: bool) -> None:
    config = TransformerConfig(**SMALL, gated=bool(gated), tied=bool(tied), kv_heads=kv_heads, bias=bool(bias), ffn=40)
    assert config.num_parameters() == sum(p.numel() for p in Transformer(config).parameters())


def test_example_in_the_docstring() -> None:
    assert TransformerConfig(hidden=8, layers=1, heads=2, vocab_size=10, max_len=4).num_parameters() == 1000


@pytest.mark.parametrize("kv_heads", [6, 3, 2, 1])
def test_attention_is_torchs(kv_heads: int) -> None:
    config = TransformerConfig(**SMALL, kv_heads=kv_heads)
    ours = filled(Attention(config))
    theirs = nn.MultiheadAttention(24, 6, batch_first=True, dtype=torch.float64)
    group = 6 // kv_heads

    def widened(weight: torch.Tensor) -> torch.Tensor:
        return weight.unflatten(0, (kv_heads, 4)).repeat_interleave(group, 0).flatten(0, 1)

    parts = [ours.q_proj, ours.k_proj, ours.v_proj]
    theirs.in_proj_weight.data = torch.cat([parts[0].weight, *(widened(p.weight) for p in parts[1:])]).detach()
    theirs.in_proj_bias.data = torch.cat([parts[0].bias, *(widened(p.bias) for p in parts[1:])]).detach()
    theirs.out_proj.load_state_dict(ours.o_proj.state_dict())
    x = torch.randn(2, 7, 24, dtype=torch.float64)
    mask = nn.Transformer.generate_square_subsequent_mask(7, dtype=torch.float64)
    torch.testing.assert_close(ours(x), theirs(x, x, x, attn_mask=mask, need_weights=False)[0])


@pytest.mark.parametrize("kv_heads", [6, 2])
def test_written_out_and_fused_attention_agree(kv_heads: int) -> None:
    plain, fused = (Attention(TransformerConfig(**SMALL, kv_heads=kv_heads, fused_attention=f)) for f in (False, True))
    filled(plain), fused.double().load_state_dict(plain.state_dict())
    x = torch.randn(2, 7, 24, dtype=torch.float64, requires_grad=True)
    wanted = torch.randn(2, 7, 24, dtype=torch.float64)
    grads = [torch.autograd.grad((m(x) * wanted).sum(), [x, *m.parameters()]) for m in (plain, fused)]
    torch.testing.assert_close(*grads)


def test_a_block_is_torchs_encoder_layer() -> None:
    config = TransformerConfig(**SMALL)
    block = filled(Transformer(config)).blocks[0]
    theirs = nn.TransformerEncoderLayer(24, 6, 96, dropout=0.0, activation="gelu", batch_first=True, norm_first=True)
    theirs.double()
    a = block.attention
    theirs.self_attn.in_proj_weight.data = torch.cat([m.weight.data for m in (a.q_proj, a.k_proj, a.v_proj)])
    theirs.self_attn.in_proj_bias.data = torch.cat([m.bias.data for m in (a.q_proj, a.k_proj, a.v_proj)])
    pairs = [(theirs.self_attn.out_proj, a.o_proj), (theirs.linear1, block.feed_forward.up)]
    pairs += [(theirs.linear2, block.feed_forward.down), (theirs.norm1, block.norm1), (theirs.norm2, block.norm2)]
    for to, source in pairs:
        to.load_state_dict(source.state_dict())
    x = torch.randn(3, 9, 24, dtype=torch.float64)
    mask = nn.Transformer.generate_square_subsequent_mask(9, dtype=torch.float64)
    torch.testing.assert_close(block(x), theirs(x, src_mask=mask))


def test_gated_feed_forward_is_the_papers() -> None:
    ffn = filled(FeedForward(TransformerConfig(**SMALL, gated=True, ffn=40)))
    x = torch.randn(5, 24, dtype=torch.float64)
    gate, up = x @ ffn.gate.weight.T + ffn.gate.bias, x @ ffn.up.weight.T + ffn.up.bias
    torch.testing.assert_close(ffn(x), (gate * torch.sigmoid(gate) * up) @ ffn.down.weight.T + ffn.down.bias)


def test_no_token_sees_a_later_one() -> None:
    model = filled(Transformer(TransformerConfig(**SMALL, kv_heads=2, gated=True)))
    tokens = torch.randint(50, (2, 12))
    changed = tokens.clone()
    changed[:, 7] = (changed[:, 7] + 1) % 50
    before, after = model(tokens), model(changed)
    assert torch.equal(before[:, :7], after[:, :7]) and not torch.allclose(before[:, 7:], after[:, 7:])


def test_tied_is_one_tensor_with_one_gradient() -> None:
    tied = filled(Transformer(TransformerConfig(**SMALL)))
    apart = Transformer(TransformerConfig(**SMALL, tied=False)).double()
    apart.load_state_dict(tied.state_dict())
    tokens, targets = torch.randint(50, (2, 2, 12))
    for model in (tied, apart):
        model.loss(tokens, targets).backward()
    assert tied.head.weight is tied.embedding.weight
    torch.testing.assert_close(tied.head.weight.grad, apart.head.weight.grad + apart.embedding.weight.grad)


def test_loss_leaves_out_ignored_targets() -> None:
    model = filled(Transformer(TransformerConfig(**SMALL)))
    tokens, targets = torch.randint(50, (2, 2, 12))
    targets[0, 3:] = IGNORED
    logs = F.log_softmax(model(tokens), -1)
    counted = [-logs[b, s, targets[b, s]] for b in range(2) for s in range(12) if targets[b, s] != IGNORED]
    torch.testing.assert_close(model.loss(tokens, targets, "sum"), sum(counted))
    torch.testing.assert_close(model.loss(tokens, targets), sum(counted) / 15)


def test_dropout_acts_in_training_only() -> None:
    model = Transformer(TransformerConfig(**SMALL, dropout=0.5))
    tokens = torch.randint(50, (2, 12))
    assert not torch.equal(model(tokens), model(tokens))
    model.eval()
    assert torch.equal(model(tokens), model(tokens))


def test_weights_start_as_gpt2s() -> None:
    torch.manual_seed(0)
    model = Transformer(TransformerConfig(hidden=128, heads=4, layers=8))
    block = model.blocks[3]
    assert block.feed_forward.up.weight.std().item() == pytest.approx(0.02, rel=0.05)
    assert block.feed_forward.down.weight.std().item() == pytest.approx(0.02 / 4, rel=0.05)
    assert model.head.weight.std().item() == pytest.approx(0.02, rel=0.05)
    assert block.attention.q_proj.bias.abs().max() == 0 and block.norm1.weight.eq(1).all()


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"hidden": 30, "heads": 4}, "hidden = 30 does not divide into heads = 4"),
        ({"heads": 6, "kv_heads": 4, "hidden": 24}, "heads = 6 do not divide into groups over kv_heads = 4"),
        ({"layers": 0}, "layers is 0"),
        ({"dropout": 1.0}, "dropout = 1.0"),
    ],
)
def test_sizes_that_cannot_be_are_refused(wrong: dict, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        TransformerConfig(**wrong)


def test_a_sequence_that_is_too_long_is_refused() -> None:
    with pytest.raises(ValueError, match="13 tokens; this model takes at most max_len = 12"):
        Transformer(TransformerConfig(**SMALL))(torch.zeros(1, 13, dtype=torch.long))


# -- text --------------------------------------------------------------------------------------------------------------
def test_text_is_the_standard_librarys() -> None:
    text = bytes(stdlib_bytes(2**20).tolist())
    assert text.count(b"import ") > 100 and text.count(b"\n    def ") > 100
    assert torch.equal(stdlib_bytes(100), stdlib_bytes(2**20)[:100]) and stdlib_bytes(0).numel() == 0
    with pytest.raises(ValueError, match="bytes of text were asked for"):
        stdlib_bytes(10**9)


def test_a_link_among_its_files_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.py").write_bytes(b"x" * 2**20)
    (tmp_path / "sitecustomize.py").symlink_to(tmp_path / "nowhere.py")
    monkeypatch.setattr(texts.sysconfig, "get_path", lambda name: str(tmp_path))
    assert texts._library.__wrapped__() == b"x" * 2**20


def test_batches_are_windows_of_it() -> None:
    text = bytes(stdlib_bytes(4096).tolist())
    drawn = list(batches(3, 20, steps=4, seed=5, text_bytes=4096))
    assert len(drawn) == 4
    for tokens, targets in drawn:
        assert tokens.shape == targets.shape == (3, 20) and tokens.dtype == torch.long
        assert all(bytes([*a.tolist(), b[-1].item()]) in text for a, b in zip(tokens, targets, strict=True))
        assert torch.equal(tokens[:, 1:], targets[:, :-1])
    again, other = (list(batches(3, 20, steps=4, seed=s, text_bytes=4096)) for s in (5, 6))
    assert all(torch.equal(a[0], b[0]) for a, b in zip(drawn, again, strict=True))
    assert not torch.equal(drawn[0][0], other[0][0]) and not torch.equal(drawn[0][0], drawn[1][0])


def test_drawing_batches_leaves_torchs_own_generator_alone() -> None:
    torch.manual_seed(1)
    wanted = torch.rand(3)
    torch.manual_seed(1)
    next(batches(2, 8, steps=1))
    assert torch.equal(torch.rand(3), wanted)


# -- training ----------------------------------------------------------------------------------------------------------
def test_training_learns_the_text() -> None:
    torch.manual_seed(0)
    model = Transformer(TransformerConfig(hidden=32, layers=1, max_len=16))
    losses = train(model, batches(16, 16, steps=120), torch.optim.Adam(model.parameters(), lr=1e-2))
    assert losses[0] == pytest.approx(math.log(256), rel=0.05)  # the text is that of the Python at hand
    assert sum(losses[-10:]) / 10 < 3.0


@pytest.mark.parametrize("micro_batches", [2, 3, 7])
def test_micro_batches_add_up_to_the_batch(micro_batches: int) -> None:
    ended = []
    for parts in (1, micro_batches):
        model = filled(Transformer(TransformerConfig(**SMALL)))
        drawn = [(t % 50, w % 50) for t, w in batches(5, 12, steps=3)]
        drawn[1][1][:2, 3:] = IGNORED  # so that parts differ in their counts
        losses = train(model, drawn, torch.optim.SGD(model.parameters(), 0.1), micro_batches=parts, max_norm=0.5)
        ended.append((losses, model.state_dict()))
    torch.testing.assert_close(ended[0], ended[1])


def test_one_step_is_sgd_written_out() -> None:
    model = filled(Transformer(TransformerConfig(**SMALL)))
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    tokens, targets = torch.randint(50, (2, 2, 12))
    grads = torch.autograd.grad(model.loss(tokens, targets), list(model.parameters()))
    train(model, [(tokens, targets)], torch.optim.SGD(model.parameters(), 0.1))
    for (name, p), grad in zip(model.named_parameters(), grads, strict=True):
        torch.testing.assert_close(p.detach(), before[name] - 0.1 * grad)
