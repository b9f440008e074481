# %% [markdown]
# # 12 · Serving
#
# **You will build** a small serving engine: requests come and go, each step computes what is due, memory is
# handed out in pages. You replay a recorded trace of 96 requests through it, draw who computed what when, and
# measure what users feel (time to first token, gaps between tokens) and what owners pay for (tokens a second).
# Then prefill moves to a rank of its own.
#
# **You need** notebook [11](11_inference.ipynb): prefill, decode, the cache of keys and values.
#
# **Time**: about 50 minutes to read and try; 30 seconds to run.
#
# This notebook shows the simple case: every request gets all the memory that it may need when it comes in, and
# shares nothing. Lab 09 asks for the harder one: blocks taken one by one and shared, requests that have to give way,
# and prompts and texts side by side in one pass.

# %%
import sys
from collections import deque
from math import ceil
from threading import Thread
from time import perf_counter

import matplotlib.pyplot as plt
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.utils.rnn import pad_sequence

from utils import launch
from utils.models import Decoder, DecoderConfig, batches, train
from utils.pictures import rank_color
from utils.serving import Request, latency, recorded_trace, replay, summary, to_requests
from utils.serving.pictures import draw_gaps, draw_timeline, draw_use

# %% [markdown]
# ## Four requests
#
# The lecture's exercise. A server knows of four requests:
#
# | | prompt | generated | state |
# |---|---|---|---|
# | D | 800 tokens | 0 | has just come |
# | E | 40 tokens | 30 | waits for its 31st token |
# | F | 40 tokens | 17 | its 17th token was the stop token |
# | G | 3 tokens | 0 | has just come |
#
# *Prefill* (预填充) computes keys and values of a whole prompt at once. *Decode* (解码) computes one token, and
# reads all that is cached. **Predict.** Which of the two does each request need next? How many tokens does it
# put through the model?

# %%
four = {
    "D": Request(id=0, prompt=[1] * 800, max_new=99),
    "E": Request(id=1, prompt=[1] * 40, max_new=99, output=[2] * 30, computed=69),
    "F": Request(id=2, prompt=[1] * 40, max_new=99, output=[2] * 16 + [0], stop=0, computed=56),
    "G": Request(id=3, prompt=[1] * 3, max_new=99),
}
for name, request in four.items():
    missing = len(request.tokens) - request.computed
    need = "none: its cache can go to others" if request.finished else f"{missing}"
    print(f"{name}: {len(request.tokens):3} tokens, {request.computed:2} in the cache; to compute next: {need}")

# %% [markdown]
# D and G go to the prefill queue, E to the decode queue, F leaves. One subtraction tells: what is in the text and
# not in the cache has to be computed, 800 tokens or one. (An output alone tells nothing: think of a request whose
# cache was taken away. Lab 09, part 1.)
#
# ## One request
#
# A small decoder, trained for a few seconds on Python source; do not expect prose. Then one request: its prompt
# in one pass, after that a pass for each token. **The text appears token by token** (流式输出): a token can be sent
# as soon as it is there.
#
# **Predict.** The prompt has 60 tokens. Is its pass 60 times as long as the pass for one token?

# %%
torch.set_num_threads(1)  # small products: a second thread costs more than it brings
torch.manual_seed(0)
CONFIG = DecoderConfig(hidden=128, layers=3, heads=8, kv_heads=2, ffn=256, max_len=1024)
MODEL = Decoder(CONFIG)
losses = train(MODEL, batches(4, 32, steps=120), torch.optim.Adam(MODEL.parameters(), lr=5e-3))
print(f"{CONFIG.num_parameters():,} parameters; loss {losses[0]:.2f} -> {sum(losses[-5:]) / 5:.2f}")


class Memory:
    """Keys and values for `tokens` positions, in every layer: [layers, tokens, kv_heads, head_dim]."""

    def __init__(self, tokens, config=CONFIG):
        shape = (config.layers, tokens, config.kv_heads, config.head_dim)
        self.k, self.v = torch.zeros(shape), torch.zeros(shape)


def through(memory, places, starts):
    """How layers attend: row b's position i lies in memory at places[b][i], its new tokens begin at starts[b]."""

    def attention(layer, q, k, v, positions):
        new = torch.cat([place[start : start + q.shape[2]] for place, start in zip(places, starts, strict=True)])
        memory.k[layer, new], memory.v[layer, new] = (t.transpose(1, 2).flatten(0, 1) for t in (k, v))
        longest = max(starts) + q.shape[2]
        index = pad_sequence([place[:longest] for place in places], batch_first=True)
        keys, values = (kept[layer, index].transpose(1, 2) for kept in (memory.k, memory.v))
        seen = torch.arange(index.shape[1]) <= positions[:, None, :, None]
        return F.scaled_dot_product_attention(q, keys, values, attn_mask=seen, enable_gqa=True)

    return attention


@torch.no_grad()
def run_model(memory, places, starts, tokens):
    """tokens [B,S] at positions starts[b], starts[b] + 1, ...; the most likely next token of each row."""
    positions = torch.tensor(starts)[:, None] + torch.arange(tokens.shape[1])
    return MODEL(tokens, positions, attention=through(memory, places, starts))[:, -1].argmax(-1).tolist()


def stream(prompt, max_new):
    """Yields tokens as they come, and the seconds each took."""
    memory, place = Memory(1024), torch.arange(1024)
    tokens, start = prompt, 0
    for _ in range(max_new):
        began = perf_counter()
        token = run_model(memory, [place], [start], torch.tensor([tokens]))[0]
        yield token, perf_counter() - began
        start, tokens = start + len(tokens), [token]


PROMPT = list(b'"""\n\nimport os\nimport sys\n\n\nclass Error(Exception):\n    def ')
list(stream(PROMPT, 3))  # warm up
seconds = []
print(bytes(PROMPT).decode(), end="")
for token, took in stream(PROMPT, 60):
    seconds.append(took)
    sys.stdout.write(bytes([token]).decode(errors="replace"))
    sys.stdout.flush()
DECODE = sorted(seconds[1:])[len(seconds) // 2]
print(f"\n\nprefill of {len(PROMPT)} tokens: {1e3 * seconds[0]:.2f} ms; a decode step: {1e3 * DECODE:.2f} ms; "
      f"{seconds[0] / DECODE:.1f} times as long for {len(PROMPT)} times the tokens")  # fmt: skip

# %% [markdown]
# The prompt is far cheaper than as many decode steps. A decode step reads all weights to use each of them once;
# prefill reads them once for all its tokens. (On a GPU the gap is wider still: notebook 11's roofline.)
#
# So **several requests should share a decode step**: the weights are read once for all of them.
#
# ## An engine with two queues
#
# In each step the engine
#
# 1. lets waiting requests in while there is memory,
# 2. computes one token for every request that decodes, all in one pass,
# 3. computes prompts, at most `chunk` tokens of them in a step.
#
# Memory is cut into *pages* (页). A request gets pages for its prompt and all it may generate when it comes
# in, and gives them back when it ends. A page as large as the longest request is the old way: a fixed place
# for each. And `static=True` is *static batching* (静态批处理): a batch comes in together, and nobody else
# until **all** of it have ended; whoever ended early is computed along.

# %%
MAX_LEN = 256  # the longest request: prompt and output


class Engine:
    def __init__(self, tokens=8 * MAX_LEN, page=MAX_LEN, *, static=False, chunk=10_000):
        self.memory, self.page, self.static, self.chunk = Memory(tokens), page, static, chunk
        self.free = deque(range(tokens // page))
        self.waiting, self.running = deque(), []
        self.pages, self.places = {}, {}

    def add(self, request):
        self.waiting.append(request)

    def reserved(self):
        return sum(len(own) * self.page for own in self.pages.values())

    def admit(self):
        while self.waiting and not (self.static and any(request.output for request in self.running)):
            request = self.waiting[0]
            needed = ceil((len(request.prompt) + request.max_new) / self.page)
            if needed > len(self.free):
                return
            self.running.append(self.waiting.popleft())
            own = self.pages[request.id] = [self.free.popleft() for _ in range(needed)]
            self.places[request.id] = (torch.tensor(own)[:, None] * self.page + torch.arange(self.page)).flatten()

    def compute(self, rows, counts):
        """The same number of tokens of each of `rows`; the new token of those whose text is all in the cache."""
        places, starts = [self.places[r.id] for r in rows], [min(r.computed, len(r.tokens) - 1) for r in rows]
        tokens = torch.tensor([r.tokens[s : s + counts] for r, s in zip(rows, starts, strict=True)])
        new = {}
        for request, token in zip(rows, run_model(self.memory, places, starts, tokens), strict=True):
            if not request.finished:  # in a static batch some have ended
                request.computed += counts
                if request.computed == len(request.tokens):
                    request.output.append(token)
                    new[request.id] = token
        return new

    def step(self):
        self.admit()
        decoding = [r for r in self.running if r.output]
        new, left = self.compute(decoding, 1) if decoding else {}, self.chunk
        for request in [r for r in self.running if not r.output]:
            count = min(left, len(request.prompt) - request.computed)
            if count:
                new |= self.compute([request], count)
                left -= count
        ended = [r for r in self.running if r.finished]
        if not self.static or len(ended) == len(self.running):
            for request in ended:
                self.running.remove(request)
                self.free.extend(self.pages.pop(request.id))
        return new


def served(requests, tick=0.0, **options):
    engine = Engine(**options)
    return replay(requests, engine.add, engine.step, tick=tick, used=engine.reserved), engine


def alone(request):
    return [token for token, _ in stream(request.prompt, request.max_new)]


few = to_requests(recorded_trace()[:10])
served(few, static=False)
print("texts as if served alone:", [request.output == alone(request) for request in few].count(True), "of", len(few))

# %% [markdown]
# ## Static against continuous
#
# The recorded trace: 96 requests, Poisson arrivals, outputs of log-normal length (median 12, sigma 1): most
# are short, a few are long. Its unit of time is a *tick*, one decode step of this machine, so that every
# machine has the same load. (The generator is `utils.serving.make_trace`, its seed 0; the file lies beside it.)
#
# **Predict.** Eight places, the same memory. In a static batch eight requests wait for the longest of them.
# For lengths like these, how much of the time do the other places stand empty? How many times more tokens a
# second does *continuous batching* (连续批处理) give?

# %%
TRACE = recorded_trace()
lengths = sorted(arrival.max_new for arrival in TRACE)
print(f"{len(TRACE)} requests, {sum(lengths)} tokens to generate; shortest {lengths[0]}, median "
      f"{lengths[len(lengths) // 2]}, longest {lengths[-1]}")  # fmt: skip

warm, _ = served(to_requests(TRACE[:16]))
eight = sorted(s.end - s.start for s in warm.steps if len(s.counts) == 8 and not s.prefill)
TICK = eight[len(eight) // 2]
print(f"a tick: {1e3 * TICK:.2f} ms")
RUNS = {}
for name, static in (("static", True), ("continuous", False)):
    RUNS[name], _ = served(to_requests(TRACE), TICK, static=static)


def report(name, run, tick=TICK):
    got = summary(run.arrivals, run.times)
    print(f"{name:>12}{got.throughput * tick:5.2f} tokens/tick, {got.throughput:5.0f} tokens/s, {len(run.steps)} steps,"
          f" TTFT p50 {got.ttft_p50 / tick:5.1f}, p95 {got.ttft_p95 / tick:5.1f}; TPOT p50 "
          f"{got.tpot_p50 / tick:4.2f}; longest gap {got.gap_max / tick:4.1f} ticks")  # fmt: skip
    return got


static, continuous = (report(name, run) for name, run in RUNS.items())
print(f"continuous batching gives {continuous.throughput / static.throughput:.2f} times the throughput, in "
      f"{len(RUNS['static'].steps) / len(RUNS['continuous'].steps):.2f} times fewer steps")  # fmt: skip
figure, axes = plt.subplots(2, 1, figsize=(8.2, 9.4), layout="constrained", sharex=True)
for ax, (name, run) in zip(axes, RUNS.items(), strict=True):
    draw_timeline(run, ax, title=f"{name} batching", until=RUNS["static"].steps[-1].end)
plt.show()

# %% [markdown]
# In the upper picture a batch is a block of eight rows, and one long blue bar holds up everyone below. In the lower
# one a place is filled in the step after it came free.
#
# ## What users feel
#
# - **TTFT**, time to first token (首 token 时间): from the arrival to the first token. Waiting is in it.
# - **TPOT**, time per output token (每 token 时间): the mean of the gaps after the first token.
# - The **gaps** themselves (*inter-token latency*): a mean hides the one long pause that a reader notices.
# - **Throughput** (吞吐): tokens a second of all requests together.
#
# By hand: a request arrives at 2, its tokens come at 5, 6, 7 and 12. **Predict** its TTFT, TPOT and longest gap; and
# then: what do more places do to throughput, TTFT and TPOT (the first 40 requests of the trace)?

# %%
print(latency(2, [5, 6, 7, 12]))
PLACES = [2, 4, 8, 16, 32]
by_places = {places: served(to_requests(TRACE[:40]), TICK, tokens=places * MAX_LEN)[0] for places in PLACES}
figures = [report(f"{places} places", run) for places, run in by_places.items()]
figure, axes = plt.subplots(1, 3, figsize=(9.4, 2.8), layout="constrained")
for ax, (name, values) in zip(axes, {
    "tokens per tick": [got.throughput * TICK for got in figures],
    "TTFT p50, ticks": [got.ttft_p50 / TICK for got in figures],
    "TPOT p50, ticks": [got.tpot_p50 / TICK for got in figures],
}.items(), strict=True):  # fmt: skip
    ax.plot(PLACES, values, "o-", color=rank_color(0))
    ax.set_xscale("log", base=2)
    ax.set_xticks(PLACES, PLACES)
    ax.set_ylim(0, None)
    ax.set(xlabel="places", title=name)
    ax.spines[["top", "right"]].set_visible(False)
plt.show()

# %% [markdown]
# More places: more throughput, and nobody waits long for a first token. The price is TPOT: a step with more rows
# takes longer, and there are prompts in more of them. One number alone (tokens a second) tells half of it.
#
# ## A long prompt stops everyone
#
# Four requests are in the middle of their texts. Then a prompt of 700 tokens comes, and after it a short one.
#
# **Predict.** What do the four readers notice? And if the prompt is computed in chunks (分块预填充) of 32 tokens, one a
# step: what changes for them, and what for the one with the long prompt?

# %%
def with_a_long_prompt():
    text = to_requests(recorded_trace()[:1])[0].prompt
    four = [Request(id=i, prompt=(text * 3)[i:][:20], max_new=90) for i in range(4)]
    long = Request(id=4, prompt=(text * 40)[:700], max_new=12, arrival=20)
    return [*four, long, Request(id=5, prompt=text[:10], max_new=20, arrival=24)]


LONG = {}
figure, axes = plt.subplots(3, 1, figsize=(8.2, 6.2), layout="constrained", height_ratios=[1, 1, 1.1])
for ax, (name, chunk) in zip(axes, (("whole prompts", 10_000), ("chunks of 32", 32)), strict=False):
    run, _ = served(with_a_long_prompt(), TICK, tokens=8 * 1024, page=1024, chunk=chunk)
    LONG[name] = run
    draw_timeline(run, ax, title=name)
    others = max(max(latency(0, run.times[i]).gaps) for i in range(4))
    first = {i: latency(run.arrivals[i], run.times[i]).ttft for i in (4, 5)}
    print(f"{name:>14}: longest gap of the four {1e3 * others:6.1f} ms; TTFT of the long one {1e3 * first[4]:6.1f} ms, "
          f"of the short one behind it {1e3 * first[5]:6.1f} ms")  # fmt: skip
draw_gaps(LONG, axes[2])
plt.show()

# %% [markdown]
# In the first picture four rows of dots stop while one orange bar runs: the *stall* (停顿). Chunks turn one long pause
# into many short ones; the long prompt itself is not sooner done (it shares its steps with others, and small products
# are less efficient). That is the exchange: its TTFT against everyone's gaps.
#
# ## Memory: a place for the longest, or pages
#
# Each of the eight places holds 256 positions, since a request *could* be that long. **Predict.** What share of the
# reserved memory ever holds a key? With the same memory in pages of 16, how many requests run at once?

# %%
PAGED = {}
for page in (MAX_LEN, 16):
    run, engine = served(to_requests(TRACE), TICK, page=page)
    PAGED[f"pages of {page}"] = run
    report(f"pages of {page}", run)
    most = max(len(step.counts) for step in run.steps)
    own = {request.id: (len(request.prompt) + request.max_new) for request in to_requests(TRACE)}
    wasted = 1 - sum(own.values()) / sum(ceil(n / page) * page for n in own.values())
    print(f"{'':>12}  at most {most} requests in a step; {wasted:.0%} of what they reserve is never written")
fewer = len(RUNS["static"].steps) / len(PAGED["pages of 16"].steps)
print(f"pages of 16 need {fewer:.1f} times fewer steps than static batching with the same memory")
figure, ax = plt.subplots(figsize=(8.2, 2.6), layout="constrained")
draw_use(PAGED, ax, limit=8 * MAX_LEN)
ax.set(ylabel="positions reserved", title="8 x 256 positions, handed out in pages")
plt.show()

# %% [markdown]
# The same memory, several times the requests at once. (*PagedAttention*, Kwon et al. 2023.) A page of one position
# would waste nothing, and need the longest tables; 16 is common.
#
# Two things are still given away. A request reserves what it *may* generate, and most stop sooner; and equal
# beginnings are stored once for each request. Take pages one by one, and memory can run out in the middle of a text:
# somebody must give way. Share pages, and it must be known who still uses them. Both are in lab 09.
#
# ## Equal beginnings
#
# Half of the trace's prompts begin with the same 24 tokens (a *system prompt*, 系统提示词). **Predict.** With
# blocks of 8 that are kept and found again (*prefix caching*, 前缀缓存), which share of all prompt tokens needs
# no computing? And what if a block were looked up by its own 8 tokens only, without those before it?

# %%
BLOCK = 8
prompts = [request.prompt for request in to_requests(TRACE)]
known, reused = set(), 0
for prompt in prompts:
    full = (len(prompt) - 1) // BLOCK  # at least one token is left to compute: it gives the first logits
    ends = [BLOCK * (i + 1) for i in range(full)]
    hits = next((i for i, end in enumerate(ends) if tuple(prompt[:end]) not in known), full)
    reused += hits * BLOCK
    known |= {tuple(prompt[:end]) for end in range(BLOCK, len(prompt) + 1, BLOCK)}
total = sum(map(len, prompts))
print(f"{reused} of {total} prompt tokens ({reused / total:.0%}) are known beginnings")

a, b = list(b"import os\nimport sys\nprint("), list(b"import re\nimport sys\nprint(")
place = torch.arange(64)
memory_a, memory_b = Memory(64), Memory(64)
run_model(memory_a, [place], [0], torch.tensor([a]))
run_model(memory_b, [place], [0], torch.tensor([b]))
differ = (memory_a.k - memory_b.k).abs().amax(dim=(2, 3))[:, 10:20]
print(f"{bytes(a[10:20])!r} is in both at positions 10 to 19; largest difference of its keys, by layer:",
      [f"{layer.max():.2f}" for layer in differ])  # fmt: skip

# %% [markdown]
# In layer 0 the keys of equal tokens at equal places are equal. From layer 1 on they are not: attention has mixed in
# what stands before. A cache that looks blocks up by their own tokens passes a test with one layer, and gives wrong
# text with three. And because a hash may collide, a hit must be compared with the tokens themselves.
#
# ## Prefill and decode apart
#
# A long prompt still takes time from those who decode. So some systems give prefill and decode machines of their own,
# and send the cache of a request from one to the other when its prompt is done (预填充与解码分离).
#
# **Predict.** The 700-token prompt again, prefilled on rank 0 while rank 1 decodes. Its cache has 2 x 3
# layers x 700 positions x 2 KV heads x 16 numbers x 4 bytes. How many bytes is that? What is the longest gap
# of the four now?

# %%
def prefill_rank(long, ready):
    memory, place = Memory(1024), torch.arange(1024)
    dist.recv(ready, 1)  # the request comes in
    began = perf_counter()
    token = run_model(memory, [place], [0], torch.tensor([long.prompt]))[0]
    took = perf_counter() - began
    dist.send(torch.tensor([token]), 1)
    both = torch.stack([memory.k[:, : len(long.prompt)], memory.v[:, : len(long.prompt)]])
    dist.send(both, 1)
    return {"took": took}


def decode_rank(requests, ready):
    *four, long, _ = requests
    engine = Engine(tokens=8 * 1024, page=1024)
    for request in four:
        engine.add(request)
    first, times = torch.empty(1, dtype=torch.long), {request.id: [] for request in requests}
    shape = (2, CONFIG.layers, len(long.prompt), CONFIG.kv_heads, CONFIG.head_dim)
    cache, arrived = torch.empty(shape), None

    def receive():
        dist.send(ready, 0)
        dist.recv(first, 0)
        dist.recv(cache, 0)

    receiver = Thread(target=receive)  # waits beside the decoding
    for step in range(1000):
        if step == 20:
            receiver.start()
        if step > 20 and arrived is None and not (receiver.is_alive() and engine.running):
            receiver.join()
            arrived = step
            engine.add(long)
            engine.admit()
            place = engine.places[long.id][: len(long.prompt)]
            engine.memory.k[:, place], engine.memory.v[:, place] = cache
            long.computed, long.output = len(long.prompt), [int(first)]
        new, now = engine.step(), perf_counter()
        for name in new:
            times[name].append(now)
        if not engine.running and arrived is not None:
            break
    return {"gap": max(max(latency(own[0], own).gaps) for own in list(times.values())[:4]), "output": long.output,
            "arrived": arrived, "others": [request.output for request in four]}  # fmt: skip


def apart():
    torch.set_num_threads(1)
    requests, ready = with_a_long_prompt(), torch.zeros(1)
    if dist.get_rank() == 0:
        return prefill_rank(requests[4], ready)
    return decode_rank(requests, ready)


run = launch(apart, ranks=2, timeout=60)
here, there = run.values[1], run.values[0]
expected = 2 * CONFIG.layers * 700 * CONFIG.kv_heads * CONFIG.head_dim * 4
print(f"rank 0 sent {run.trace.bytes_sent(0):,} bytes; the cache has {expected:,}, the first token 8")
print(f"prefill took {1e3 * there['took']:.0f} ms on rank 0; rank 1 took the request in in step {here['arrived']}")
whole = max(max(latency(0, LONG["whole prompts"].times[i]).gaps) for i in range(4))
gap = here["gap"]
print(f"longest gap of the four: {1e3 * whole:.1f} ms with prefill in between, {1e3 * gap:.1f} ms with it elsewhere")
texts = with_a_long_prompt()
right = [output == alone(request) for output, request in zip([*here["others"], here["output"]], texts, strict=False)]
print("texts as if served alone:", right.count(True), "of", len(right))

# %% [markdown]
# The readers of the four texts notice next to nothing, apart from the copying. What it costs: the cache crosses the
# network once, and each side stands idle when the other one's work is missing. (On two cores that other programs use,
# too, the second gap may be longer than here.)
#
# ## What to take with you
#
# - Schedule once a **step**: who ends leaves at once, who waits comes in. With lengths as they are in practice that is
#   more than twice the throughput of static batches.
# - TTFT, TPOT, the longest gap, throughput: improving one usually costs another. Report them together.
# - A long prompt stalls all who decode; chunks or a machine of its own are the remedies.
# - Pages in place of places: memory holds what is there, not what might come.
# - Keys and values depend on everything before them. So does the right to reuse them.
#
# **Next**: [lab 09](../labs/lab09_serving/lab09_serving.ipynb).
