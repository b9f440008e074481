# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Lab 08: KV cache
#
# **20 points.** A decoder writes one token after the other. Done plainly, each new token costs the whole
# history again. In this lab you write the attention and the caches that make a step cost one token, for
# batches of prompts of different lengths, in chunks, and under a sliding window; then sampling, and a
# `generate` that puts it together. Your code is graded on its logits, which must be those of the full
# forward pass, and on its **work**: FLOPs, bytes held, bytes copied.
#
# | part | what you write | points |
# |---|---|---|
# | 1 | attention with grouped heads; who may see whom | 3 |
# | 2 | the KV cache: prefill, decode, chunks, padding | 5 |
# | 3 | `left_pad` and `generate`: a ragged batch, greedy | 4 |
# | 4 | a cache for a sliding window | 3 |
# | 5 | temperature, top-k, top-p | 3 |
# | 6 | what a step costs; questions | 2 |
#
# *You should have read* notebook 11. *Time:* about four hours. *Machine:* any; no GPU, and no ranks this
# time.

# %% [markdown]
# ## How this lab works
#
# - Write your code in the cells that raise `NotImplementedError`. The test cells below them are locked. Run
#   them as often as you like. Grading runs the same tests with further sizes.
# - **You may call** anything in `torch` but `scaled_dot_product_attention`, which is what your attention is
#   held to. The model is given: `utils.models.Decoder`, of Llama's architecture. It has no cache. It lets
#   you say how a layer attends: `model(tokens, positions, attention)`, where `attention(layer, q, k, v,
#   positions)` gets the layer's number and the queries, keys and values of **this call's** tokens, rotary
#   positions already applied.
# - All tests run on the CPU. To try something, add a cell. `LiveBytes` (utils.memory) follows the bytes of
#   tensors, `Work` (utils.work) counts FLOPs.
#
# **Conventions.** B batch, S tokens of this call, T places of keys, N `heads` (query heads), K `kv_heads`,
# D `head_dim`, L `layers`, V vocabulary. q is `[B, N, S, D]`, k and v are `[B, K, T, D]`.
#
# **A position says two things.** A token at position p >= 0 is the p-th of its own sequence, whatever
# column of the batch it stands in. A token at position **-1 is padding** (填充): nobody may see it, and
# nobody cares what comes out for it (but it must not be NaN: a NaN spreads).

# %% shared="imports"
import math
from dataclasses import replace

import torch
import torch.nn.functional as F

from utils import check, launch
from utils.memory import LiveBytes
from utils.models import Decoder, DecoderConfig
from utils.work import Work

SMALL = DecoderConfig(vocab_size=40, hidden=48, layers=2, heads=6, kv_heads=2, ffn=64, max_len=128)
WIDE, TALL = replace(SMALL, hidden=96), replace(SMALL, hidden=192, max_len=400)  # head_dim 16 and 32


def run_alone(probe, *args):
    """What `probe(*args)` returns in one fresh process, on the CPU."""
    return launch(probe, *args, ranks=None, device="cpu", timeout=20).value


def draw(seed: int, *shape: int) -> torch.Tensor:
    """Random float32 numbers of this shape, the same ones for the same seed."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def draw_tokens(seed: int, *shape: int, vocab_size: int = SMALL.vocab_size) -> torch.Tensor:
    return torch.randint(vocab_size, shape, generator=torch.Generator().manual_seed(seed))


def model_of(config: DecoderConfig, seed: int) -> Decoder:
    """A model whose attention is far from even, so that every mistake shows in the logits."""
    model, generator = Decoder(config).requires_grad_(False), torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        parameter.normal_(0, config.hidden**-0.5, generator=generator)
    norms = [model.model.norm]
    for layer in model.model.layers:
        norms += [layer.input_layernorm, layer.post_attention_layernorm]
        layer.self_attn.q_proj.weight.mul_(3)
        layer.self_attn.k_proj.weight.mul_(3)
    for norm in norms:
        norm.weight.normal_(1, 0.1, generator=generator)
    return model


def unwritten_is_nan() -> None:
    """From here on memory that torch.empty hands out holds NaN, so that reading what was never written shows."""
    torch.use_deterministic_algorithms(True, warn_only=True)


def attended(q, k, v, mask):
    """For oracles: torch's own attention under a mask [B, S, T]; 0 where a query may see nothing."""
    seen = mask.any(-1)[:, None, :, None]
    y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None], enable_gqa=True)
    return torch.where(seen, y, 0.0)


def full_logits(model: Decoder, tokens, positions, mask) -> torch.Tensor:
    """For oracles: the logits of one forward pass over everything, where query s sees key t if mask[b, s, t]."""
    return model(tokens, positions, lambda layer, q, k, v, at: attended(q, k, v, mask))


# %% [markdown]
# # Part 1. Attention
#
# ## gqa_attention
#
# `gqa_attention(q, k, v, mask)`: q `[B, N, S, D]`, k and v `[B, K, T, D]`, `mask` `[B, S, T]` of booleans,
# `True` where the query **may see** the key. Returns `[B, N, S, D]`:
#
# $$y_{b,n,s} = \sum_t \mathrm{softmax}_t\!\left(\frac{q_{b,n,s} \cdot k_{b,j,t}}{\sqrt D}\right) v_{b,j,t},
# \qquad j = \lfloor n K / N \rfloor ,$$
#
# over the t that may be seen. This is *grouped-query attention* (分组查询注意力, GQA): N/K query heads in a row
# share one key and value head. A query that may see nothing gets **zeros**.
#
# *Example*, N = 4, K = 2: query heads 0 and 1 read KV head 0; 2 and 3 read KV head 1. One key, D = 1,
# v = 7 in KV head 0: heads 0 and 1 get 7 where they may see it.
#
# *Target:* no copy of k or v. Repeating the KV heads N/K times (`repeat_interleave`, `expand` before a
# product, an index) would read and write N/K times the cache in every step, and undo what GQA saves. Let the
# N/K heads of a group stand beside each other in **one** product with their shared k: `[B, K, (N/K) S, D] x
# [B, K, D, T]`. *Size:* about 8 lines. `scaled_dot_product_attention` may not be called here.

# %% solution="gqa_attention"
def gqa_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    ### BEGIN SOLUTION
    batch, heads, seq, dim = q.shape
    kv_heads, places = k.shape[1:3]
    grouped = q.reshape(batch, kv_heads, -1, dim)  # the heads of a group, one after the other: [B, K, N/K S, D]
    scores = (grouped @ k.transpose(-2, -1)).view(batch, heads, seq, places) / math.sqrt(dim)
    hidden = ~mask[:, None]
    weights = scores.masked_fill(hidden, -math.inf).softmax(-1).masked_fill(hidden, 0.0)
    return (weights.view(batch, kv_heads, -1, places) @ v).view(batch, heads, seq, dim)
    ### END SOLUTION


# %% shared="gqa_cases"
def gqa_case(seed, batch, heads, kv_heads, seq, places, dim):
    """q, k, v and a mask that hides some keys from every query, and all keys from one query."""
    q = draw(seed, batch, heads, seq, dim) * 2
    k, v = draw(seed + 1, batch, kv_heads, places, dim), draw(seed + 2, batch, kv_heads, places, dim)
    mask = draw(seed + 3, batch, seq, places) > -0.5
    mask[..., 0] = True
    mask[-1, -1] = False
    return q, k, v, mask


# %% test="gqa_values" points=1
def probe_gqa(cases):
    results = []
    for case in cases:
        q, k, v, mask = gqa_case(*case)
        results.append({"y": gqa_attention(q, k, v, mask), "q": q, "k": k, "v": v, "mask": mask.int()})
    return results


def gqa_mistakes(q, k, v, mask):
    heads, kv_heads, dim = q.shape[1], k.shape[1], q.shape[-1]
    everything = torch.ones_like(mask)
    likes = {
        "every query saw every key: the mask was not applied": attended(q, k, v, everything),
        "the mask is the wrong way round; True means that the query may see the key": attended(q, k, v, ~mask),
        "the scores were not divided by sqrt(D)": attended(q * math.sqrt(dim), k, v, mask),
        "the scores were divided by D, not by its root": attended(q / math.sqrt(dim), k, v, mask),
        "the scores were divided by the root of N D, not of D": attended(q / math.sqrt(heads), k, v, mask),
        "query heads read the KV head n % K; those in a row share one, n * K // N": attended(
            q, k[:, torch.arange(heads) % kv_heads], v[:, torch.arange(heads) % kv_heads], mask
        ),
        "query heads read the KV head n // K; that is n * K // N only where N = K * K": attended(
            q, k[:, (torch.arange(heads) // kv_heads).clamp(max=kv_heads - 1)],
            v[:, (torch.arange(heads) // kv_heads).clamp(max=kv_heads - 1)], mask,
        ),
        "all query heads read KV head 0": attended(q, k[:, :1], v[:, :1], mask),
    }  # fmt: skip
    uniform = v.mean(2, keepdim=True).repeat_interleave(heads // kv_heads, 1)
    nothing = ~mask.any(-1)[:, None, :, None]
    likes["a query that may see nothing gets the mean of all values; zeros are wanted"] = torch.where(
        nothing, uniform, attended(q, k, v, mask)
    )
    return likes


def verdict_gqa(cases):
    results = run_alone(probe_gqa, cases)
    for got, case in zip(results, cases, strict=True):
        q, k, v, mask = gqa_case(*case)
        what = f"gqa_attention (N = {case[2]}, K = {case[3]}, S = {case[4]}, T = {case[5]})"
        nothing = f"{what}, the query that may see nothing"
        if isinstance(got["y"], torch.Tensor) and got["y"].shape == q.shape and got["y"][-1, :, -1].isnan().any():
            raise check.CheckFailed(f"{nothing}: NaN, a softmax over nothing but -inf; zeros are wanted.")
        check.outcome(got["y"], attended(q, k, v, mask), what, lambda c=case: gqa_mistakes(*gqa_case(*c)), atol=1e-5)
        for name, before in (("q", q), ("k", k), ("v", v), ("mask", mask.int())):
            check.agree(got[name], before, f"{what}: {name} after the call, which stays unchanged", rtol=0, atol=0)


verdict_gqa([(1, 2, 4, 2, 3, 5, 8)])
### BEGIN HIDDEN TESTS
verdict_gqa([(10, 2, 6, 2, 1, 7, 4), (20, 1, 6, 3, 5, 5, 8), (30, 2, 8, 2, 4, 6, 2)])
verdict_gqa([(40, 3, 4, 4, 2, 6, 4), (50, 2, 6, 1, 3, 4, 4), (60, 1, 28, 4, 2, 3, 2)])
### END HIDDEN TESTS

# %% test="gqa_memory" points=1
def probe_gqa_memory(cases):
    results = []
    for case in cases:
        q, k, v, mask = gqa_case(*case)
        with torch.no_grad(), LiveBytes([q, k, v, mask]) as live, Work() as work:
            before = live.now()
            gqa_attention(q, k, v, mask)
        results.append({"peak": live.peak() - before, "operators": dict(work.operators), "flops": work.flops})
    return results


def verdict_gqa_memory(cases):
    for got, case in zip(run_alone(probe_gqa_memory, cases), cases, strict=True):
        _, batch, heads, kv_heads, seq, places, dim = case
        fused = [name for name in got["operators"] if "scaled_dot_product" in name]
        if fused:
            raise check.CheckFailed("gqa_attention calls scaled_dot_product_attention; write the products yourself.")
        least = 4 * batch * heads * seq * places * dim
        if got["flops"] < least:
            raise check.CheckFailed(
                f"gqa_attention: torch ran products of {got['flops']} FLOPs; the two of attention have {least}. "
                "Compute them with torch's products."
            )
        keys, repeated = (4 * batch * n * places * dim for n in (kv_heads, heads))
        if got["peak"] > keys / 2:
            many = got["peak"] > repeated * 0.9
            cause = "as if k and v were repeated for every query head" if many else "a copy of k?"
            raise check.CheckFailed(
                f"gqa_attention (N = {heads}, K = {kv_heads}) allocated {got['peak']} bytes at once, with k of {keys} "
                f"bytes: {cause}. Read k and v where they lie."
            )


verdict_gqa_memory([(70, 1, 8, 2, 1, 512, 64)])
### BEGIN HIDDEN TESTS
verdict_gqa_memory([(80, 2, 6, 2, 1, 400, 64), (90, 2, 4, 1, 2, 300, 96)])
### END HIDDEN TESTS

# %% [markdown]
# ## visible
#
# `visible(query_positions, key_positions, window)`: `[B, S]` and `[B, T]` of whole numbers give `[B, S, T]`
# of booleans: may the query see the key? A query at position p sees a key at position t if
#
# - the key is no padding: t >= 0,
# - and not in the future (因果, causal): t <= p,
# - and, if `window` is not `None`, one of the last `window` tokens, the query's own included: p - t <
#   window.
#
# The keys stand in any order, and there may be more of them than queries: those that a cache holds come
# first. So where a query or a key **stands** in the tensor says nothing; only its position does.
#
# *Example:* the second chunk of a prompt, positions 3 and 4, after three cached keys and one pad. Query
# positions [3, 4], key positions [-1, 0, 1, 2, 3, 4]: the query at 3 sees F T T T T F, the one at 4 F T T T
# T T. With `window` = 2: F F F T T F and F F F F T T.
#
# *Size:* about 5 lines.

# %% solution="visible"
def visible(
    query_positions: torch.Tensor, key_positions: torch.Tensor, window: int | None = None
) -> torch.Tensor:
    ### BEGIN SOLUTION
    queries, keys = query_positions[:, :, None], key_positions[:, None, :]
    mask = (keys >= 0) & (keys <= queries)
    if window is not None:
        mask &= queries - keys < window
    return mask
    ### END SOLUTION


# %% shared="visible_rule"
def may_see(query_positions: list, key_positions: list, window: int | None = None) -> torch.Tensor:
    """For oracles: the rule of `visible`, pair by pair, from lists of lists."""
    rows = [
        [[0 <= t <= p and (window is None or t > p - window) for t in keys] for p in queries]
        for queries, keys in zip(query_positions, key_positions, strict=True)
    ]
    return torch.tensor(rows)


def visible_mistakes(queries: list, keys: list, window: int | None) -> dict:
    """What slips make of `visible`: sentence -> mask."""
    right = may_see(queries, keys, window)
    padding = [[t if t >= 0 else 0 for t in row] for row in keys]
    index = torch.ones_like(right).tril()
    mistakes = {
        "padding (position -1) is visible": may_see(queries, padding, window),
        "the token itself is hidden; a query sees its own key": may_see([[p - 1 for p in row] for row in queries], keys,
                                                                        window if window is None else window - 1),
        "query i sees the first i + 1 keys: the mask goes by where tokens stand, and forgets what is cached": index,
        "query i sees the first i + 1 keys, without the padding: where a token stands was taken for its position":
            index & torch.tensor(keys).ge(0)[:, None],
        "it is the complement: True means that the query may see the key": ~right,
    }  # fmt: skip
    if window is None:
        later = may_see([[max(map(max, keys))] * len(row) for row in queries], keys)
        return mistakes | {"keys of the future are visible": later}
    return mistakes | {
        "the window was not applied": may_see(queries, keys),
        "the window is one token too wide; the query's own token is one of them": may_see(queries, keys, window + 1),
        "the window is one token too narrow; the query's own token is one of them": may_see(queries, keys, window - 1),
    }


def masks_hold(results: list, cases: list) -> None:
    """For verdicts: what `visible` gave for each case."""
    for got, (queries, keys, window) in zip(results, cases, strict=True):
        short = f"queries at {queries[0]}, keys at {keys[0]}"
        what = f"visible ({short}" + (")" if window is None else f", window {window})")
        if got["dtype"] != "torch.bool":
            raise check.CheckFailed(f"{what} is of {got['dtype']}; a boolean mask is wanted.")
        want = may_see(queries, keys, window)
        if isinstance(got["mask"], torch.Tensor) and got["mask"].shape == want.shape:
            shown = "".join("FT"[int(x)] for x in got["mask"][0, -1]), "".join("FT"[int(x)] for x in want[0, -1])
            what += f": the last query of row 0 got {shown[0]}" + ("" if shown[0] == shown[1] else f", not {shown[1]}")
        mistakes = lambda q=queries, k=keys, w=window: visible_mistakes(q, k, w)  # noqa: E731
        check.outcome(got["mask"], want, what, mistakes)
        for name, before in (("query_positions", queries), ("key_positions", keys)):
            check.agree(got[name], torch.tensor(before), f"visible: {name} after the call", rtol=0)


# %% test="visible_pairs" points=1
def probe_visible(cases):
    results = []
    for queries, keys, window in cases:
        queries, keys = torch.tensor(queries), torch.tensor(keys)
        mask = visible(queries, keys, window)
        given = {"query_positions": queries, "key_positions": keys}
        results.append({"mask": mask, "dtype": str(getattr(mask, "dtype", type(mask).__name__)), **given})
    return results


def verdict_visible(cases):
    masks_hold(run_alone(probe_visible, cases), cases)


verdict_visible([([[0, 1, 2]], [[0, 1, 2]], None), ([[3, 4]], [[-1, 0, 1, 2, 3, 4]], None)])
verdict_visible([([[3, 4]], [[-1, 0, 1, 2, 3, 4]], 2), ([[0, 1, 2, 3]], [[0, 1, 2, 3]], 3)])
### BEGIN HIDDEN TESTS
verdict_visible([
    ([[5], [2]], [[0, 1, 2, 3, 4, 5], [-1, -1, -1, 0, 1, 2]], None),
    ([[-1, 0, 1], [4, 5, 6]], [[-1, 0, 1, -1], [6, 4, 5, 0]], None),
    ([[7, 8]], [[0, 1, 2, 3, 4, 5, 6, 7, 8]], None),
    ([[3]], [[0, 1, 2, 3, -1, -1]], None),
    ([[6, 7], [-1, 2]], [[4, 5, 6, 7], [-1, 0, 1, 2]], 4),
    ([[5]], [[4, 5, 2, 3]], 3),
    ([[0, 1, 2]], [[0, 1, 2]], 1),
    ([[3, 4, 5]], [[0, 1, 2, 3, 4, 5]], 100),
])  # fmt: skip
### END HIDDEN TESTS

# %% [markdown]
# # Part 2. The cache
#
# ## KVCache
#
# A key and a value depend on their own token and the tokens before it, and these never change. So they are
# computed once and kept: the *KV cache* (键值缓存). *Prefill* (预填充) runs the whole prompt and fills it; each
# *decode* (解码) step runs one new token, whose query reads all that is kept.
#
# - `KVCache(config, batch, capacity, dtype)` makes room for `capacity` tokens of each of `batch` sequences, in
#   every layer.
# - `cache.attention(layer, q, k, v, positions)` is what `model(tokens, positions, cache.attention)` calls once
#   for each layer, in order. It keeps k and v `[B, K, S, D]` and positions `[B, S]` behind those of the
#   earlier calls, and returns the attention of q over **all** that is kept, this call's included: `[B, N, S,
#   D]`.
#
# A call may bring any number of tokens: a prompt, a part of one (*chunked prefill*, 分块预填充), a new token,
# with padding anywhere (position -1). Whatever the cut into calls, the logits are those of one full forward
# pass. A call that brings more than there is room for raises an error (any), and nothing grows.
#
# *Example:* a prompt of 3 tokens: `model(prompt, [[0, 1, 2]], cache.attention)` keeps 3 keys. Then
# `model(new, [[3]], cache.attention)`: the query sees three cached keys and itself. (The lecture says "the
# previous four".)
#
# *Targets:*
#
# - bytes: L x B x capacity x 2 x K x D x bytes of `dtype`, allocated once. No Q (nobody will ask for it
#   again), no repeated heads. (Positions and masks are small; 15 % are allowed for them.)
# - a step writes one place and copies nothing of the history. With storage `[B, K, capacity, D]` the slice of
#   the first T places goes into the products of `gqa_attention` as it lies; `torch.cat` copies everything,
#   in every step.
# - memory from `torch.empty` may hold anything, NaN too, and 0 x NaN is NaN.
#
# *Size:* about 15 lines.

# %% solution="kv_cache"
class KVCache:
    def __init__(self, config: DecoderConfig, batch: int, capacity: int, dtype: torch.dtype = torch.float32):
        ### BEGIN SOLUTION
        self.layers, self.length = config.layers, 0
        self.store = torch.zeros(config.layers, 2, batch, config.kv_heads, capacity, config.head_dim, dtype=dtype)
        self.positions = torch.full((batch, capacity), -1)
        ### END SOLUTION

    def attention(
        self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, positions: torch.Tensor
    ) -> torch.Tensor:
        ### BEGIN SOLUTION
        end = self.length + q.shape[2]
        if end > self.positions.shape[1]:
            raise ValueError(f"{end} tokens; there is room for {self.positions.shape[1]}")
        keys, values = self.store[layer]
        keys[:, :, self.length : end], values[:, :, self.length : end] = k, v
        self.positions[:, self.length : end] = positions
        if layer == self.layers - 1:
            self.length = end
        mask = visible(positions, self.positions[:, :end])
        return gqa_attention(q, keys[:, :, :end], values[:, :, :end], mask)
        ### END SOLUTION


# %% shared="cached_runs"
def cached_run(model: Decoder, cache, tokens: torch.Tensor, positions: torch.Tensor, calls: list[int]) -> torch.Tensor:
    """Logits [B, S, V] of tokens that go through the model in calls of so many tokens each, on top of `cache`."""
    logits, start = [], 0
    for size in calls:
        part = slice(start, start + size)
        logits.append(model(tokens[:, part], positions[:, part], cache.attention))
        start += size
    return torch.cat(logits, 1)


def counted_up(batch: int, count: int) -> torch.Tensor:
    """Positions 0, 1, 2, ... for every row."""
    return torch.arange(count).repeat(batch, 1)


def call_mistakes(model: Decoder, tokens, positions, calls: list[int], window: int | None = None) -> dict:
    """What slips make of a run in several calls: sentence -> logits."""
    call = torch.tensor([number for number, size in enumerate(calls) for _ in range(size)])
    place = torch.tensor([i for size in calls for i in range(size)])
    first = torch.tensor([start for size, start in zip(calls, _starts(calls), strict=True) for _ in range(size)])
    right, keys = may_see(positions.tolist(), positions.tolist(), window), torch.arange(tokens.shape[1])
    everything = may_see(positions.tolist(), positions.tolist())
    same, earlier = call[:, None] == call, call[None] <= call[:, None]
    seen = {
        "a call sees its own tokens only: what earlier calls left is not read": right & same,
        "query i of a call sees the first i + 1 keys: the mask forgets those that are cached":
            (keys <= place[:, None]).expand_as(right),
        "a query sees every token of its call, the later ones too": earlier & (positions >= 0)[:, None],
        "a query of a later call sees every token of its call, the later ones too":
            torch.where((first > 0)[:, None], earlier & (positions >= 0)[:, None], right),
        "a query does not see its own token: the new key must be in the cache before the query reads it":
            right & (keys != keys[:, None]),
        "a query sees what earlier calls left, and of its own call only itself":
            right & ((keys < first[:, None]) | (keys == keys[:, None])),
        "a query of a later call sees nothing of its own call: it reads before the new keys are in the cache":
            right & ((keys < first[:, None]) | (first == 0)[:, None]),
        "padding is seen": (keys <= keys[:, None]).expand_as(right),
    }  # fmt: skip
    if window is not None:
        kept = keys >= (first + size_of_call(calls) - window)[:, None]  # what a ring holds once the call is in it
        seen["the call's last tokens pushed out what its first queries still had to see"] = right & kept
        seen["the window was not applied to the queries"] = everything
        seen["within a call queries see further back than the window"] = everything & (
            keys >= (first - window)[:, None]
        )
        seen["the oldest token that is still in the window is missing"] = right & (
            same | (keys > (keys - window + 1)[:, None])
        )
    return {sentence: full_logits(model, tokens, positions, mask) for sentence, mask in seen.items()}


def size_of_call(calls: list[int]) -> torch.Tensor:
    """For each token the size of the call that brings it."""
    return torch.tensor([size for size in calls for _ in range(size)])


def _starts(calls: list[int]) -> list[int]:
    return [sum(calls[:number]) for number in range(len(calls))]


def runs_hold(results: list, cases: list, what: str) -> None:
    """For verdicts: logits of runs in several calls are those of one full forward pass."""
    for logits, (config, seed, batch, calls) in zip(results, cases, strict=True):
        model, tokens = model_of(config, seed), draw_tokens(seed, batch, sum(calls))
        positions = counted_up(batch, sum(calls))
        mistakes = lambda m=model, t=tokens, p=positions, c=calls: call_mistakes(m, t, p, c)  # noqa: E731
        where = f"{what} (calls of {calls} tokens, N = {config.heads}, K = {config.kv_heads})"
        check.outcome(logits, model(tokens), f"{where}: the logits", mistakes, rtol=1e-3, atol=1e-3)


def rows_hold(results: list, cases: list, what: str, window: int | None = None) -> None:
    """For verdicts: each row of a padded run in several calls is what it is alone."""
    for logits, (config, seed, rows, calls) in zip(results, cases, strict=True):
        model, positions = model_of(config, seed), torch.tensor(rows)
        tokens, where = draw_tokens(seed, *positions.shape), f"{what} (calls of {calls} tokens"
        if not isinstance(logits, torch.Tensor) or logits.shape != (*positions.shape, config.vocab_size):
            raise check.CheckFailed(f"{where}): no logits came back.")
        if logits.isnan().any():
            raise check.CheckFailed(f"{where}): NaN in the logits; from a pad, or from unwritten memory.")
        for row, places in enumerate(rows):
            real = [column for column, position in enumerate(places) if position >= 0]
            length = len(real)
            alone = full_logits(model, tokens[row : row + 1, real], torch.arange(length),
                                may_see([range(length)], [range(length)], window))  # fmt: skip

            def mistakes(m=model, t=tokens, p=positions, c=calls, row=row, real=real):
                return {text: found[row, real] for text, found in call_mistakes(m, t, p, c, window).items()}

            where_row = f"{where}, row {row} at positions {places}): the logits, against the row run alone"
            check.outcome(logits[row, real], alone[0], where_row, mistakes, rtol=1e-3, atol=1e-3)


def held_message(what, held, want, config, full=None):
    """Raise CheckFailed where bytes held are more than 15 % from what is wanted."""
    heads, kv_heads = config.heads, config.kv_heads
    ratios = {
        heads / kv_heads: "as if the KV heads were kept once for every query head",
        1 + heads / (2 * kv_heads): "as if the queries were kept too; nobody reads a query again",
        0.5: "as if only keys, or only values, were kept",
        1 / config.layers: "as if there were room for one layer",
        2.0: "twice too much; another number type, or a copy?",
    }
    if full:
        ratios[full] = "as if all tokens were kept; a view of the last ones keeps the others alive"
    if abs(held / want - 1) > 0.15:
        nearest = min(ratios, key=lambda ratio: abs(held / want / ratio - 1))
        guess = ratios[nearest] if abs(held / want / nearest - 1) < 0.1 else ""
        raise check.CheckFailed(f"{what} holds {held} bytes, {want} are the target{': ' + guess if guess else ''}.")


# %% test="cache_values" points=1
def probe_cache_values(cases):
    unwritten_is_nan()
    batches = [draw_tokens(seed, batch, sum(calls)) for _, seed, batch, calls in cases]
    caches = [KVCache(config, batch, sum(calls) + 2, torch.float32) for config, _, batch, calls in cases]
    models, begun, results = [model_of(config, seed) for config, seed, _, _ in cases], [], []
    for model, cache, tokens, (_, _, batch, calls) in zip(models, caches, batches, cases, strict=True):
        first = calls[0]
        begun.append(model(tokens[:, :first], counted_up(batch, first), cache.attention))
    for model, cache, tokens, logits, (_, _, batch, calls) in zip(models, caches, batches, begun, cases, strict=True):
        first, positions = calls[0], counted_up(batch, sum(calls))
        rest = cached_run(model, cache, tokens[:, first:], positions[:, first:], calls[1:])
        results.append(torch.cat([logits, rest], 1))
    return results


def verdict_cache_values(cases):
    runs_hold(run_alone(probe_cache_values, cases), cases, "KVCache")


verdict_cache_values([(SMALL, 1, 1, [3, 1, 1])])
### BEGIN HIDDEN TESTS
verdict_cache_values([
    (SMALL, 2, 2, [5, 1, 1, 1, 1]),
    (SMALL, 33, 2, [6, 1, 1, 1]),
    (replace(SMALL, kv_heads=6, layers=3), 3, 1, [1, 1, 1]),
    (replace(SMALL, kv_heads=1, rope_theta=100.0), 4, 3, [4, 1, 1]),
])  # fmt: skip
### END HIDDEN TESTS

# %% test="cache_chunks" points=1
def probe_cache_chunks(cases):
    unwritten_is_nan()
    results = []
    for config, seed, batch, calls in cases:
        cache = KVCache(config, batch, sum(calls), torch.float32)
        tokens, positions = draw_tokens(seed, batch, sum(calls)), counted_up(batch, sum(calls))
        results.append(cached_run(model_of(config, seed), cache, tokens, positions, calls))
    return results


def verdict_cache_chunks(cases):
    runs_hold(run_alone(probe_cache_chunks, cases), cases, "KVCache, chunked prefill")


verdict_cache_chunks([(SMALL, 5, 1, [3, 2, 4])])
### BEGIN HIDDEN TESTS
verdict_cache_chunks([
    (SMALL, 6, 2, [4, 4, 1, 3, 1]),
    (replace(SMALL, kv_heads=3), 7, 1, [1, 5, 2]),
    (replace(SMALL, kv_heads=6), 8, 2, [2, 2, 2, 1]),
])  # fmt: skip
### END HIDDEN TESTS

# %% [markdown]
# A *ragged* batch: prompts of different lengths in one tensor. Row 0 below has two tokens and one pad in
# front (*left padding*, 左填充), row 1 three tokens: positions [[-1, 0, 1], [0, 1, 2]]. The decode step that
# follows has positions [[2], [3]]. Padding may also stand behind the tokens, or in a later call, where only
# some rows have something new. Every row must come out as it does alone.

# %% test="cache_ragged" points=1
def probe_cache_ragged(cases):
    unwritten_is_nan()
    results = []
    for config, seed, positions, calls in cases:
        positions = torch.tensor(positions)
        cache = KVCache(config, len(positions), sum(calls), torch.float32)
        tokens = draw_tokens(seed, *positions.shape)
        results.append(cached_run(model_of(config, seed), cache, tokens, positions, calls))
    return results


def verdict_cache_ragged(cases, what):
    rows_hold(run_alone(probe_cache_ragged, cases), cases, what)


verdict_cache_ragged([(SMALL, 9, [[-1, 0, 1, 2, 3], [0, 1, 2, 3, 4]], [3, 1, 1])], "KVCache, left padding")
### BEGIN HIDDEN TESTS
left = [[-1, -1, -1, 0, 1, 2, 3], [-1, 0, 1, 2, 3, -1, 4], [0, 1, 2, 3, 4, 5, 6]]
verdict_cache_ragged([(SMALL, 10, left, [4, 2, 1])], "KVCache, left padding")
right = [[0, 1, 2, 3, 4, 5], [0, 1, -1, -1, 2, 3], [0, -1, -1, -1, 1, 2]]
verdict_cache_ragged([(replace(SMALL, kv_heads=3), 11, right, [4, 1, 1])], "KVCache, right padding")
### END HIDDEN TESTS

# %% test="cache_bytes" points=1
def probe_cache_bytes(cases):
    results = []
    for config, batch, capacity, prompt, dtype in cases:
        model, tokens = model_of(config, 12).to(dtype), draw_tokens(12, batch, capacity + 1)
        positions = counted_up(batch, capacity + 1)
        with torch.no_grad(), LiveBytes([*model.parameters(), tokens, positions]) as live:
            before = live.now()
            cache = KVCache(config, batch, capacity, dtype)
            model(tokens[:, :prompt], positions[:, :prompt], cache.attention)
            held = [live.now() - before]
            for at in range(prompt, capacity):
                model(tokens[:, at : at + 1], positions[:, at : at + 1], cache.attention)
            held.append(live.now() - before)
        try:
            model(tokens[:, capacity:], positions[:, capacity:], cache.attention)
            refused = False
        except Exception:
            refused = True
        results.append({"held": held, "unknown": live.unknown(), "refused": refused})
    return results


def verdict_cache_bytes(cases):
    for got, (config, batch, capacity, _, dtype) in zip(run_alone(probe_cache_bytes, cases), cases, strict=True):
        token = config.layers * batch * 2 * config.kv_heads * config.head_dim * dtype.itemsize
        what = f"KVCache (capacity {capacity}, {dtype}, N = {config.heads}, K = {config.kv_heads})"
        after_prompt, after_all = got["held"]
        if after_all - after_prompt > token / 2:
            raise check.CheckFailed(
                f"{what} held {after_prompt} bytes after the prompt and {after_all} when it was full: it grows. "
                "Allocate once, for `capacity` tokens."
            )
        held_message(what, after_all, token * capacity, config)
        if got["unknown"] > token * capacity / 4:
            raise check.CheckFailed(f"{what}: {got['unknown']} bytes came from outside torch; keep tensors.")
        if not got["refused"]:
            raise check.CheckFailed(f"{what} took a token more than it has room for; raise an error instead.")


verdict_cache_bytes([(WIDE, 2, 40, 30, torch.float32)])
### BEGIN HIDDEN TESTS
verdict_cache_bytes([(WIDE, 1, 50, 20, torch.bfloat16)])
verdict_cache_bytes([(replace(WIDE, kv_heads=1, layers=3), 2, 36, 30, torch.float32)])
### END HIDDEN TESTS

# %% test="cache_step" points=1
def probe_cache_step(cases):
    unwritten_is_nan()
    results = []
    for config, batch, prompt in cases:
        model, tokens = model_of(config, 13), draw_tokens(13, batch, prompt + 3)
        positions = counted_up(batch, prompt + 3)
        cache = KVCache(config, batch, prompt + 3, torch.float32)
        with torch.no_grad():
            model(tokens[:, :prompt], positions[:, :prompt], cache.attention)
            with LiveBytes() as live, Work() as work:
                logits = []
                for at in range(prompt, prompt + 3):
                    part = slice(at, at + 1)
                    logits.append(model(tokens[:, part], positions[:, part], cache.attention))
        results.append({"peak": live.peak(), "weight_flops": work.weight_flops, "logits": torch.cat(logits, 1)})
    return results


def verdict_cache_step(cases):
    for got, (config, batch, prompt) in zip(run_alone(probe_cache_step, cases), cases, strict=True):
        what = f"KVCache, three decode steps after {prompt} tokens"
        model, tokens = model_of(config, 13), draw_tokens(13, batch, prompt + 3)
        want = model(tokens)[:, prompt:]
        check.agree(got["logits"], want, f"{what}: the logits", rtol=1e-3, atol=2e-3)
        keys = 4 * batch * config.kv_heads * config.head_dim * prompt
        if got["peak"] > 0.75 * keys:
            raise check.CheckFailed(
                f"{what}: {got['peak']} bytes were allocated at once; the keys of one layer are {keys}. The history is "
                "copied in every step (torch.cat, repeated heads, an index, or a product that cannot read the layout?)."
            )


verdict_cache_step([(TALL, 2, 200)])
### BEGIN HIDDEN TESTS
verdict_cache_step([(replace(TALL, kv_heads=3), 1, 300)])
### END HIDDEN TESTS

# %% [markdown]
# # Part 3. A batch that generates
#
# ## left_pad
#
# `left_pad(prompts)`: lists of token numbers, none empty, of any lengths. Returns `tokens` and `positions`,
# both `[B, S]` of int64 with S the longest prompt: prompts stand at the **right**, padding before them.
# Padding has token 0 and position -1; positions of a prompt count from 0.
#
# *Example:* `[[7, 8], [4, 5, 6]]` gives tokens [[0, 7, 8], [4, 5, 6]] and positions [[-1, 0, 1], [0, 1, 2]].
# Then all rows continue in the same column.
#
# ## generate
#
# `generate(model, prompts, max_new_tokens, eos)`: continues every prompt greedily (贪心): the next token is
# the one with the largest logit. Returns a list of lists: for each prompt its **new** tokens, at most
# `max_new_tokens`, ending with `eos` where that came up (`None`: there is no such token). All prompts run
# as one batch; each gets what it would get alone.
#
# A row that has finished must not stop the others, and what the batch still computes for it is thrown away.
# When all rows have finished no more work is done. **Each row counts its own positions**: the new token of a
# prompt of 3 tokens stands at position 3, however much padding there is, in its query and in its key.
#
# *Target:* the prompt goes through the model once, each new token once: B (S + new - 1) tokens in all, in at
# most `max_new_tokens` + 1 calls. No gradients are recorded. *Size:* about 5 and 15 lines.

# %% solution="generate"
def left_pad(prompts: list[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    ### BEGIN SOLUTION
    longest = max(len(prompt) for prompt in prompts)
    tokens, positions = torch.zeros(len(prompts), longest).long(), torch.full((len(prompts), longest), -1)
    for row, prompt in enumerate(prompts):
        tokens[row, longest - len(prompt) :] = torch.tensor(prompt)
        positions[row, longest - len(prompt) :] = torch.arange(len(prompt))
    return tokens, positions
    ### END SOLUTION


def generate(
    model: Decoder, prompts: list[list[int]], max_new_tokens: int, eos: int | None = None
) -> list[list[int]]:
    ### BEGIN SOLUTION
    tokens, positions = left_pad(prompts)
    cache = KVCache(model.config, len(prompts), tokens.shape[1] + max_new_tokens)
    rows, finished = [[] for _ in prompts], [False] * len(prompts)
    with torch.no_grad():
        while len(max(rows, key=len)) < max_new_tokens and not all(finished):
            logits = model(tokens, positions, cache.attention)[:, -1]
            tokens, positions = logits.argmax(-1, keepdim=True), positions[:, -1:] + 1
            for row, token in enumerate(tokens[:, 0].tolist()):
                if not finished[row]:
                    rows[row].append(token)
                    finished[row] = token == eos
    return rows
    ### END SOLUTION


# %% test="left_pad_rows" points=1
def probe_left_pad(cases):
    return [{"tokens": tokens, "positions": positions} for tokens, positions in map(left_pad, cases)]


def verdict_left_pad(cases):
    for got, prompts in zip(run_alone(probe_left_pad, cases), cases, strict=True):
        longest, what = max(map(len, prompts)), f"left_pad({prompts})"
        pads = [[0] * (longest - len(prompt)) for prompt in prompts]
        want = torch.tensor([pad + prompt for pad, prompt in zip(pads, prompts, strict=True)])
        right = torch.tensor([prompt + pad for pad, prompt in zip(pads, prompts, strict=True)])
        check.outcome(got["tokens"], want, f"{what}: tokens", {"the padding stands at the right": right})
        want = torch.tensor([[-1] * len(pad) + [*range(longest - len(pad))] for pad in pads])
        columns = torch.arange(longest).repeat(len(prompts), 1)
        mistakes = {
            "these are the columns; a prompt counts from its own first token, padding has -1": columns,
            "padding counts too; it has position -1": torch.where(want < 0, columns, want),
            "padding counts too, as 0; it has position -1": want.clamp(min=0),
                "the padding is marked, but prompts count from the column; they count from 0": torch.where(
                want < 0, want, columns
            ),
        }
        check.outcome(got["positions"], want, f"{what}: positions", mistakes)


verdict_left_pad([[[7, 8], [4, 5, 6]]])
### BEGIN HIDDEN TESTS
verdict_left_pad([[[9]], [[1, 2, 3, 4], [5], [6, 7, 8]], [[3, 3], [2, 2]]])
### END HIDDEN TESTS

# %% shared="greedy_rows"
def slipped(slip: str | None, pad: int, prompt: int, made: int) -> list[int]:
    """Positions of a padded row: pads, a prompt of so many tokens, so many new ones; `slip` is a mistake or None."""
    own, columns = [*range(prompt + made)], [*range(pad, pad + prompt + made)]
    if slip == "shared":
        own[prompt:] = columns[prompt:]
    if slip == "behind":
        own[:prompt] = columns[:prompt]
    return [0 if slip == "pads" else -1] * pad + own


SLIPS = {
    "shared": "prompts have their own positions, and new tokens stand at the padded width: one position for the whole "
    "batch",
    "behind": "prompts stand at their columns, and new tokens at their own positions",
    "pads": "padding is seen",
}


def greedy(model: Decoder, prompts: list, new: int, eos: int | None = None, slip: str | None = None) -> list:
    """For oracles: each prompt alone, by full forward passes; with `slip` padded, and with that mistake."""
    longest, rows = max(map(len, prompts)), []
    for prompt in prompts:
        pad, made = (longest - len(prompt) if slip else 0), []
        while len(made) < new and eos not in made:
            positions = torch.tensor([slipped(slip, pad, len(prompt), len(made))])
            mask = may_see(positions.tolist(), positions.tolist()).tril()  # keys of later tokens are not there yet
            logits = full_logits(model, torch.tensor([[0] * pad + prompt + made]), positions, mask)
            made.append(int(logits[0, -1].argmax()))
        rows.append(made)
    return rows


def lists_of_tokens(value: object, what: str) -> list[list[int]]:
    """`value` as a list of lists of whole numbers, or CheckFailed."""
    if not isinstance(value, (list, tuple)) or not all(isinstance(row, (list, tuple)) for row in value):
        raise check.CheckFailed(f"{what} returned {type(value).__name__}; a list of lists of token numbers is wanted.")
    if not all(isinstance(token, int) and not isinstance(token, bool) for row in value for token in row):
        raise check.CheckFailed(f"{what}: tokens must be plain whole numbers, as tensor.tolist() and int() give.")
    return [list(row) for row in value]


def generated_hold(results: list, cases: list) -> None:
    """For verdicts: what `generate` gave for each case is what each prompt gives alone."""
    for got, (config, seed, prompts, new, eos) in zip(results, cases, strict=True):
        lengths = [len(prompt) for prompt in prompts]
        what = f"generate (prompts of {lengths} tokens, max_new_tokens {new}, eos {eos})"
        model, rows = model_of(config, seed), lists_of_tokens(got["rows"], what)
        want = greedy(model, prompts, new, eos)
        if got["prompts"] != prompts:
            raise check.CheckFailed(f"{what}: the prompts were changed; leave them as they are.")
        if rows != want:
            cause = generate_mistake(model, rows, want, prompts, new, eos)
            if cause is None:
                wrong = next(row for row, tokens in enumerate(want) if row >= len(rows) or rows[row] != tokens)
                seen = rows[wrong] if wrong < len(rows) else "missing"
                cause = f"row {wrong} is {seen}; alone this prompt gives {want[wrong]}"
            raise check.CheckFailed(f"{what}: {cause}.")


def generate_mistake(model, rows, want, prompts, new, eos) -> str | None:
    """What wrong rows look like, in words."""
    if rows == [prompt + row for prompt, row in zip(prompts, want, strict=True)]:
        return "the prompts are in it; only the new tokens are wanted"
    if eos is not None and rows == greedy(model, prompts, new):
        return "rows go on behind eos"
    if eos is not None and rows == [row[:-1] if row[-1:] == [eos] else row for row in want]:
        return "eos itself is missing at the end of a row"
    for slip, cause in SLIPS.items():
        if rows == greedy(model, prompts, new, eos, slip):
            return f"{cause}. Every row must be what it is alone"
    if eos is not None and len(rows) == len(want) and all(
        row == full[: len(row)] for row, full in zip(rows, want, strict=True)
    ):
        return "some rows are too short; a finished row must not stop the others"
    return None


# %% test="generate_rows" points=1
def probe_generate(cases):
    unwritten_is_nan()
    results = []
    for config, seed, prompts, new, eos in cases:
        given = [list(prompt) for prompt in prompts]
        results.append({"rows": generate(model_of(config, seed), given, new, eos), "prompts": given})
    return results


def verdict_generate(cases):
    generated_hold(run_alone(probe_generate, cases), cases)


verdict_generate([(SMALL, 14, [[1, 2, 3]], 6, None), (SMALL, 14, [[1, 2, 3], [9, 8, 7]], 3, None)])
### BEGIN HIDDEN TESTS
verdict_generate([(replace(SMALL, kv_heads=3), 15, [[5, 6, 7, 8]], 8, None), (SMALL, 16, [[3], [4]], 7, None)])
verdict_generate([(SMALL, 17, [[2, 1, 2]], 1, None)])
### END HIDDEN TESTS

# %% test="generate_ragged" points=1
def probe_generate_ragged(cases):
    unwritten_is_nan()
    results = []
    for config, seed, prompts, new, eos in cases:
        given = [list(prompt) for prompt in prompts]
        results.append({"rows": generate(model_of(config, seed), given, new, eos), "prompts": given})
    return results


def verdict_generate_ragged(cases):
    generated_hold(run_alone(probe_generate_ragged, cases), cases)


verdict_generate_ragged([(SMALL, 18, [[7, 8], [4, 5, 6, 3, 2]], 5, None)])
### BEGIN HIDDEN TESTS
prompts = [[1, 2, 3, 4, 5, 6, 7], [8], [9, 3, 1]]
free = greedy(model_of(SMALL, 19), prompts, 6)
for eos in {free[0][1], free[1][2], free[2][0]}:  # each ends rows at different times
    verdict_generate_ragged([(SMALL, 19, prompts, 6, eos)])
verdict_generate_ragged([(replace(SMALL, kv_heads=1), 20, prompts, 6, None)])
### END HIDDEN TESTS

# %% test="generate_work" points=1
def probe_generate_work(cases):
    results = []
    for config, seed, prompts, new, eos in cases:
        model, calls = model_of(config, seed), []
        model.register_forward_pre_hook(lambda module, args, calls=calls: calls.append(list(args[0].shape)))
        with Work() as work:
            rows = generate(model, [list(prompt) for prompt in prompts], new, eos)
        results.append({"rows": rows, "calls": calls, "flops": work.weight_flops})
    return results


def verdict_generate_work(cases):
    for got, (config, seed, prompts, new, eos) in zip(run_alone(probe_generate_work, cases), cases, strict=True):
        model, longest, batch = model_of(config, seed), max(map(len, prompts)), len(prompts)
        what = f"generate (prompts of {[len(prompt) for prompt in prompts]} tokens, max_new_tokens {new}, eos {eos})"
        rows = lists_of_tokens(got["rows"], what)
        if len(rows) != batch or not all(len(row) == new or row[-1:] == [eos] for row in rows):
            raise check.CheckFailed(f"{what}: rows are of {[len(row) for row in rows]} tokens; that is not right yet.")
        steps = max(map(len, rows))
        weights = sum(parameter.numel() for parameter in model.parameters() if parameter.dim() == 2)
        processed = got["flops"] / (2 * weights)
        target = batch * (longest + steps - 1)
        if processed > target + batch + 0.5:
            cause = "work went on when all rows had finished"
            if any(shape[-1] > 1 for shape in got["calls"][1:]):
                cause = "the whole history goes through in every step; the cache holds its keys and values, and only "
                cause += "the new token is needed"
            raise check.CheckFailed(
                f"{what}: {processed:.0f} tokens went through the model's weights (counted in FLOPs; the first calls "
                f"were of {got['calls'][:4]} tokens); {target} are enough: {cause}."
            )
        if got["flops"] and len(got["calls"]) > steps + 1:
            raise check.CheckFailed(
                f"{what}: the model was called {len(got['calls'])} times for {steps} tokens a row; run all rows as one "
                "batch, once for the prompts and once for each further token."
            )
        if processed < max(map(len, prompts)):
            raise check.CheckFailed(f"{what}: hardly any product ran; call the model with torch tensors.")


verdict_generate_work([(SMALL, 21, [[1, 2, 3], [4, 5, 6]], 6, None)])
### BEGIN HIDDEN TESTS
free = greedy(model_of(SMALL, 22), [[5, 1, 4, 2]], 9)[0]
verdict_generate_work([(SMALL, 22, [[5, 1, 4, 2]], 9, None), (SMALL, 22, [[5, 1, 4, 2]], 30, free[3])])
verdict_generate_work([(replace(SMALL, kv_heads=6), 23, [[3], [1, 2, 3, 4], [7, 9]], 7, None)])
### END HIDDEN TESTS

# %% [markdown]
# # Part 4. A sliding window
#
# ## WindowCache
#
# In a model with *sliding-window attention* (滑动窗口注意力) a token sees only the last `window` tokens, its own
# included. Then older keys need not be kept: the cache stops growing.
#
# `WindowCache(config, batch, window, dtype)` with an `attention` as above; it makes room for `window` tokens,
# however long the sequence becomes. Calls may bring any number of tokens, more than `window` too; rows may
# have padding on the left (position -1).
#
# *Careful:* a call of 7 tokens with a window of 4. Its first query needs keys that the call's last ones push
# out. So the queries read before anything is overwritten: the kept keys **and** all of the call's.
#
# *Example*, window 2, calls of 3 and 1 tokens: token 2 sees tokens 1 and 2. After the first call the cache
# holds tokens 1 and 2 (or room for two, with these in it); token 3 sees tokens 2 and 3.
#
# *Target:* between calls L x B x window x 2 x K x D x bytes are held, with 15 % for the rest. A *view* of the
# last `window` places keeps all of the larger tensor alive. *Size:* about 15 lines.

# %% solution="window_cache"
class WindowCache:
    def __init__(self, config: DecoderConfig, batch: int, window: int, dtype: torch.dtype = torch.float32):
        ### BEGIN SOLUTION
        self.window = window
        shape = (batch, config.kv_heads, 0, config.head_dim)
        self.kept = [(torch.zeros(shape, dtype=dtype),) * 2 + (torch.zeros(batch, 0).long(),)] * config.layers
        ### END SOLUTION

    def attention(
        self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, positions: torch.Tensor
    ) -> torch.Tensor:
        ### BEGIN SOLUTION
        keys, values, places = self.kept[layer]
        keys, values = torch.cat([keys, k], 2), torch.cat([values, v], 2)
        places = torch.cat([places, positions], 1)
        last = slice(max(places.shape[1] - self.window, 0), None)
        self.kept[layer] = (keys[:, :, last].clone(), values[:, :, last].clone(), places[:, last].clone())
        return gqa_attention(q, keys, values, visible(positions, places, self.window))
        ### END SOLUTION


# %% test="window_values" points=1
def probe_window(cases):
    unwritten_is_nan()
    results = []
    for config, seed, positions, calls, window in cases:
        positions = torch.tensor(positions)
        cache = WindowCache(config, len(positions), window, torch.float32)
        tokens = draw_tokens(seed, *positions.shape)
        results.append(cached_run(model_of(config, seed), cache, tokens, positions, calls))
    return results


def verdict_window(cases):
    for logits, (*case, window) in zip(run_alone(probe_window, cases), cases, strict=True):
        rows_hold([logits], [case], f"WindowCache of {window}", window)


verdict_window([(SMALL, 24, [[0, 1, 2, 3, 4, 5, 6]], [3, 1, 1, 1, 1], 4)])
### BEGIN HIDDEN TESTS
ten, padded = [*range(10)], [-1, -1, *range(8)]
verdict_window([(SMALL, 25, [ten, padded], [3, 1, 1, 1, 1, 1, 1, 1], 3), (SMALL, 26, [ten], [1] * 10, 4)])
verdict_window([(replace(SMALL, kv_heads=6), 27, [ten], [4, 1, 1, 1, 1, 1, 1], 100)])
### END HIDDEN TESTS

# %% test="window_long_calls" points=1
def probe_window_long(cases):
    unwritten_is_nan()
    results = []
    for config, seed, positions, calls, window in cases:
        positions = torch.tensor(positions)
        cache = WindowCache(config, len(positions), window, torch.float32)
        tokens = draw_tokens(seed, *positions.shape)
        results.append(cached_run(model_of(config, seed), cache, tokens, positions, calls))
    return results


def verdict_window_long(cases):
    for logits, (*case, window) in zip(run_alone(probe_window_long, cases), cases, strict=True):
        rows_hold([logits], [case], f"WindowCache of {window}", window)


verdict_window_long([(SMALL, 28, [[*range(9)]], [7, 1, 1], 4)])
### BEGIN HIDDEN TESTS
verdict_window_long([(SMALL, 29, [[*range(12)], [-1, -1, *range(10)]], [5, 6, 1], 4)])
verdict_window_long([(replace(SMALL, kv_heads=1), 30, [[*range(9)]], [2, 5, 2], 3)])
verdict_window_long([(SMALL, 31, [[*range(5)]], [4, 1], 1)])
### END HIDDEN TESTS

# %% test="window_bytes" points=1
def probe_window_bytes(cases):
    results = []
    for config, batch, window, calls in cases:
        model, tokens, held = model_of(config, 32), draw_tokens(32, batch, sum(calls)), []
        positions, start = counted_up(batch, sum(calls)), 0
        with torch.no_grad(), LiveBytes([*model.parameters(), tokens, positions]) as live:
            before = live.now()
            cache = WindowCache(config, batch, window, torch.float32)
            for size in calls:
                part = slice(start, start + size)
                model(tokens[:, part], positions[:, part], cache.attention)
                held.append(live.now() - before)
                start += size
        results.append({"held": held, "unknown": live.unknown()})
    return results


def verdict_window_bytes(cases):
    for got, (config, batch, window, calls) in zip(run_alone(probe_window_bytes, cases), cases, strict=True):
        token = config.layers * batch * 2 * config.kv_heads * config.head_dim * 4
        what = f"WindowCache of {window} (calls of {calls} tokens)"
        for number, (held, size) in enumerate(zip(got["held"], calls, strict=True)):
            count = sum(calls[: number + 1])
            if count >= window:
                read = min(count - size, window) + size  # the tokens that this call could see
                most = read if held < 1.1 * token * read else count
                held_message(f"{what}, after {count} tokens,", held, token * window, config, most / window)
        if got["unknown"] > token * window / 4:
            raise check.CheckFailed(f"{what}: {got['unknown']} bytes came from outside torch; keep tensors.")


verdict_window_bytes([(WIDE, 2, 16, [44, 1, 1])])
### BEGIN HIDDEN TESTS
verdict_window_bytes([(WIDE, 1, 24, [20, 20, 20, 1]), (replace(WIDE, kv_heads=1, layers=3), 2, 16, [30] + [1] * 20)])
### END HIDDEN TESTS

# %% [markdown]
# # Part 5. Sampling
#
# ## next_token_probabilities
#
# `next_token_probabilities(logits, temperature, top_k, top_p)`: logits `[B, V]` give the probabilities
# `[B, V]`, float32, from which the next token is drawn. In this order:
#
# 1. *Temperature* (温度) T: softmax(logits / T). T = 0 means greedy: probability 1 for one token with the
#    largest logit.
# 2. *Top-k*: the k likeliest tokens stay, **exactly** k of them (all, if V < k; of tokens with equal logits
#    any may stay). `None`: all.
# 3. *Top-p* (nucleus sampling, 核采样): of what is left, renormalised, the **smallest** number of likeliest
#    tokens whose probabilities add up to at least p. The likeliest always stays; with p = 1 all stay.
#
# What stays is renormalised to sum 1; all others have exactly 0. A logit of -inf is a token that is ruled
# out. logits may be bfloat16: compute in float32. They keep their values.
#
# *Example*, probabilities [0.5, 0.3, 0.15, 0.05]: p = 0.7 keeps two (0.5 is not enough, 0.8 is): [0.625,
# 0.375, 0, 0]. p = 0.4 keeps one, p = 0.000001 too.
#
# *Size:* about 15 lines.

# %% solution="next_token_probabilities"
def next_token_probabilities(
    logits: torch.Tensor, temperature: float = 1.0, top_k: int | None = None, top_p: float = 1.0
) -> torch.Tensor:
    ### BEGIN SOLUTION
    logits = logits.float()
    if temperature == 0:
        return F.one_hot(logits.argmax(-1), logits.shape[-1]).float()
    values, order = (logits / temperature).softmax(-1).sort(-1, descending=True)
    if top_k is not None:
        values[:, top_k:] = 0
        values /= values.sum(-1, keepdim=True)
    if top_p < 1:
        before = values.cumsum(-1) - values
        values[:, 1:].masked_fill_(before[:, 1:] >= top_p, 0)
        values /= values.sum(-1, keepdim=True)
    return torch.zeros_like(values).scatter(-1, order, values)
    ### END SOLUTION


# %% shared="sampling_oracle"
def kept_probabilities(logits: list[float], temperature=1.0, top_k=None, top_p=1.0, slip=None) -> torch.Tensor:
    """For oracles: one row, token by token, in Python's float64; `slip` is a mistake or None."""
    scale = 1 / temperature if slip != "multiplied" else temperature
    top = max(logits)
    weights = [math.exp((x - top) * scale) for x in logits]
    order = sorted(range(len(logits)), key=lambda token: -weights[token])
    kept = order[: None if top_k is None else top_k + (slip == "one more")]
    if slip == "ties" and top_k:
        kept = [token for token in order if weights[token] >= weights[kept[-1]]]
    pool = sum(weights[token] for token in (order if slip == "not renormalised between" else kept))
    nucleus, total = [], 0.0
    for token in kept:
        crosses = total + weights[token] / pool > top_p
        if (total >= top_p or (crosses and slip == "crossing dropped")) and (nucleus or slip == "nothing kept"):
            break
        nucleus.append(token)
        total += weights[token] / pool
    if top_p == 1 and slip != "greedy at one":
        nucleus = kept
    nucleus = nucleus[:1] if top_p == 1 and slip == "greedy at one" else nucleus
    mass = sum(weights[token] for token in nucleus) or 1.0
    mass = sum(weights) if slip == "not renormalised" else mass
    result = [0.0] * len(logits)
    for token in nucleus:
        result[token] = weights[token] / mass
    return torch.tensor(result)


def probabilities_hold(results: list, cases: list) -> None:
    """For verdicts: what `next_token_probabilities` gave for each case."""
    for got, (rows, temperature, top_k, top_p, dtype) in zip(results, cases, strict=True):
        given = torch.tensor(rows, dtype=dtype)
        settings = f"temperature {temperature}, top_k {top_k}, top_p {top_p}"
        what = f"next_token_probabilities ({len(rows)} x {len(rows[0])} logits, {settings})"
        check.agree(got["logits"], given, f"{what}: the logits after the call, which stay unchanged", rtol=0, atol=0)
        if not isinstance(got["p"], torch.Tensor) or got["p"].shape != given.shape or got["p"].dtype != torch.float32:
            raise check.CheckFailed(f"{what}: a float32 tensor of shape {tuple(given.shape)} is wanted.")
        for row, logits in enumerate(given.float().tolist()):
            one_row_holds(got["p"][row], logits, temperature, top_k, top_p, f"{what}, row {row}")


def one_row_holds(seen, logits, temperature, top_k, top_p, what) -> None:
    if seen.isnan().any():
        raise check.CheckFailed(f"{what}: NaN; was something divided by 0, or everything ruled out?")
    settings = (temperature, top_k, top_p)
    want = kept_probabilities(logits, *settings) if temperature else kept_probabilities(logits, 1.0, 1)
    if matches(seen, want, logits):
        return
    slips = {
        "one more": "one token more than k stays",
        "ties": "all tokens that are as likely as the k-th stay; exactly k are wanted",
        "crossing dropped": "the token with which the sum reaches p is missing; it belongs to the nucleus",
        "nothing kept": "no token is left; the likeliest always stays",
        "greedy at one": "top_p = 1 keeps all tokens, and here one is left",
        "multiplied": "the logits were multiplied by the temperature; they are divided",
        "not renormalised": "what stays was not renormalised to sum 1",
        "not renormalised between": "top-p went by the probabilities before top-k; renormalise what top-k leaves first",
    }
    if temperature:
        for slip, cause in slips.items():
            wrong = kept_probabilities(logits, *settings, slip)
            if matches(seen, wrong, logits) and not matches(want, wrong, logits):
                raise check.CheckFailed(f"{what}: {cause}.")
    count, kept = int((want > 0).sum()), int((seen > 0).sum())
    if kept != count:
        raise check.CheckFailed(f"{what}: {kept} tokens have a probability above 0; {count} are to stay.")
    if abs(float(seen.sum()) - 1) > 1e-4:
        raise check.CheckFailed(f"{what}: the probabilities add up to {float(seen.sum()):.4g}, not to 1.")
    check.agree(seen.sort(descending=True)[0], want.sort(descending=True)[0], f"{what}, sorted", rtol=1e-3, atol=1e-6)
    raise check.CheckFailed(f"{what}: the right probabilities, on the wrong tokens. Were they put back after sorting?")


def matches(seen: torch.Tensor, want: torch.Tensor, logits: list[float]) -> bool:
    """The same probabilities on tokens of the same logits; which of equal tokens stay is free."""
    if int((seen > 0).sum()) != int((want > 0).sum()):
        return False
    if not torch.allclose(seen.sort(descending=True)[0], want.sort(descending=True)[0], rtol=1e-3, atol=1e-6):
        return False
    values, kept = torch.tensor(logits), want > 0
    if not torch.equal(values[seen > 0].sort()[0], values[kept].sort()[0]):
        return False
    wanted = dict(zip(values[kept].tolist(), want[kept].tolist(), strict=True))
    return all(math.isclose(p, wanted[logits[token]], rel_tol=1e-3, abs_tol=1e-6)
               for token, p in enumerate(seen.tolist()) if p > 0)  # fmt: skip


def log_rows(*rows: list[float]) -> list[list[float]]:
    """Logits of these probabilities."""
    return [[math.log(p) if p else -math.inf for p in row] for row in rows]


# %% test="sampling_temperature" points=1
def probe_temperature(cases):
    results = []
    for rows, temperature, top_k, top_p, dtype in cases:
        logits = torch.tensor(rows, dtype=dtype)
        results.append({"p": next_token_probabilities(logits, temperature, top_k, top_p), "logits": logits})
    return results


def verdict_temperature(cases):
    probabilities_hold(run_alone(probe_temperature, cases), cases)


rows = [[2.0, 1.0, 0.0, -1.0], [0.5, 3.0, 0.5, -2.0]]
verdict_temperature([(rows, heat, None, 1.0, torch.float32) for heat in (1.0, 0.5, 0)])
### BEGIN HIDDEN TESTS
large = [[1000.0, 999.0, -1000.0], [-5000.0, -5001.0, -math.inf]]
verdict_temperature([(large, 2.0, None, 1.0, torch.float32), (large, 0, None, 1.0, torch.float32)])
verdict_temperature([([[1.0, 4.0, 4.0, 0.0]], 0, None, 1.0, torch.float32), (rows, 0, 3, 0.9, torch.float32)])
verdict_temperature([(rows, 3.0, None, 1.0, torch.bfloat16)])
### END HIDDEN TESTS

# %% test="sampling_top_k" points=1
def probe_top_k(cases):
    results = []
    for rows, temperature, top_k, top_p, dtype in cases:
        logits = torch.tensor(rows, dtype=dtype)
        results.append({"p": next_token_probabilities(logits, temperature, top_k, top_p), "logits": logits})
    return results


def verdict_top_k(cases):
    probabilities_hold(run_alone(probe_top_k, cases), cases)


rows = log_rows([0.3, 0.5, 0.05, 0.15], [0.1, 0.2, 0.3, 0.4])
verdict_top_k([(rows, 1.0, 2, 1.0, torch.float32), (rows, 1.0, 1, 1.0, torch.float32)])
### BEGIN HIDDEN TESTS
ties = [[1.0, 2.0, 2.0, 2.0, 2.0], [5.0, 5.0, 5.0, 5.0, 5.0]]
verdict_top_k([(ties, 1.0, 2, 1.0, torch.float32), (ties, 0.7, 1, 1.0, torch.float32)])
verdict_top_k([(ties, 1.0, 4, 1.0, torch.bfloat16)])
verdict_top_k([(rows, heat, k, 1.0, torch.float32) for heat, k in ((2.0, 3), (1.0, 100), (1.0, 4))])
### END HIDDEN TESTS

# %% test="sampling_top_p" points=1
def probe_top_p(cases):
    results = []
    for rows, temperature, top_k, top_p, dtype in cases:
        logits = torch.tensor(rows, dtype=dtype)
        results.append({"p": next_token_probabilities(logits, temperature, top_k, top_p), "logits": logits})
    return results


def verdict_top_p(cases):
    probabilities_hold(run_alone(probe_top_p, cases), cases)


rows = log_rows([0.5, 0.3, 0.15, 0.05], [0.05, 0.12, 0.23, 0.6])
verdict_top_p([(rows, 1.0, None, 0.7, torch.float32), (rows, 1.0, None, 0.4, torch.float32)])
### BEGIN HIDDEN TESTS
spread = [[math.sin(7 * token) for token in range(500)], [math.cos(token) / 8 for token in range(500)]]
verdict_top_p([(rows, 1.0, None, 1e-8, torch.float32), (spread, 1.0, None, 1e-8, torch.bfloat16)])
verdict_top_p([(rows, 1.0, None, 1.0, torch.float32), (spread, 0.5, None, 1.0, torch.float32)])
verdict_top_p([(rows, heat, k, p, torch.float32) for heat, k, p in ((1.0, 3, 0.58), (2.0, None, 0.55), (1.0, 2, 0.9))])
verdict_top_p([(log_rows([0.0, 0.4, 0.0, 0.6]), 1.0, None, 0.7, torch.float32)])
### END HIDDEN TESTS

# %% [markdown]
# # Part 6. What a step costs, and questions
#
# ## decode_costs
#
# `decode_costs(config, batch, context)`: one decode step of `batch` rows. Each row's new token attends to
# `context` keys, its own among them. Everything is float32 (4 bytes). Returns a dictionary:
#
# - `"cache_bytes"`: bytes of all keys and values that the step reads.
# - `"flops"`: floating-point operations of all products: 2mkn for `[m, k] x [k, n]`. With weights: query,
#   key, value and output projection, the gated feed-forward's three, and the output layer (V columns). And
#   the two of attention.
# - `"bytes_read"`: bytes of all weight matrices in these products, each read once for the whole batch, and
#   the cache. (Activations are small; leave them out.)
#
# *Example*, `DecoderConfig(vocab_size=10, hidden=8, layers=1, heads=2, kv_heads=1, ffn=12)`, batch 1,
# context 3: the cache is 1 x 1 x 3 x 2 x 1 x 4 x 4 = 96 bytes. The weights are 2 x 64 + 2 x 32 (attention),
# 3 x 96 (feed-forward), 80 (output): 560. So 1120 + 4 x 8 x 3 = 1216 FLOPs, and 2240 + 96 = 2336 bytes.
#
# *Size:* about 8 lines.

# %% solution="decode_costs"
def decode_costs(config: DecoderConfig, batch: int, context: int) -> dict[str, int]:
    ### BEGIN SOLUTION
    h, kv = config.hidden, config.kv_heads * config.head_dim
    weights = config.layers * (2 * h * h + 2 * h * kv + 3 * h * config.ffn) + h * config.vocab_size
    cache = config.layers * batch * context * 2 * kv * 4
    flops = 2 * batch * weights + 4 * config.layers * batch * h * context
    return {"cache_bytes": cache, "flops": flops, "bytes_read": 4 * weights + cache}
    ### END SOLUTION


# %% test="costs" points=1
def probe_costs(cases):
    return [decode_costs(*case) for case in cases]


def counted_costs(config, batch, context):
    """FLOPs by torch's formulas, and bytes of the tensors that a step of the model really multiplies."""
    cached = []

    def attention(layer, q, k, v, positions):
        cached.extend(torch.zeros(batch, config.kv_heads, context, config.head_dim) for _ in "kv")
        return F.scaled_dot_product_attention(q, cached[-2], cached[-1], enable_gqa=True)

    model = Decoder(config)
    with torch.no_grad(), Work() as work:
        model(torch.zeros(batch, 1).long(), attention=attention)
    cache = sum(tensor.numel() * 4 for tensor in cached)
    matrices = sum(4 * weight.numel() for weight in model.parameters() if weight.dim() == 2)
    looked_up = 0 if config.tied else 4 * config.vocab_size * config.hidden  # an embedding that no product reads
    return {"cache_bytes": cache, "flops": work.flops, "bytes_read": cache + matrices - looked_up}


def cost_mistakes(config, batch, context, key):
    def other(batch=batch, context=context, **changes):
        return counted_costs(replace(config, **changes), batch, context)[key]

    right = counted_costs(config, batch, context)
    weights = right["bytes_read"] - right["cache_bytes"]
    mistakes = {
        "there are only K key and value heads": other(kv_heads=config.heads),
        "the cache is of all rows of the batch": other(batch=1),
        "every layer has keys and values of its own": other(layers=1),
    }
    if key == "cache_bytes":
        mistakes["keys and values: two tensors"] = right[key] / 2
        mistakes["bytes are wanted, not elements"] = right[key] / 4
        mistakes["only K and V are cached; no Q"] = right[key] * (1 + config.heads / config.kv_heads / 2)
    if key == "flops":
        mistakes["a multiply-add is two operations"] = right[key] / 2
        mistakes["the output layer is missing"] = right[key] - 2 * batch * config.vocab_size * config.hidden
        mistakes["the two products of attention are missing"] = 2 * batch * weights // 4
        mistakes["the gated feed-forward has three matrices"] = right[key] - 2 * batch * config.layers * (
            config.hidden * config.ffn
        )
        attention = right[key] - 2 * batch * weights // 4
        mistakes["all N query heads attend, though they share K keys"] = (
            right[key] - attention + attention * config.kv_heads // config.heads
        )
        mistakes["only the new token goes through the weights; that is what the cache is for"] = (
            2 * batch * context * weights // 4 + attention
        )
    if key == "bytes_read":
        mistakes["the whole batch reads the weights once"] = batch * weights + right["cache_bytes"]
        mistakes["the weights are missing"] = right["cache_bytes"]
        mistakes["the cache is missing"] = weights
        mistakes["a token looks its embedding up; no product reads the table a second time"] = (
            right[key] + 4 * config.vocab_size * config.hidden
        )
    return mistakes


def verdict_costs(cases):
    for got, case in zip(run_alone(probe_costs, cases), cases, strict=True):
        got, want = check.answer(got, "decode_costs"), counted_costs(*case)
        for key, value in want.items():
            check.has_number(got, key, "decode_costs")
            what = f'decode_costs["{key}"] (batch {case[1]}, context {case[2]})'
            unit = "operations" if key == "flops" else "bytes"
            check.count(got[key], value, what, unit, lambda c=case, k=key: cost_mistakes(*c, k))


tiny = DecoderConfig(vocab_size=10, hidden=8, layers=1, heads=2, kv_heads=1, ffn=12)
verdict_costs([(tiny, 1, 3), (replace(tiny, layers=2), 2, 5)])
### BEGIN HIDDEN TESTS
verdict_costs([(SMALL, 3, 50), (replace(SMALL, kv_heads=6, tied=False), 1, 1), (replace(TALL, kv_heads=1), 8, 300)])
### END HIDDEN TESTS

# %% [markdown]
# ## Measure it
#
# The next cell is not graded. It times one decode step with your `KVCache`, and the full forward pass that
# makes the same token without one, for growing contexts, and draws the bytes that your caches hold. *Before
# you run it: which curves are straight? Where does the window's bend?*

# %%
def measured_steps(config, contexts, window):
    from time import perf_counter

    model, rows = model_of(config, 50), []
    tokens = draw_tokens(50, 1, max(contexts) + 16, vocab_size=config.vocab_size)

    def fastest(work, tries):
        seconds = []
        for _ in range(tries):
            start = perf_counter()
            work()
            seconds.append(perf_counter() - start)
        return min(seconds)

    for context in contexts:
        prompt, at = tokens[:, :context], counted_up(1, context)
        with torch.no_grad(), LiveBytes() as live:
            cache = KVCache(config, 1, context + 16)
            model(prompt, at, cache.attention)
            held = live.now()
        with torch.no_grad(), LiveBytes() as live:
            short = WindowCache(config, 1, window)
            model(prompt, at, short.attention)
            kept = live.now()
        new, places = tokens[:, context : context + 1], iter(range(context, context + 16))
        with torch.no_grad():
            step = fastest(lambda c=cache, new=new, at=places: model(new, torch.tensor([[next(at)]]), c.attention), 15)
            full = fastest(lambda prompt=prompt: model(prompt), 4)
        rows.append((step, full, held, kept))
    return rows


def measure_and_plot(contexts=(64, 128, 256, 512, 1024), window=128):
    import matplotlib.pyplot as plt

    config = DecoderConfig(vocab_size=256, hidden=128, layers=2, heads=8, kv_heads=2, ffn=344, max_len=1100)
    rows = run_alone(measured_steps, config, list(contexts), window)
    for context, (step, full, held, kept) in zip(contexts, rows, strict=True):
        times = f"step {step * 1e3:.2f} ms, full forward {full * 1e3:.2f} ms"
        print(f"context {context:4}: {times}; KVCache {held} bytes, WindowCache {kept}")
    left, right = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")[1]
    left.plot(contexts, [1e3 * row[1] for row in rows], "s--", color="#E69F00", label="full forward")
    left.plot(contexts, [1e3 * row[0] for row in rows], "o-", color="#0072B2", label="step with the cache")
    left.set(xlabel="context, tokens", ylabel="ms for one new token", ylim=(0, None))
    right.plot(contexts, [row[2] / 1024 for row in rows], "o-", color="#0072B2", label="KVCache")
    right.plot(contexts, [row[3] / 1024 for row in rows], "s--", color="#009E73", label=f"WindowCache of {window}")
    right.set(xlabel="context, tokens", ylabel="KiB held", ylim=(0, None))
    for ax in (left, right):
        ax.legend(frameon=False, fontsize=9)
        ax.spines[["top", "right"]].set_visible(False)
    plt.show()


measure_and_plot()

# %% [markdown]
# ## questions
#
# The visible tests show only whether your answer has the right form. Return one dictionary. Shapes are lists
# of whole numbers.
#
# *The lecture's test*: a log shows a tensor of shape [3, 7, 1024], which is [B, S, H].
#
# - `"requests"`: how many requests are in it? `"one_request"`: the shape of one request. `"one_token"`: the
#   shape of the fifth token of the second request.
#
# *One forward pass*: B = 2, S = 16, H = 4096, 32 query heads, 8 KV heads, a feed-forward of width 14336, a
# vocabulary of 128000.
#
# - `"embedded"`, `"queries"`, `"keys"`, `"scores"`, `"ffn_inner"`, `"logits"`: the shapes. Queries, keys and
#   scores with heads as the second dimension.
# - `"step_scores"`: the scores in a decode step of these two requests, when 16 tokens are cached.
#
# *The lecture's example*: the prompt has three tokens. The first decode step gets the new token "好".
#
# - `"first_step_sees"`: how many keys does its query see in each layer?
#
# *Targets*: the tokens [5, 8, 2, 9] are one training sequence.
#
# - `"inputs"`, `"targets"`: what the model gets, and what it must predict at each place.
#
# *Bytes*: 80 layers, 64 query heads, 8 KV heads, head_dim 128, bf16, 4 requests of 8192 tokens each.
#
# - `"kv_bytes"`: bytes of the whole KV cache.
#
# *One letter for each*:
#
# `"why_no_q"`: why does nobody cache the queries?
#
# - A: they are larger than keys and values.
# - B: a later token reads the keys and values of its history; a query is read only in the step of its own
#   token.
# - C: queries change with every new token.
# - D: they are kept, but in the weights.
#
# `"why_shift"`: why are the targets the inputs, shifted by one?
#
# - A: place i sees the tokens up to i and predicts token i + 1; so one forward pass trains at every place.
# - B: the first token is special and is left out.
# - C: otherwise the loss would be infinite.
# - D: so that the lengths of inputs and targets differ.
#
# `"prefill_bound"` and `"decode_bound"`: what mostly limits prefill, and what decode at batch 1?
#
# - A: reading weights and cache from memory.
# - B: arithmetic, in large matrix products.
# - C: the network.
# - D: sampling.
#
# `"batch_decode"`: decode of 16 requests at once, in place of one: what grows least?
#
# - A: FLOPs. B: bytes of the KV cache. C: bytes of weights read. D: tokens per step.
#
# `"ragged_positions"`: prompts of 3 and 7 tokens, left-padded. What happens if the new tokens of both rows
# get position 7?
#
# - A: nothing, RoPE is relative.
# - B: the shorter row is wrong: its query stands 7 - 3 = 4 places too far from its keys.
# - C: the longer row is wrong.
# - D: both are wrong.

# %% solution="questions"
def questions() -> dict:
    ### BEGIN SOLUTION
    return {
        "requests": 3,
        "one_request": [7, 1024],
        "one_token": [1024],
        "embedded": [2, 16, 4096],
        "queries": [2, 32, 16, 128],
        "keys": [2, 8, 16, 128],
        "scores": [2, 32, 16, 16],
        "ffn_inner": [2, 16, 14336],
        "logits": [2, 16, 128000],
        "step_scores": [2, 32, 1, 17],
        "first_step_sees": 4,
        "inputs": [5, 8, 2],
        "targets": [8, 2, 9],
        "kv_bytes": 80 * 4 * 8192 * 2 * 8 * 128 * 2,
        "why_no_q": "B",
        "why_shift": "A",
        "prefill_bound": "B",
        "decode_bound": "A",
        "batch_decode": "C",
        "ragged_positions": "B",
    }
    ### END SOLUTION


# %% test="question_values" points=1
answer = check.answer(launch(lambda: questions(), ranks=None, timeout=20).value, "questions")
SHAPES = ("one_request", "one_token", "embedded", "queries", "keys", "scores", "ffn_inner", "logits", "step_scores")
for key in (*SHAPES, "inputs", "targets"):
    check.has_list_of_ints(answer, key, "questions")
for key in ("requests", "first_step_sees", "kv_bytes"):
    check.has_number(answer, key, "questions")
for key in ("why_no_q", "why_shift", "prefill_bound", "decode_bound", "batch_decode", "ragged_positions"):
    check.has_letter(answer, key, "ABCD", "questions")
### BEGIN HIDDEN TESTS
logged = torch.zeros(3, 7, 1024)
with torch.device("meta"):  # tensors with shapes and no memory
    x = F.embedding(torch.zeros(2, 16).long(), torch.empty(128000, 4096))
    q = F.linear(x, torch.empty(4096, 4096)).unflatten(-1, (32, 128)).transpose(1, 2)
    k = F.linear(x, torch.empty(1024, 4096)).unflatten(-1, (8, 128)).transpose(1, 2)
    shared = k.repeat_interleave(4, 1).mT
    shapes = {"embedded": x, "queries": q, "keys": k, "scores": q @ shared}
    shapes |= {"ffn_inner": F.linear(x, torch.empty(14336, 4096)), "logits": F.linear(x, torch.empty(128000, 4096))}
    shapes["step_scores"] = q[:, :, -1:] @ torch.cat([shared, shared[..., :1]], -1)  # 16 cached keys and its own
    shapes = {key: list(tensor.shape) for key, tensor in shapes.items()}
sequence = torch.tensor([5, 8, 2, 9])
wanted_answers = shapes | {
    "requests": len(logged),
    "one_request": list(logged[0].shape),
    "one_token": list(logged[1, 4].shape),
    "first_step_sees": int(may_see([[3]], [[0, 1, 2, 3]]).sum()),
    "inputs": sequence[:-1].tolist(),
    "targets": sequence[1:].tolist(),
    "why_no_q": "B",
    "why_shift": "A",
    "prefill_bound": "B",
    "decode_bound": "A",
    "batch_decode": "C",
    "ragged_positions": "B",
}
check.answers_agree(answer, wanted_answers, "questions")
layer = 2 * torch.empty(4, 8, 8192, 128, dtype=torch.bfloat16, device="meta").untyped_storage().nbytes()
check.count(answer["kv_bytes"], 80 * layer, "kv_bytes", "bytes", {
    "the tokens of all requests are cached": 80 * layer // 4,
    "there are 8 KV heads, not 64": 8 * 80 * layer,
    "keys and values: two tensors": 40 * layer,
})  # fmt: skip
### END HIDDEN TESTS

# %% [markdown]
# ## What to take away
#
# - A key and a value depend on what came before them and never change. A query is used once. So K and V are
#   kept and Q is not.
# - Logits cannot tell you that the history was computed again, that heads were repeated or that everything
#   was copied. FLOPs and bytes can.
# - Who may see whom is a matter of **positions**. Where a token stands in a tensor says nothing once there
#   are caches, chunks and padding.
# - A decode step reads all weights and the whole cache for a few products with one row: it is a matter of
#   bytes. Batches share the weights; nothing shares the cache.
