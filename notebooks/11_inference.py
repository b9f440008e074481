# %% [markdown]
# # 11 · Inference: prefill, decode, and the KV cache
#
# **You will build** generation, token by token: first the plain way, then with a cache of keys and values.
# You follow the shapes through a small Llama, count what a token costs with and without the cache, predict
# the cache's bytes and measure them, find out what limits prefill and what limits decode, and see what goes
# wrong with chunks, padding and windows. Then you sample.
#
# **You need** notebook [10](10_transformer_flops.ipynb) (FLOPs), and what attention is. No ranks this time.
#
# **Time**: about 75 minutes to read and try; 35 seconds to run.
#
# This notebook shows the simple case: one sequence, a prompt and then single tokens. Lab 08 asks for
# batches, chunks, padding, windows, and for caches that copy nothing.

# %%
import math
from dataclasses import replace
from time import perf_counter

import matplotlib.pyplot as plt
import torch
import torch.nn.functional as F

from utils.memory import LiveBytes
from utils.models import Decoder, DecoderConfig, batches, full_attention, stdlib_bytes, train
from utils.pictures import draw_roofline, draw_visibility, rank_color
from utils.work import Work

torch.manual_seed(0)
torch.set_num_threads(1)  # so that times do not depend on how many cores are free

# %% [markdown]
# ## Reading shapes
#
# A language model gets token numbers and works on vectors: `[B, S, H]`, B requests (*batch size*, 批大小) of S
# tokens (*sequence length*, 序列长度), each a vector of H numbers (*hidden size*, 隐藏维度).
#
# **Predict.** The lecture's test: a log shows `[3, 7, 1024]`. What do the three numbers mean? What is the
# shape of one request, and of the fifth token of the second request?

# %%
logged = torch.zeros(3, 7, 1024)
print(f"{len(logged)} requests; one request {list(logged[1].shape)}; one token {list(logged[1, 4].shape)}")

# %% [markdown]
# Now one forward pass. The course's `Decoder` is a small Llama: RMSNorm, rotary positions (RoPE), *grouped-
# query attention* (分组查询注意力, GQA: several query heads share one key and value head), a gated feed-forward.
#
# **Predict.** B = 2, S = 16, H = 64, 4 query heads, 2 KV heads, feed-forward width 176, vocabulary 256.
# Write down the shapes of: the embedded tokens, queries, keys, scores, what leaves the attention, the inside
# of the feed-forward, the logits.

# %%
CONFIG = DecoderConfig(vocab_size=256, hidden=64, layers=2, heads=4, kv_heads=2, ffn=176, max_len=1200)
model = Decoder(CONFIG)
shapes = {}


def noting(name):
    def hook(module, inputs, output):
        shapes.setdefault(name, list(output.shape))

    return hook


def watching(layer, q, k, v, positions):
    shapes.setdefault("queries", list(q.shape))
    shapes.setdefault("keys, and values", list(k.shape))
    shapes.setdefault("scores Q K^T", [*q.shape[:3], k.shape[2]])
    y = full_attention(layer, q, k, v, positions)
    shapes.setdefault("attention's result", list(y.shape))
    return y


first = model.model.layers[0]
watched = [("embedded tokens", model.model.embed_tokens), ("attention's output", first.self_attn.o_proj)]
watched += [("inside the feed-forward", first.mlp.up_proj), ("a layer's output", first), ("logits", model.lm_head)]
hooks = [module.register_forward_hook(noting(name)) for name, module in watched]
model(torch.zeros(2, 16).long(), attention=watching)
for hook in hooks:
    hook.remove()
for name, shape in shapes.items():
    print(f"{name:>24}: {shape}")

# %% [markdown]
# The lecture's five steps, with one refinement: with GQA there are fewer keys and values than queries. The
# scores are the only thing with S twice.
#
# Is this really Llama? The weights have the names of transformers' `LlamaForCausalLM`. So the same random
# weights must give the same logits there.

# %%
def largest_difference_to_llama():
    import os

    os.environ["HF_HUB_OFFLINE"] = "1"
    from transformers.models.llama import LlamaConfig, LlamaForCausalLM

    c = CONFIG
    theirs = LlamaForCausalLM(LlamaConfig(
        vocab_size=c.vocab_size, hidden_size=c.hidden, intermediate_size=c.ffn, num_hidden_layers=c.layers,
        num_attention_heads=c.heads, num_key_value_heads=c.kv_heads, max_position_embeddings=c.max_len,
        rms_norm_eps=c.eps, tie_word_embeddings=c.tied,
        rope_parameters={"rope_type": "default", "rope_theta": c.rope_theta},
    ))  # fmt: skip
    for parameter in theirs.parameters():
        parameter.data.normal_(0.1, 0.4)
    ours, tokens = Decoder(c), torch.randint(c.vocab_size, (3, 12))
    ours.load_state_dict(theirs.state_dict())
    with torch.no_grad():
        logits = theirs(tokens).logits
        return (ours(tokens) - logits).abs().max().item(), logits.abs().max().item()


try:
    off, size = largest_difference_to_llama()
    print(f"largest difference to transformers' Llama: {off:.0e}, with logits up to {size:.0f}")
except ImportError:
    print("transformers is not installed here; with it, this cell compares the logits with its Llama")

# %% [markdown]
# ## Trained by a shift of one
#
# Before we can generate, the model must have learned. Training text is one long row of tokens, here the
# bytes of Python's own library. The inputs are x0 x1 x2 ..., the targets the same *shifted by one*: x1 x2
# x3 ... The causal mask (因果掩码) lets place i see x0 .. xi only. So one forward pass is S exercises at once:
# "what comes next", at every place.
#
# **Predict.** Text `b"import os"`. What are inputs and targets? And what would the loss do if somebody
# forgot the shift?

# %%
text = torch.tensor(list(b"import os"))
print("inputs ", bytes(text[:-1].tolist()), " targets", bytes(text[1:].tolist()))
each = F.cross_entropy(model(text[None, :-1])[0], text[1:], reduction="none")
print(f"{len(each)} losses from one pass of the untrained model:", " ".join(f"{loss:.2f}" for loss in each.tolist()))
print(f"guessing among 256: {math.log(256):.2f}")


def losses_of(shifted, steps, seed=1):
    torch.manual_seed(seed)
    learner = Decoder(CONFIG)
    data = ((tokens, targets if shifted else tokens) for tokens, targets in batches(16, 48, steps))
    return learner, train(learner, data, torch.optim.Adam(learner.parameters(), lr=4e-3))


model, losses = losses_of(True, 170)
_, unshifted = losses_of(False, 30)
model.requires_grad_(False)
print("with the shift:", " ".join(f"{loss:.2f}" for loss in losses[::20]), f"... {losses[-1]:.2f}")
print("without:       ", " ".join(f"{loss:.2f}" for loss in unshifted[::6]), f"... {unshifted[-1]:.3f}")

# %% [markdown]
# Without the shift the answer stands in the question: the model learns to copy, the loss goes to 0, and it
# has learned nothing. A training loss that is too good is the sign.
#
# ## Generating, the plain way
#
# *Autoregressive* (自回归): run the tokens so far, take the logits of the last place, choose a token, append
# it, start over.
#
# **Predict.** For each new token the whole history goes through the model again. What happens to the FLOPs
# of a step as the text grows?

# %%
PROMPT = stdlib_bytes(2**16)[700:764][None]  # 64 bytes of real code


@torch.no_grad()
def generate_plainly(model, tokens, count):
    flops = []
    for _ in range(count):
        with Work() as work:
            logits = model(tokens)
        flops.append(work.flops)
        tokens = torch.cat([tokens, logits[:, -1:].argmax(-1)], dim=1)
    return tokens, flops


plain_tokens, plain_flops = generate_plainly(model, PROMPT, 40)
print(bytes(plain_tokens[0].tolist()).decode(errors="replace"))
print(f"\nFLOPs of a step: first {plain_flops[0]:,}, last {plain_flops[-1]:,}")

# %% [markdown]
# ## What can be kept
#
# Look at one layer. The key and the value of a token depend on this token and those **before** it. Later
# tokens change nothing about them. So they can be computed once and kept: the *KV cache* (键值缓存).
#
# **Predict.** What about the queries? Who reads the query of token 5 when token 9 is being made?
#
# Nobody. A query is read once, in the step of its own token. Then it is gone. (In training the backward
# pass needs it again; in inference there is none.)
#
# The model lets a caller say how a layer attends. So a cache is a function that keeps what it gets:

# %%
class SimpleCache:
    """Keys and values of one sequence: a prompt first, then single tokens."""

    def __init__(self):
        self.kept = {}

    def attention(self, layer, q, k, v, positions):
        prompt = layer not in self.kept
        if not prompt:
            k, v = (torch.cat([old, new], dim=2) for old, new in zip(self.kept[layer], (k, v), strict=True))
        self.kept[layer] = k, v
        return F.scaled_dot_product_attention(q, k, v, is_causal=prompt, enable_gqa=True)


@torch.no_grad()
def generate_cached(model, prompt, count):
    cache, flops, tokens, made = SimpleCache(), [], prompt, []
    for step in range(count):
        at = torch.arange(prompt.shape[1]) if step == 0 else torch.tensor([prompt.shape[1] + step - 1])
        with Work() as work:
            logits = model(tokens, at, cache.attention)
        flops.append(work.flops)
        tokens = logits[:, -1:].argmax(-1)
        made.append(tokens)
    return torch.cat([prompt, *made], dim=1), flops


cached_tokens, cached_flops = generate_cached(model, PROMPT, 40)
print("the same tokens:", torch.equal(cached_tokens, plain_tokens))
print(f"FLOPs of the plain steps:   first {plain_flops[0]:,}, last {plain_flops[-1]:,}; all {sum(plain_flops):,}")
print(f"FLOPs of the cached steps:  first {cached_flops[0]:,}, last {cached_flops[-1]:,}; all {sum(cached_flops):,}")
print(f"{sum(plain_flops) / sum(cached_flops):.1f} times less work for 40 tokens")

# %% [markdown]
# The first step runs the whole prompt: *prefill* (预填充). Every later step runs one token: *decode* (解码). Same
# tokens, same model; only the FLOPs tell the two apart. So do not believe in a cache because the text is
# right.
#
# **Predict.** The lecture's example: the prompt 今天 天气 很 is three tokens; the first decode step gets 好.
# How many keys does its query see?

# %%
def seen_by_queries(prompt_length):
    cache, seen = SimpleCache(), []

    def spying(layer, q, k, v, positions):
        y = cache.attention(layer, q, k, v, positions)
        seen.append((layer, q.shape[2], cache.kept[layer][0].shape[2]))
        return y

    model(PROMPT[:, :prompt_length], torch.arange(prompt_length), spying)
    model(PROMPT[:, prompt_length : prompt_length + 1], torch.tensor([prompt_length]), spying)
    return seen


for layer, queries, keys in seen_by_queries(3):
    print(f"layer {layer}: {queries} {'queries' if queries > 1 else 'query'}, {keys} keys")

# %% [markdown]
# Three cached keys and its own: four. (The lecture says "itself and the previous four". The prompt has three
# tokens; only the **second** decode step finds four in the cache.)
#
# ## Bytes of the cache
#
# $$\text{bytes} = L \cdot \text{tokens} \cdot 2 \cdot K \cdot D \cdot \text{bytes of a number}$$
#
# with L layers, K KV heads of size D, 2 for keys **and** values, and the tokens of the whole batch together.
#
# **Predict.** Our model, 100 tokens, float32, with K = 4 (*multi-head*, MHA), 2 (GQA) and 1 (*multi-query*,
# MQA). How many bytes each?

# %%
def cache_bytes(config, tokens, width=4):
    return config.layers * tokens * 2 * config.kv_heads * config.head_dim * width


def measured_cache_bytes(config, count):
    other, tokens = Decoder(config), torch.zeros(1, count).long()
    with torch.no_grad(), LiveBytes([*other.parameters(), tokens]) as live:
        before, cache = live.now(), SimpleCache()
        other(tokens, attention=cache.attention)
        return live.now() - before


for kv_heads in (4, 2, 1):
    config = replace(CONFIG, kv_heads=kv_heads)
    print(f"K = {kv_heads}: predicted {cache_bytes(config, 100):,} bytes, held {measured_cache_bytes(config, 100):,}")
large = DecoderConfig(vocab_size=128256, hidden=8192, layers=80, heads=64, kv_heads=8, ffn=28672, max_len=8192)
print(f"80 layers, 8 KV heads of 128, bf16: {cache_bytes(large, 1, 2) / 1024:.0f} KiB a token, ", end="")
print(f"{cache_bytes(large, 8192, 2) / 2**30:.2f} GiB for one request of 8192 tokens")
print(f"with 64 KV heads: {cache_bytes(replace(large, kv_heads=64), 8192, 2) / 2**30:.0f} GiB")

# %% [markdown]
# GQA makes the cache N/K times smaller, if nobody writes the repeated heads back to memory. (torch's
# `repeat_interleave` does just that. The lab looks for it.)
#
# ## Time for a token
#
# **Predict.** A larger model (H = 192, 4 layers). How does the time for one new token grow with the context,
# without and with the cache?

# %%
def fastest(work, tries=3):
    seconds = []
    for _ in range(tries):
        start = perf_counter()
        work()
        seconds.append(perf_counter() - start)
    return min(seconds)


BIG = DecoderConfig(vocab_size=256, hidden=192, layers=4, heads=6, kv_heads=2, ffn=512, max_len=1200)
big = Decoder(BIG).requires_grad_(False)
text = stdlib_bytes(2**16)[:1200][None]
CONTEXTS = [64, 128, 256, 512, 1024]
plain_seconds, cached_seconds = [], []
for context in CONTEXTS:
    cache = SimpleCache()
    big(text[:, :context], torch.arange(context), cache.attention)
    prompt = dict(cache.kept)

    def step(context=context, cache=cache, prompt=prompt):
        cache.kept = dict(prompt)
        big(text[:, context : context + 1], torch.tensor([context]), cache.attention)

    plain_seconds.append(fastest(lambda context=context: big(text[:, : context + 1])))
    cached_seconds.append(fastest(step, tries=15))
    print(f"context {context:5}: {plain_seconds[-1] * 1e3:7.2f} ms plain, {cached_seconds[-1] * 1e3:5.2f} ms cached")
figure, ax = plt.subplots(figsize=(6, 3.4), layout="constrained")
ax.plot(CONTEXTS, [s * 1e3 for s in plain_seconds], "s--", color=rank_color(1), label="without a cache")
ax.plot(CONTEXTS, [s * 1e3 for s in cached_seconds], "o-", color=rank_color(0), label="with the cache")
ax.set(xscale="log", yscale="log", xlabel="context, tokens", ylabel="ms for one new token")
ax.set_xticks(CONTEXTS, [str(c) for c in CONTEXTS])
ax.minorticks_off()
ax.spines[["top", "right"]].set_visible(False)
ax.legend(frameon=False, fontsize=9)
plt.show()

# %% [markdown]
# Without a cache the step grows with the context, and n tokens cost about n²/2. With it the step is almost
# flat: the weights are most of it, and the cache that is read grows slowly.
#
# ## What limits prefill, what limits decode
#
# `Work` counts two things: FLOPs, and bytes of everything that goes into a product: weights, activations,
# the cache. Their ratio is the *arithmetic intensity* (算术强度), FLOPs for each byte. A machine can do so many
# FLOPs a second and read so many bytes a second; which of the two runs out first depends on that ratio.
#
# **Predict.** A weight of 4 bytes takes part in 2 FLOPs for each token. So about how many FLOPs a byte has a
# decode step at batch 1, at batch 16, and a prefill of 256 tokens?

# %%
def machine():
    """FLOP/s of a large product, bytes/s of a product with a vector, whose matrix is read once."""
    a, b = torch.randn(1024, 512), torch.randn(512, 1024)
    matrix, vector = torch.randn(4096, 4096), torch.randn(4096)
    peak = 2 * 1024 * 512 * 1024 / fastest(lambda: a @ b, tries=9)
    return peak, matrix.numel() * 4 / fastest(lambda: matrix @ vector, tries=9)


def filled(batch, context):
    """A cache of `batch` rows with `context` tokens each."""
    cache = SimpleCache()
    shape = (batch, WIDE.kv_heads, context, WIDE.head_dim)
    cache.kept = {layer: (torch.randn(shape), torch.randn(shape)) for layer in range(WIDE.layers)}
    return cache


def measured(work):
    with Work() as counted:
        work()
    return counted.flops / counted.bytes_read, counted.flops / fastest(work, tries=4)


WIDE = DecoderConfig(vocab_size=1024, hidden=768, layers=2, heads=12, kv_heads=4, ffn=2048, max_len=1200)
wide = Decoder(WIDE).requires_grad_(False)
peak, bandwidth = machine()
print(f"this machine, one thread: {peak / 1e9:.0f} GFLOP/s, {bandwidth / 1e9:.1f} GB/s, ", end="")
print(f"so arithmetic is the limit above {peak / bandwidth:.0f} FLOP a byte")
points = {"prefill": [], "decode": []}
for length in (16, 64, 256):
    intensity, speed = measured(lambda length=length: wide(text[:, :length]))
    points["prefill"].append((f"S = {length}", intensity, speed))
for batch in (1, 4, 16):
    new, cache = torch.zeros(batch, 1).long(), filled(batch, 128)

    def one_step(new=new, cache=cache):
        kept = dict(cache.kept)
        wide(new, torch.tensor([128]), cache.attention)
        cache.kept = kept

    points["decode"].append((f"B = {batch}", *measured(one_step)))
for name, group in points.items():
    for label, intensity, speed in group:
        print(f"{name:>8}, {label:>7}: {intensity:6.2f} FLOP a byte, {speed / 1e9:6.2f} GFLOP/s")
draw_roofline(peak, bandwidth, points, title="two layers of H = 768, float32")
plt.show()

# %% [markdown]
# The black line is what the machine allows: on the left bytes are the limit, on the right arithmetic.
# (Caches of the processor can lift a point over the sloping line: small weights are not read from memory
# every time.) Prefill has S rows for each weight it reads, decode one row for each request. So:
#
# - **prefill** is limited by arithmetic: large regular products, for which one splits work over cards;
# - **decode** is limited by reading weights and cache: what helps is more requests in a batch (they share
#   the weights), a smaller cache (GQA), smaller numbers (quantisation, notebook 15).
#
# More requests share the weights. They do not share the cache: at long contexts decode is slow at any batch
# size.
#
# ## A prompt in chunks
#
# A long prompt in one go needs S x S scores, and holds up everybody else's next token. *Chunked prefill*
# (分块预填充) runs it in pieces, on top of the cache.
#
# **Predict.** The second chunk: queries at positions 4 to 6, four cached keys. Which of the two pictures is
# right? `is_causal=True` in torch (and a mask made for the chunk alone) is the left one.

# %%
queries, keys = [4, 5, 6], [0, 1, 2, 3, 4, 5, 6]
corner = [[j <= i for j in range(len(keys))] for i in range(len(queries))]  # by where they stand
right = [[key <= query for key in keys] for query in queries]  # by their positions
figure, axes = plt.subplots(1, 2, figsize=(7.6, 2.3), layout="constrained")
draw_visibility(corner, queries, keys, axes[0], cached=4, title="A: from the upper left corner")
draw_visibility(right, queries, keys, axes[1], cached=4, title="B: by position")
plt.show()


def second_chunk_error(start, end, mask_of):
    """How far the logits of tokens start..end are from the full pass, with the prompt before them in the cache."""
    cache = SimpleCache()
    model(PROMPT[:, :start], torch.arange(start), cache.attention)

    def attention(layer, q, k, v, positions):
        k, v = (torch.cat([old, new], dim=2) for old, new in zip(cache.kept[layer], (k, v), strict=True))
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask_of(end - start, end), enable_gqa=True)

    got = model(PROMPT[:, start:end], torch.arange(start, end), attention)
    return (got - model(PROMPT[:, :end])[:, start:]).abs().max().item()


square = second_chunk_error(40, 48, lambda s, t: torch.ones(s, t, dtype=torch.bool).tril())
by_position = second_chunk_error(40, 48, lambda s, t: torch.arange(t) <= torch.arange(t - s, t)[:, None])
print(f"largest error of the logits: A {square:.2f}, B {by_position:.0e}")

# %% [markdown]
# A is the mask of a prompt **without** a past: token 4 sees only token 0. Real servers have had this bug; it
# needs a second chunk to show.
#
# ## Prompts of different lengths
#
# Two prompts, 3 and 7 tokens, in one batch. The shorter gets 4 pads in front (*left padding*, 左填充), so that
# both continue in the same column. Pads are hidden by the mask. But what are the positions?
#
# **Predict.** In which of these is the shorter row wrong? (a) each row counts its own tokens from 0; (b)
# both rows count columns, so the short prompt begins at 4; (c) the prompts have their own positions, and the
# new token gets the column, 7, in both rows.

# %%
PADS, SHORT = 4, 3
short = PROMPT[:, 20 : 20 + SHORT + 1]  # three tokens of the prompt, and one new one
padded = torch.cat([torch.zeros(1, PADS).long(), short], dim=1)
length = PADS + SHORT + 1
columns = torch.arange(length)
own = columns - PADS
mixed = torch.where(columns == length - 1, columns, own)
mask = (columns <= columns[:, None]) & (columns >= PADS)


def hidden_pads(layer, q, k, v, positions):
    y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)
    return torch.where(mask.any(-1)[:, None], y, 0.0)  # a pad sees nothing


alone = model(short)[:, -1]
for name, positions in (("(a) own", own), ("(b) columns", columns), ("(c) new token at its column", mixed)):
    error = (model(padded, positions[None], hidden_pads)[:, -1] - alone).abs().max().item()
    print(f"{name:>27}: positions {positions.tolist()}, logits off by {error:.1e}")
no_mask = (model(padded, own[None])[:, -1] - alone).abs().max().item()
print(f"{'own positions, pads seen':>27}: logits off by {no_mask:.1e}")

# %% [markdown]
# RoPE turns queries and keys by their positions, and a score depends only on the **difference**. So (b) is
# right too: everything is moved by the same 4. In (c) the new query stands 4 places too far from its keys.
# With equal lengths all of them agree, which is why this bug has been shipped so often.
#
# ## A sliding window
#
# Some models let a token see only the last W tokens (*sliding window*, 滑动窗口). Then the cache needs W places,
# however long the text.
#
# **Predict.** W = 4 and a prompt of 7 tokens, put into a ring of 4 places before the queries read it. Which
# queries miss something?

# %%
W = 4
window = [[query - W < key <= query for key in range(7)] for query in range(7)]
ring = [[window[query][key] and key >= 7 - W for key in range(7)] for query in range(7)]
figure, axes = plt.subplots(1, 2, figsize=(7, 3.4), layout="constrained")
draw_visibility(window, range(7), range(7), axes[0], title="a window of 4")
draw_visibility(ring, range(7), range(7), axes[1], title="what is left in the ring")
plt.show()
lost = [query for query in range(7) if window[query] != ring[query]]
blind = [query for query in range(7) if not any(ring[query])]
print(f"queries {lost} miss keys, and {blind} see nothing at all")

# %% [markdown]
# All but the last one. The prompt must be read first and overwritten afterwards. And in a deeper layer even
# the last token is wrong then, because the tokens it sees are.
#
# ## Choosing a token
#
# The logits of the last place give probabilities, by a softmax. *Greedy* (贪心) takes the largest. *Sampling*
# (采样) draws, after some reshaping:
#
# - *temperature* (温度) T: softmax(logits / T); T < 1 sharpens, T > 1 flattens, T = 0 means greedy;
# - *top-k*: only the k likeliest stay;
# - *top-p* (核采样): the smallest number of likeliest tokens whose probabilities reach p.
#
# **Predict.** Probabilities 0.5, 0.3, 0.15, 0.05. Which tokens stay for top-k = 2; for p = 0.7; for p =
# 0.5; for p = 0.001; for p = 1?

# %%
def nucleus(probabilities, p):
    """How many of the likeliest tokens reach p together; at least one."""
    total, count = 0.0, 0
    for probability in sorted(probabilities, reverse=True):
        total, count = total + probability, count + 1
        if total >= p:
            break
    return count


example = [0.5, 0.3, 0.15, 0.05]
for p in (0.7, 0.5, 0.001, 1):
    print(f"p = {p}: the first {nucleus(example, p)} stay")


@torch.no_grad()
def next_probabilities(temperature):
    return (model(PROMPT)[0, -1] / temperature).softmax(-1)


def draw_choices(ax, probabilities, title, shown=10):
    top = probabilities.topk(shown)
    names = [repr(chr(token))[1:-1].replace(" ", "␣") for token in top.indices.tolist()]
    kept = nucleus(probabilities.tolist(), 0.9)
    colors = [rank_color(0) if place < kept else "#CCCCCC" for place in range(shown)]
    ax.bar(range(shown), top.values.tolist(), color=colors)
    ax.set_xticks(range(shown), names)
    ax.set(title=f"{title}: p = 0.9 keeps {kept}", ylim=(0, 1))
    ax.title.set_fontsize(9)
    ax.spines[["top", "right"]].set_visible(False)
    return ax


figure, axes = plt.subplots(1, 3, figsize=(9, 2.6), layout="constrained", sharey=True)
for ax, temperature in zip(axes, (0.5, 1.0, 2.0), strict=True):
    draw_choices(ax, next_probabilities(temperature), f"T = {temperature}")
axes[0].set_ylabel("probability")
plt.show()

# %% [markdown]
# Top-p adapts: where the model is sure it keeps few tokens, where it is not it keeps many. The bugs sit at
# the edges: a tiny p that rules out everything, the likeliest too; p = 1 that keeps one token; k that keeps
# k + 1, or all that are equally likely.
#
# **Predict.** Which of these is the most boring, which the most broken?

# %%
@torch.no_grad()
def sampled(temperature, count=70, seed=3):
    generator, cache, tokens, out = torch.Generator().manual_seed(seed), SimpleCache(), PROMPT, []
    at = torch.arange(PROMPT.shape[1])
    for _ in range(count):
        logits = model(tokens, at, cache.attention)[0, -1]
        if temperature == 0:
            tokens = logits.argmax()[None, None]
        else:
            tokens = torch.multinomial((logits / temperature).softmax(-1), 1, generator=generator)[None]
        out.append(int(tokens))
        at = at[-1:] + 1
    return bytes(out)


for temperature in (0, 0.8, 2.0):
    print(f"T = {temperature}: {sampled(temperature)}")

# %% [markdown]
# The model has seen a few seconds of text, and it shows. (Notebook 15 does this with a real one.)
#
# ## What to take with you
#
# - `[B, S, H]` in, `[B, S, V]` out; scores `[B, heads, S, T]`. Targets are inputs shifted by one.
# - K and V of a token never change once they are computed; Q is read once. Hence a KV cache: a decode step
#   costs one token in place of the whole history.
# - Its bytes: layers x tokens of the whole batch x 2 x KV heads x head_dim x bytes of a number.
# - The right text proves nothing about a cache. Count FLOPs and bytes.
# - Prefill is limited by arithmetic, decode by bytes; batches share the weights, nobody shares the cache.
# - Who sees whom is a matter of positions. Chunks, padding and windows each break code that goes by place.
#
# **Next**: [lab 08](../labs/lab08_kv_cache/lab08_kv_cache.ipynb), then notebook 12, where many requests
# come and go.
