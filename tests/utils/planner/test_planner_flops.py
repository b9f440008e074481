"""FLOPs held to torch's counter on real models and to the papers' equations and tables."""

from dataclasses import replace

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from utils.models.config import TransformerConfig
from utils.models.transformer import Transformer
from utils.planner import published
from utils.planner.flops import chinchilla_flops, forward_flops, hardware_flops, model_flops, training_days
from utils.planner.model import Model
from utils.planner.spec import Workload


@pytest.mark.parametrize("kv_heads, gated", [(4, False), (2, True)])
def test_a_real_model_runs_as_many_flops(kv_heads, gated):
    config = TransformerConfig(hidden=32, layers=3, heads=4, kv_heads=kv_heads, gated=gated, vocab_size=50, max_len=16)
    net, seq, rows = Transformer(config), 16, 2
    tokens = torch.randint(0, 50, (rows, seq))
    with FlopCounterMode(display=False) as forward:
        logits = net(tokens)
    with FlopCounterMode(display=False) as backward:
        logits.sum().backward()
    ours = Model("course", 3, 32, 4, kv_heads=kv_heads, vocabulary=50, positions=16, gated=gated)
    each = forward_flops(ours, seq).total
    assert forward.get_total_flops() == each * rows * seq
    assert backward.get_total_flops() == 2 * each * rows * seq
    assert model_flops(ours, Workload(rows, seq=seq)) == 3 * each * rows * seq


def test_experts_run_as_many_flops_as_transformers_says():
    from transformers import MixtralConfig, MixtralForCausalLM

    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = MixtralConfig(vocab_size=50, num_key_value_heads=2, num_local_experts=4, **sizes)
    config._attn_implementation = "eager"
    config._experts_implementation = "eager"
    net, tokens = MixtralForCausalLM(config), torch.randint(0, 50, (2, 8))
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        net(tokens)
    ours = Model("moe", 2, 32, 4, kv_heads=2, vocabulary=50, gated=True, tied=False, biases=False, experts=4, top_k=2,
                 expert_ffn=48)  # fmt: skip
    rotary = 2 * (32 // 4 // 2) * 8  # the angles are made by a product, once for all layers and rows
    assert counter.get_total_flops() - forward_flops(ours, 8).total * 16 in (0, rotary)


def test_shared_experts_and_dense_layers_run_for_every_token():
    base = Model("moe", 6, 32, 4, gated=True, experts=4, top_k=2, expert_ffn=48)
    flops = {model: forward_flops(model, 8).feed_forward for model in (
        base, replace(base, shared_experts=3), replace(base, dense_layers=2), replace(base, gated=False))}  # fmt: skip
    plain, shared, dense, ungated = flops.values()
    one = 2 * 32 * 48
    assert plain == 6 * (2 * 3 * one + 2 * 32 * 4)
    assert shared - plain == 6 * 3 * 3 * one
    assert plain - dense == 2 * (plain / 6 - 3 * 2 * 32 * 128)
    assert plain - ungated == 6 * 2 * one


@pytest.mark.parametrize("run", published.ptdp_table_1(), ids=lambda run: run.model.name)
def test_equation_3_is_hardware_flops_with_full_recomputation(run):
    assert hardware_flops(run.model, run.workload) == pytest.approx(run.flops, rel=1e-12)


@pytest.mark.parametrize("row", published.PTDP_TABLE_1, ids=lambda row: f"{row[0]}B")
def test_the_columns_of_table_1_agree_with_each_other(row):
    gpus, tflops, peak, petaflops = row[6], row[8], row[9], row[10]
    assert abs(100 * tflops / 312 - peak) < 1.0
    assert gpus * tflops / 1000 == pytest.approx(petaflops, rel=0.005)


def test_training_days_of_equation_4():
    assert training_days(175e9, 300e9, 1024, 140e12) == pytest.approx(34, abs=1)
    assert training_days(1008e9, 450e9, 3072, 163e12) == pytest.approx(84, abs=1)
    for model, _, gpus, _, tflops, days in published.PTDP_TABLE_2_ZERO + published.PTDP_TABLE_2:
        ours = training_days(published.equation_2(model, 2048), 300e9, gpus, tflops * 1e12)
        assert ours == pytest.approx(days, rel=0.04)  # equation 4 leaves out attention and vocabulary, 2 to 3 %


@pytest.mark.parametrize("row", published.KORTHIKANTI_TABLE_5, ids=lambda row: row[0].name)
def test_utilisation_of_table_5(row):
    model, _, gpus, batch, micro, _, full, seconds, gain, mfu, hfu = row
    work, peak = Workload(batch, micro, checkpoint="selective"), seconds * gpus * 312e12
    assert 100 * model_flops(model, work) / peak == pytest.approx(mfu, abs=0.2)
    assert 100 * published.equation_8(model, work) / peak == pytest.approx(hfu, abs=0.2)
    assert 100 * (full / seconds - 1) == pytest.approx(gain, abs=0.5)


def test_selective_recomputation_is_a_third_of_equation_8():
    """Appendix A derives one more pass of scores and weighted values, 4 B s^2 h FLOPs a layer; equation 8 has 12."""
    model, work = published.GPT3, Workload(64, checkpoint="selective")
    extra = hardware_flops(model, work) - model_flops(model, work)
    assert extra == pytest.approx(4 * work.tokens * work.seq * model.hidden * model.layers)
    assert 3 * extra == pytest.approx(published.equation_8(model, work) - model_flops(model, work))
    printed = published.equation_8(model, work) / model_flops(model, work) - 1
    assert 100 * printed == pytest.approx(2.7, abs=0.1)


def test_attention_without_stored_scores_makes_them_again():
    model = published.GPT3
    plain, flash = (hardware_flops(model, Workload(8, flash_attention=flag)) for flag in (False, True))
    assert flash - plain == pytest.approx(8 * 2048 * forward_flops(model, 2048).core / 2)


@pytest.mark.parametrize("parameters, flops, tokens", published.CHINCHILLA_TABLE_3)
def test_six_n_d(parameters, flops, tokens):
    rounding = 0.048 if parameters == 67e9 else 0.011
    assert chinchilla_flops(parameters, tokens) == pytest.approx(flops, rel=rounding)


def test_the_formula_of_palm():
    """FLOPs a token: 6 N + 12 L H Q T, with N the parameters that multiply (arXiv 2204.02311, appendix B)."""
    model, seq = published.GPT3, 2048
    multiplying = 12 * model.layers * model.hidden**2 + model.vocabulary * model.hidden
    palm = 6 * multiplying + 12 * model.layers * model.heads * model.head_dim * seq
    assert 3 * forward_flops(model, seq).total == palm


def test_six_n_d_is_what_is_left_without_attention_and_embedding():
    model = published.gpt("1T", 128, 25600, 160)
    exact = model_flops(model, Workload(1)) / 2048
    assert exact == pytest.approx(chinchilla_flops(model.parameters, 1), rel=0.02)
