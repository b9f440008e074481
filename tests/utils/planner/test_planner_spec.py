"""Parameters counted against real models and papers; objects that check themselves; plans that cannot be."""

import doctest
import importlib

import pytest
import torch
import transformers

from utils.models.config import TransformerConfig
from utils.models.transformer import Transformer
from utils.planner import published
from utils.planner.model import Model
from utils.planner.refusal import check, refuse
from utils.planner.shards import rank_parameters
from utils.planner.spec import Efficiency, Plan, Workload

MIXTRAL = Model("Mixtral 8x7B", 32, 4096, 32, kv_heads=8, vocabulary=32000, gated=True, tied=False, biases=False,
                experts=8, top_k=2, expert_ffn=14336)  # fmt: skip
LLAMA = Model("Llama-3-8B", 32, 4096, 32, kv_heads=8, ffn=14336, vocabulary=128256, gated=True, tied=False,
              biases=False)  # fmt: skip
GPT2 = Model("GPT-2", 12, 768, 12, vocabulary=50257, positions=1024)


def real(kind, **sizes):
    """A model of transformers without memory for its parameters."""
    with torch.device("meta"):
        return getattr(transformers, kind + "ForCausalLM" if kind != "GPT2" else "GPT2LMHeadModel")(
            getattr(transformers, kind + "Config")(**sizes)
        )


def count(module):
    return sum(parameter.numel() for parameter in module.parameters())


def real_mixtral():
    return real("Mixtral", vocab_size=32000, hidden_size=4096, intermediate_size=14336, num_hidden_layers=32,
                num_attention_heads=32, num_key_value_heads=8, num_local_experts=8)  # fmt: skip


def test_dense_models_count_as_transformers_does():
    assert GPT2.parameters == count(real("GPT2")) == GPT2.active_parameters
    sizes = {"vocab_size": 128256, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32}
    assert LLAMA.parameters == count(real("Llama", num_attention_heads=32, num_key_value_heads=8, **sizes))


def test_a_model_with_experts_counts_as_transformers_does():
    model = real_mixtral()
    assert MIXTRAL.parameters == count(model)
    routed = sum(p.numel() for name, p in model.named_parameters() if "experts" in name)
    assert MIXTRAL.active_parameters == count(model) - routed * 6 // 8
    assert round(MIXTRAL.parameters / 1e9, 1) == 46.7 and round(MIXTRAL.active_parameters / 1e9, 1) == 12.9


@pytest.mark.parametrize("changes", [{}, {"kv_heads": 2, "gated": True}, {"tied": False, "bias": False, "ffn": 100}])
def test_the_course_model_counts_the_same(changes):
    config = TransformerConfig(hidden=32, layers=3, heads=4, vocab_size=50, max_len=16, **changes)
    built = count(Transformer(config))
    norms = 0 if config.bias else (2 * config.layers + 1) * config.hidden  # its norms keep their biases
    ours = Model("course", 3, 32, 4, kv_heads=config.kv_heads, ffn=config.ffn, vocabulary=50, positions=16,
                 gated=config.gated, tied=config.tied, biases=config.bias)  # fmt: skip
    assert ours.parameters + norms == built


@pytest.mark.parametrize("row", published.PTDP_TABLE_1, ids=lambda row: f"{row[0]}B")
def test_equation_2_gives_the_published_sizes(row):
    size, heads, hidden, layers = row[:4]
    model = published.gpt("gpt", layers, hidden, heads)
    assert round(published.equation_2(model, 2048) / 1e9, 1) == size
    assert model.parameters == pytest.approx(published.equation_2(model, 2048) + 2 * hidden, rel=1e-14)


def test_the_playbook_formula():
    h, layers, words = 4096, 32, 50000
    assert Model("gpt", layers, h, 32, vocabulary=words).parameters == h * words + layers * (12 * h**2 + 13 * h) + 2 * h


@pytest.mark.parametrize("tp, pp, ep", [(1, 1, 1), (1, 4, 1), (1, 2, 4), (4, 2, 2)])
@pytest.mark.parametrize("model", [GPT2, MIXTRAL, Model("mix", 4, 64, 8, experts=4, top_k=1, dense_layers=2)])
def test_the_parts_of_all_ranks_make_the_whole(model, tp, pp, ep):
    if model is GPT2:
        ep = 1
    plan = Plan(dp=ep, tp=tp, pp=pp, ep=ep)
    total = sum(tp * (shared + ep * expert) for shared, expert in
                (rank_parameters(model, plan, stage) for stage in range(pp)))  # fmt: skip
    padded = -(-model.vocabulary // tp) * tp - model.vocabulary
    copies = pp > 1 and model.tied
    rows = padded * (1 if model.tied and not copies else 2) + copies * model.vocabulary
    once = model.parameters + model.hidden * rows
    if tp == 1:
        assert total == once
    else:  # norms, routers, positions and some biases are whole on each rank
        assert once < total < once * 1.05


WRONG = [
    (lambda: Model("m", 2, 10, 4), "hidden = 10 does not divide into heads = 4"),
    (lambda: Model("m", 2, 16, 4, kv_heads=3), "heads = 4 do not divide into groups over kv_heads = 3"),
    (lambda: Model("m", 0, 16, 4), "layers is 0; it must be a whole number of at least 1"),
    (lambda: Model("m", 2, 16, 4, experts=4, top_k=5), "top_k = 5 of experts = 4"),
    (lambda: Model("m", 2, 16, 4, top_k=2), "experts = 0, but top_k"),
    (lambda: Model("m", 2, 16, 4, experts=4, top_k=1, dense_layers=3), "dense_layers = 3 of layers = 2"),
    (lambda: Workload(4, checkpoint="some"), "checkpoint is 'some'; it is one of none, selective, full"),
    (lambda: Workload(4, gradient_bytes=3), "gradient_bytes is 3; it is one of 2, 4, 6"),
    (lambda: Workload(4, micro_batch=True), "micro_batch is True"),
    (lambda: Plan(zero=4), "zero is 4; it is one of 0, 1, 2, 3"),
    (lambda: Plan(pp=4, chunks=2), "schedule 1f1b with chunks = 2"),
    (lambda: Plan(schedule="interleaved", chunks=2), "interleaved with pp = 1"),
    (lambda: Plan(dp=6, ep=4), "ep = 4 does not divide dp = 6"),
    (lambda: Plan(sequence_parallel=True), "sequence_parallel with tp = 1"),
    (lambda: Efficiency(gemm=1.2), "gemm is 1.2; a share of the peak"),
    (lambda: Efficiency(dp_overlap=-0.1), "dp_overlap is -0.1"),
    (lambda: published.selene(12), "gpus = 12 do not fill nodes of gpus_per_node = 8"),
]


@pytest.mark.parametrize("make, sentence", WRONG, ids=[sentence[:30] for _, sentence in WRONG])
def test_wrong_sizes_are_named(make, sentence):
    with pytest.raises(ValueError) as caught:
        make()
    assert sentence in str(caught.value)


W = Workload(64, seq=2048)
INTERLEAVED = Plan(dp=4, pp=16, schedule="interleaved", chunks=4)
CANNOT = [
    (LLAMA, W, Plan(dp=4), "dp 4 x tp 1 x pp 1 x cp 1 = 4 GPUs, but the cluster has 64: the product must be 64"),
    (LLAMA, W, Plan(dp=4, tp=16), "tp = 16 is more than the 8 GPUs of a node"),
    (Model("h", 32, 4096, 32, kv_heads=4), W, Plan(dp=8, tp=8), "tp = 8 is more than kv_heads = 4"),
    (LLAMA, W, INTERLEAVED, "pp 16 x chunks 4 = 64 does not divide layers = 32"),
    (LLAMA, Workload(72), Plan(dp=8, pp=8, schedule="interleaved", chunks=2), "9 micro-batches are not a multiple"),
    (LLAMA, Workload(48), Plan(dp=64), "dp 64 x micro_batch 1 = 64 does not divide global_batch = 48"),
    (LLAMA, Workload(64, seq=1032), Plan(dp=8, cp=8), "2 cp = 16 does not divide seq = 1032"),
    (LLAMA, Workload(64, seq=1001), Plan(dp=32, tp=2, sequence_parallel=True), "cp 1 x tp 2 does not divide seq"),
    (GPT2, W, Plan(dp=64), "seq = 2048 is longer than the 1024 learned positions"),
    (LLAMA, W, Plan(dp=64, ep=8), "ep = 8, but Llama-3-8B has no experts"),
    (MIXTRAL, W, Plan(dp=64, ep=16), "ep = 16 does not divide experts = 8"),
    (Model("odd", 2, 4096, 32, ffn=1001), W, Plan(dp=32, tp=2), "tp = 2 does not divide ffn = 1001: 1 would be left"),
]


@pytest.mark.parametrize("model, workload, plan, sentence", CANNOT, ids=[row[3][:36] for row in CANNOT])
def test_plans_that_cannot_be_are_refused_with_the_numbers(model, workload, plan, sentence):
    refusal = refuse(model, workload, published.selene(64), plan)
    assert refusal and refusal.startswith(sentence)
    with pytest.raises(ValueError) as caught:
        check(model, workload, published.selene(64), plan)
    assert str(caught.value) == refusal


def test_a_tp_group_must_not_lie_across_nodes():
    model = Model("six", 6, 768, 12)
    assert "does not divide the 8 GPUs of a node" in refuse(model, Workload(8), published.selene(24), Plan(dp=8, tp=3))
    assert refuse(model, Workload(8), None, Plan(dp=8, tp=3)) is None


def test_what_ran_is_not_refused():
    runs = published.ptdp_table_1() + published.ptdp_table_2() + published.korthikanti_table_5()
    assert [refuse(run.model, run.workload, run.cluster, run.plan) for run in runs] == [None] * 30
    check(MIXTRAL, W, published.selene(64), Plan(dp=16, tp=4, ep=8))


MODULES = ("spec", "model", "refusal", "flops", "shards", "memory", "traffic", "timing", "inference", "published",
           "efficiency", "compare")  # fmt: skip


@pytest.mark.parametrize("name", MODULES)
def test_worked_examples(name):
    result = doctest.testmod(importlib.import_module("utils.planner." + name))
    assert result.failed == 0 and (result.attempted or name == "timing")
