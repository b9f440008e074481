"""The KV cache held to published bytes; latencies held to rooflines worked out by hand."""

import pytest

from utils.cost import AlphaBeta
from utils.planner import published
from utils.planner.inference import kv_bytes, kv_bytes_per_gpu, prefill_seconds, serve, weights_read
from utils.planner.model import Model
from utils.planner.spec import Cluster, Efficiency

LLAMA2 = Model("Llama-2-7B", 32, 4096, 32, ffn=11008, vocabulary=32000, gated=True, tied=False, biases=False)
LLAMA3 = Model("Llama-3-8B", 32, 4096, 32, kv_heads=8, ffn=14336, vocabulary=128256, gated=True, tied=False,
               biases=False)  # fmt: skip
MIXTRAL = Model("Mixtral 8x7B", 32, 4096, 32, kv_heads=8, vocabulary=32000, gated=True, tied=False, biases=False,
                experts=8, top_k=2, expert_ffn=14336)  # fmt: skip
FREE = AlphaBeta(0.0, 0.0)
BOX = Cluster("box", 8, 8, 1e15, 80e9, 2e12, AlphaBeta(1e-5, 1 / 300e9), FREE)


@pytest.mark.parametrize("name, layers, heads, size, nbytes", published.KV_BYTES)
def test_bytes_a_token(name, layers, heads, size, nbytes):
    assert kv_bytes(Model(name, layers, heads * size, heads, head_dim=size)) == nbytes


@pytest.mark.parametrize("layers, gib", [(32, (0.125, 1.95, 15.62)), (80, (0.313, 4.88, 39.06))])
def test_the_table_of_the_llama_3_1_blog(layers, gib):
    """Its 1k is 1024 tokens, its 16k and 128k are 16000 and 128000; its 405B row is twice the formula and left out."""
    model = Model("llama", layers, 8192, 64, kv_heads=8, head_dim=128)
    for tokens, printed in zip((1024, 16000, 128000), gib, strict=True):
        assert tokens * kv_bytes(model) / 2**30 == pytest.approx(printed, abs=0.006)


def test_heads_are_not_cut():
    assert kv_bytes_per_gpu(LLAMA3, 8) == kv_bytes(LLAMA3) / 8 == kv_bytes_per_gpu(LLAMA3, 16)
    assert kv_bytes(LLAMA3, 1) == kv_bytes(LLAMA3) / 2


def test_a_decode_step_reads_weights_once_and_every_cache():
    one, many = (serve(LLAMA2, BOX, Efficiency(), batch=batch, prompt=512) for batch in (1, 16))
    weights = 2 * (LLAMA2.parameters - 32000 * 4096)
    assert one.tpot == pytest.approx((weights + 512 * 524_288) / 2e12)
    assert many.tpot - one.tpot == pytest.approx(15 * 512 * 524_288 / 2e12)
    assert one.limit == many.limit == "memory" and many.tokens_per_second > 10 * one.tokens_per_second
    assert one.weights == 2 * LLAMA2.parameters and many.cache == 16 * 512 * 524_288


def test_the_largest_batch_fits_and_one_more_does_not():
    found = serve(LLAMA3, BOX, Efficiency(), prompt=8000)
    assert found.max_batch == int((0.9 * 80e9 - 2 * LLAMA3.parameters) // (8000 * 131_072))
    assert serve(LLAMA3, BOX, Efficiency(), batch=found.max_batch, prompt=8000).free >= 0
    assert serve(LLAMA3, BOX, Efficiency(), batch=found.max_batch + 1, prompt=8000).free < 0
    assert serve(published.GPT3, BOX, Efficiency(), prompt=100).max_batch == 0  # 349 GB of weights


def test_large_batches_of_short_sequences_are_bound_by_flops():
    few, many = (serve(LLAMA3, BOX, Efficiency(), batch=batch, prompt=1) for batch in (64, 2048))
    assert (few.limit, many.limit) == ("memory", "compute")


def test_prefill_runs_half_of_the_scores_and_one_row_of_the_output():
    seconds = prefill_seconds(LLAMA2, BOX, Efficiency(gemm=0.5), 1, 2048)
    layer = 2 * (4 * 4096**2 + 3 * 4096 * 11008) + 2 * 4096 * 2048  # products, then 4 s h / 2 of scores
    assert seconds == pytest.approx((2048 * 32 * layer + 2 * 4096 * 32000) / 0.5e15)


def test_tensor_parallelism_divides_reading_and_adds_sums():
    one, four = (serve(LLAMA3, BOX, Efficiency(), tp=tp, batch=8, prompt=1000) for tp in (1, 4))
    sums = 2 * 32 * 2 * 3 * (1e-5 + 2 * 8 * 4096 / 4 / 300e9)
    assert four.tpot == pytest.approx(one.tpot / 4 + sums)
    assert four.limit == "network" and four.max_batch > 4 * one.max_batch


def test_experts_are_read_as_far_as_tokens_meet_them():
    assert weights_read(MIXTRAL, 1) == pytest.approx(MIXTRAL.active_parameters - 32000 * 4096)
    assert weights_read(MIXTRAL, 1000) == pytest.approx(MIXTRAL.parameters - 32000 * 4096)
    import numpy as np

    draws = np.random.default_rng(0)
    met = [len({expert for _ in range(3) for expert in draws.permutation(8)[:2]}) for _ in range(4000)]
    expected = (weights_read(MIXTRAL, 3) - weights_read(MIXTRAL, 1)) / (32 * MIXTRAL.expert_parameters)
    assert expected == pytest.approx(np.mean(met) - 2, abs=0.05)


@pytest.mark.parametrize("wrong, sentence", [
    ({"tp": 16}, "tp = 16: it must divide heads = 32 and be at most the 8 GPUs of a node"),
    ({"tp": 3}, "tp = 3: it must divide heads = 32"),
    ({"batch": 0}, "batch = 0, prompt = 1024: both are at least 1"),
])  # fmt: skip
def test_what_cannot_be_served_is_named(wrong, sentence):
    with pytest.raises(ValueError) as caught:
        serve(LLAMA3, BOX, Efficiency(), **wrong)
    assert sentence in str(caught.value)
