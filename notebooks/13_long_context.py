# %% [markdown]
# # 13 · Long context
#
# **You will build** a softmax that needs only one pass over its scores, attention in blocks that never
# holds the S x S matrix, and a ring of ranks in which keys and values travel. Then you count what travels,
# hold it to torch's own ring, balance a causal mask over the ranks, hide the transfers behind the products,
# and cut the sequence another way, by an all-to-all.
#
# **You need** notebooks [02](02_collectives.ipynb) (rings) and [10](10_transformer_flops.ipynb) (what
# attention costs).
#
# **Time**: about 60 minutes to read and try; 30 seconds to run.
#
# One head, equal pieces, mostly no mask: this notebook shows the simple case, forward. Lab 10 asks for
# masks, padding, uneven pieces, bf16, and the backward pass.

# %%
import math
from time import perf_counter, sleep

import matplotlib.pyplot as plt
import torch
import torch.distributed as dist
import torch.nn.functional as F

from utils import launch
from utils.memory import LiveBytes
from utils.pictures import draw_ring_rounds, draw_score_owners, rank_color, size_label

torch.set_num_threads(1)


def sample(seed, *shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


# %% [markdown]
# ## A row of scores in two blocks
#
# One query, three keys with the scores 0, 0 and ln 4, and their values 1, 3 and 5. The softmax's weights
# are 1/6, 1/6 and 4/6, so the output is (1 + 3 + 20)/6 = 4. Now the scores come in two blocks: first [0,
# 0], then [ln 4].
#
# **Predict.** The softmax of the first block gives 2, that of the second 5. What do you get if you add
# them? If you average them? The lecture's question: why can block softmaxes not just be added?

# %%
first, second = (torch.tensor([0.0, 0.0]), torch.tensor([1.0, 3.0])), (torch.tensor([math.log(4)]), torch.tensor([5.0]))
parts = [scores.softmax(0) @ values for scores, values in (first, second)]
whole = torch.cat([first[0], second[0]]).softmax(0) @ torch.cat([first[1], second[1]])
print(f"blocks: {parts[0]:.4g} and {parts[1]:.4g}; sum {sum(parts):.4g}, mean {sum(parts) / 2:.4g}; right: {whole:.4g}")

# %% [markdown]
# Neither. Each block's weights add up to 1 by themselves, but the **denominator belongs to the whole row**:
# the second block has 4/6 of it, the first 2/6. The right mixture is 2/6 * 2 + 4/6 * 5 = 4.
#
# *Online softmax* (在线 softmax) carries three things from block to block: the largest score so far m, the
# denominator l = Σ exp(score - m), and the weighted sum u = Σ exp(score - m) value. A new maximum rescales
# the old l and u by exp(m_old - m_new).
#
# **Predict.** After the first block m = 0, l = 2 (the lecture's l₁ = 2) and u = 4. What are they after the
# second?

# %%
def online(blocks):
    m, l, u = -math.inf, 0.0, 0.0  # noqa: E741
    for scores, values in blocks:
        new = max(m, scores.max().item())
        weights, shrink = (scores - new).exp(), math.exp(m - new)
        m, l, u = new, l * shrink + weights.sum().item(), u * shrink + (weights @ values).item()  # noqa: E741
        print(f"m = {m:.3f}, old sums times {shrink:.3g}: l = {l:.3g}, u = {u:.3g}; output so far {u / l:.3g}")
    return u / l


online([first, second])
print("in the other order:")
online([second, first])

# %% [markdown]
# The old sums shrink to a quarter, because exp(0 - ln 4) = 1/4. In the other order the maximum stays, and
# nothing is rescaled; the result is the same.
#
# ## Why the maximum
#
# exp(89) is more than a float32 can hold. Two finished parts with log-sum-exps (LSE, 对数求和指数) a and b have
# together ln(exp a + exp b). A formula that was in use for a while wrote that as a + ln(1 + exp(b - a)).
#
# **Predict.** a = 0. From which b on does it fail? And why did nobody notice with random inputs?

# %%
def in_use_for_a_while(a, b):
    return a + torch.log(1 + torch.exp(b - a))


for b in (1.0, 80.0, 88.0, 89.0, 100.0):
    a, b = torch.tensor(0.0), torch.tensor(b)
    print(f"b = {b:5.1f}: {in_use_for_a_while(a, b):7.3f}   logaddexp: {torch.logaddexp(a, b):7.3f}")

# %% [markdown]
# A gap of 89 between two blocks does not happen in a fresh model, whose scores are small. It does in
# trained ones.
#
# ## Masked blocks
#
# A masked score is -inf. A block in which a row sees nothing has the maximum -inf, and `exp(-inf - (-inf))`
# is NaN.
#
# **Predict.** Eight tokens, blocks of 2 keys. In how many of the 8 rows is the first block masked, for a
# causal mask, for a window of the last 2 tokens, and for 4 tokens of left padding (左填充)?

# %%
def careless(scores, values, block):
    m = torch.full(scores.shape[:1], -math.inf)
    l, u = torch.zeros_like(m), torch.zeros(len(scores), values.shape[1])  # noqa: E741
    for part, value in zip(scores.split(block, 1), values.split(block), strict=True):
        new = torch.maximum(m, part.amax(1))
        weights, shrink = (part - new[:, None]).exp(), (m - new).exp()
        m, l, u = new, l * shrink + weights.sum(1), u * shrink[:, None] + weights @ value  # noqa: E741
    return u / l[:, None]


query, key = torch.arange(8)[:, None], torch.arange(8)[None]
MASKS = {
    "causal": key <= query,
    "window of 2": (key <= query) & (key > query - 2),
    "left padding of 4": (key <= query) & (key >= 4),
}
for name, seen in MASKS.items():
    scores = sample(1, 8, 8).masked_fill(~seen, -math.inf)
    result = careless(scores, sample(2, 8, 3), 2)
    print(f"{name:>18}: {int(result.isnan().any(1).sum())} of 8 rows are NaN")

# %% [markdown]
# Causal alone: none, since every row sees key 0. That is why this mistake passes so many tests. With a
# window, 5 rows see nothing of the first block (rows 3 to 7), and once NaN has come into l it stays. With
# padding all 8 rows are lost, the four that see nothing at all among them. What such a row must be is a
# convention; in lab 10 it is 0.
#
# ## Attention that never holds S x S
#
# *FlashAttention* (Dao et al. 2022) is this, in two dimensions: a tile of queries stays, tiles of keys and
# values come by. Here without a mask, one head, `[S, D]`.
#
# **Predict.** S = 2048 and 16 numbers a token. How many MiB are the scores? Which of the two needs more
# FLOPs?

# %%
def full_attention(q, k, v):
    return (q @ k.t() / math.sqrt(q.shape[1])).softmax(1) @ v


def partial_attention(q, k, v):
    """Attention to some of the keys, and the log-sum-exp of each row."""
    scores = q @ k.t() / math.sqrt(q.shape[1])
    lse = scores.logsumexp(1)
    return (scores - lse[:, None]).exp() @ v, lse


def joined(out, lse, more, more_lse):
    """Two partial results over different keys as one."""
    both = torch.logaddexp(lse, more_lse)
    return (lse - both).exp()[:, None] * out + (more_lse - both).exp()[:, None] * more, both


def blockwise(q, k, v, tile=64):
    results = []
    for rows in q.split(tile):
        blocks = zip(k.split(tile), v.split(tile), strict=True)
        out, lse = partial_attention(rows, *next(blocks))
        for block in blocks:
            out, lse = joined(out, lse, *partial_attention(rows, *block))
        results.append(out)
    return torch.cat(results)


def peak_bytes(attend, seq, dim=16):
    q, k, v = (sample(seed, seq, dim) for seed in (3, 4, 5))
    with LiveBytes([q, k, v]) as live:
        before = live.now()
        out = attend(q, k, v)
    right = F.scaled_dot_product_attention(*(x[None, None] for x in (q, k, v)))[0, 0]
    return live.peak() - before, (out - right).abs().max().item()


LENGTHS = [256, 512, 1024, 2048]
peaks = {}
for attend in (full_attention, blockwise):
    measured = [peak_bytes(attend, seq) for seq in LENGTHS]
    peaks[attend.__name__] = [peak for peak, _ in measured]
    worst = max(error for _, error in measured)
    print(f"{attend.__name__:>15}: {', '.join(size_label(p) for p, _ in measured)}; off by {worst:.0e} at most")

# %% [markdown]
# At S = 2048 the scores are 16 MiB; the full softmax holds two such matrices at once. In blocks the peak
# grows with S, not with S². Both compute the same products: **the FLOPs stay, the bytes go.** (That also
# makes it faster on a GPU, where moving S x S numbers costs more than computing them.) The backward pass
# keeps only the output and one LSE a row, and computes the weights again.
#
# ## The ring
#
# Now the sequence lies on ranks: each has a piece of q, k and v (*context parallelism*, 上下文并行). Every query
# must still meet every key. *Ring attention* (环形注意力; Liu et al. 2023): q stays, k and v go round.

# %%
figure, ax = plt.subplots(figsize=(7, 2.9), layout="constrained")
draw_ring_rounds(4, ax, title="in round t, rank r has the block of rank r - t")
plt.show()

# %% [markdown]
# In each round a rank computes with the block that is there and joins the result to its own, by LSE. No
# rank ever holds more than two blocks.
#
# **Predict.** S = 512, D = 16, 4 bytes a number, p = 4. How often is a block passed on, and how many bytes
# does a rank send?

# %%
SEQ, DIM = 512, 16


def own_piece(seed, seq=SEQ):
    return sample(seed, seq, DIM).chunk(dist.get_world_size())[dist.get_rank()].contiguous()


def ring_forward(seq=SEQ):
    rank, ranks = dist.get_rank(), dist.get_world_size()
    q, k, v = (own_piece(seed, seq) for seed in (3, 4, 5))
    with LiveBytes([q, k, v]) as live:
        before = live.now()
        block, out, lse = torch.stack([k, v]), None, None
        for step in range(ranks):
            part = partial_attention(q, *block)
            out, lse = part if out is None else joined(out, lse, *part)
            if step < ranks - 1:
                received = torch.empty_like(block)
                works = [dist.isend(block, (rank + 1) % ranks), dist.irecv(received, (rank - 1) % ranks)]
                for work in works:
                    work.wait()
                block = received
        return out, live.peak() - before


dense = F.scaled_dot_product_attention(*(sample(seed, SEQ, DIM)[None, None] for seed in (3, 4, 5)))[0, 0]
for ranks in (1, 2, 3, 4):
    run = launch(ring_forward, SEQ // ranks * ranks, ranks=ranks)
    block = 2 * (SEQ // ranks) * DIM * 4
    line = f"p = {ranks}: rank 0 sent {run.trace.messages(0)} blocks, {run.trace.bytes_sent(0):6} bytes"
    line += f"; predicted {(ranks - 1) * block:6}; {sum(run.trace.bytes_sent(r) for r in range(ranks)):6} in all"
    if SEQ % ranks == 0:
        line += f"; off by {(torch.cat([out for out, _ in run.values]) - dense).abs().max():.0e}"
    print(line)
run = launch(ring_forward, ranks=4)
figure, ax = plt.subplots(figsize=(7.5, 2.8), layout="constrained")
run.trace.plot(ax)
ax.set_title("three rounds of sends and receives; the gaps between them are products", loc="left", fontsize=10)
plt.show()

# %% [markdown]
# The lecture's question: the sequence is cut already, so why does the traffic not vanish? **Because every
# query needs all keys and values of the whole sequence.** A rank must receive all but its own: (p-1)/p of k
# and v, which comes near the whole as p grows. All ranks together send p-1 times k and v. The ring does not
# change what attention needs; it changes what a rank *holds* at one time, a p-th.
#
# ## What a rank holds
#
# **Predict.** The three ways to compute attention, S from 256 to 2048. Which curves are straight lines of
# slope 1 in a log-log picture, which of slope 2? (The ring above computes a piece's scores at once, not in
# tiles: (S/p)². What will that do?)

# %%
ring_peaks = [launch(ring_forward, seq, ranks=4).values[1][1] for seq in LENGTHS]
figure, ax = plt.subplots(figsize=(6.2, 3.6), layout="constrained")
named = {"all scores": peaks["full_attention"], "in blocks of 64": peaks["blockwise"]}
named["ring of 4, a piece at once"] = ring_peaks
for number, (name, measured) in enumerate(named.items()):
    growth = math.log2(measured[-1] / measured[-2])
    print(f"{name:>27}: {size_label(measured[-1])} at S = {LENGTHS[-1]}, grows with S to the power {growth:.2f}")
    ax.loglog(LENGTHS, [peak / 2**20 for peak in measured], "os^"[number] + "-", color=rank_color(number), label=name)
ax.set(xlabel="tokens in the whole sequence", ylabel="MiB on one rank", title="peak of the forward pass, above q, k, v")
ax.set_xticks(LENGTHS, [str(seq) for seq in LENGTHS])
ax.minorticks_off()
ax.grid(True, color="#E5E5E5")
ax.spines[["top", "right"]].set_visible(False)
ax.legend(frameon=False, fontsize=9)
plt.show()

# %% [markdown]
# The ring alone divides the matrix by p², and is still quadratic; blocks alone make it linear. Real systems
# do both: a ring between ranks, tiles inside. So will you, in the lab.
#
# ## torch's own ring
#
# torch has this too: `torch.distributed.tensor.experimental.context_parallel` makes
# `scaled_dot_product_attention` a ring.
#
# **Predict.** Its attention operators are those of GPUs. What happens on a CPU? And what does its backward
# pass have to send, besides k and v?

# %%
def torch_on_cpu():
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.experimental import context_parallel

    q, k, v = (sample(seed, 1, 1, 8, 4) for seed in (3, 4, 5))
    try:
        with context_parallel(init_device_mesh("cpu", (2,)), buffers=[q, k, v], buffer_seq_dims=[2, 2, 2]):
            F.scaled_dot_product_attention(q, k, v, is_causal=True)
    except NotImplementedError as error:
        return str(error)
    return "it runs"


print(launch(torch_on_cpu, ranks=2).value)


def torch_ring(seq=48):
    """torch's ring with the CPU's attention operators put in: output, gradients, and their largest errors."""
    from torch.distributed.tensor.experimental._context_parallel import _attention as torchs

    rank, ranks = dist.get_rank(), dist.get_world_size()
    torchs.set_rotate_method("alltoall")  # a ring; the default gathers. Zigzag is the default
    chunks = torch.arange(seq).chunk(2 * ranks)
    tokens = torch.cat([chunks[rank], chunks[-1 - rank]])
    whole = [sample(seed, 1, 2, seq, 8) for seed in (3, 4, 5, 6)]
    q, k, v, up = (x[:, :, tokens].contiguous() for x in whole)
    forward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
    kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward.default

    def backward(query, key, value, out, logsumexp, grad_out, is_causal):
        return kernel(grad_out, query, key, value, out, logsumexp, 0.0, is_causal)

    dist.barrier()
    out, lse = torchs._templated_ring_attention(dist.group.WORLD, 2, forward, q, k, v, is_causal=True)
    dist.barrier()
    saved = (q, k, v, out, lse, True)
    grads = torchs._templated_ring_attention_backward(dist.group.WORLD, 2, backward, up, "grad_out", *saved)
    leaves = [x.requires_grad_() for x in whole[:3]]
    right = F.scaled_dot_product_attention(*leaves, is_causal=True)
    right.backward(whole[3])
    wanted = [right.detach(), *(leaf.grad for leaf in leaves)]
    return [(a - b[:, :, tokens]).abs().max().item() for a, b in zip((out, *grads), wanted, strict=True)]


for ranks in (2, 3, 4):
    run = launch(torch_ring, ranks=ranks)
    events = run.trace.of(0)
    middle = [number for number, event in enumerate(events) if event.op == "barrier"][1]
    block = 2 * 2 * (48 // ranks) * 8 * 4
    passes = [sum(event.sent for event in part) / block for part in (events[:middle], events[middle:])]
    worst = max(max(errors) for errors in run.values)
    print(f"p = {ranks}: {passes[0]:.3g} blocks forward, {passes[1]:.3g} backward; off by {worst:.0e} at most")

# %% [markdown]
# On a CPU torch's switch refuses: no rule is registered for the CPU's operator. But the ring behind it is
# written for any operator; with the CPU's put in, it runs on gloo and gives one process's output and
# gradients.
#
# Forward p-1 blocks, backward **2p-1**: k and v make the p-1 passes again, and with each block travel its
# dk and dv, to which every rank adds its share. They need p passes, the last one home. 3p-2 in all.
#
# ## Equal work
#
# With a causal mask half of the scores are not needed. The sequence lies on 4 ranks, in order.
#
# **Predict.** Which rank has the most to do, and what is its share? Ranks wait for each other in each
# round.

# %%
def in_order(seq, ranks):
    return [token * ranks // seq for token in range(seq)]


def zigzag(seq, ranks):
    chunks = [token * 2 * ranks // seq for token in range(seq)]
    return [min(chunk, 2 * ranks - 1 - chunk) for chunk in chunks]


figure, axes = plt.subplots(1, 2, figsize=(7.4, 4.2), layout="constrained")
for ax, cut in zip(axes, (in_order, zigzag), strict=True):
    owners = cut(64, 4)
    draw_score_owners(owners, ax, title=cut.__name__.replace("_", " "))
    work = [sum(token + 1 for token, owner in enumerate(owners) if owner == rank) for rank in range(4)]
    busiest = max(work) / (sum(work) / 4)
    print(f"{cut.__name__:>8}: scores by rank {work}, the busiest has {busiest:.2f} times its share")
plt.show()

# %% [markdown]
# In order, the last rank has (2p-1)/p² of all scores: 7/16 at p = 4, nearly twice its share, and all others
# wait for it. *Zigzag* (之字形切分) deals 2p chunks: rank r gets chunk r from the front and chunk r from the
# back. What one has too little the other has too much. (The grey half must then really not be computed: a
# mask over computed scores saves nothing.)
#
# ## Behind the products
#
# A block's transfer can run while the block before it is used: start it first, wait for it last. Let the
# link take α for a block, from the moment when the transfer is started. (Here it is a sleep of what is left
# of α.)
#
# **Predict.** Four ranks, three passes, a block's products take c. How long is the forward pass if each
# transfer is started after the products? If before? For which α does the difference stop growing?

# %%
def slow_pass(block, alpha):
    """Start passing a block on over a link that takes alpha seconds; the function that is returned waits for it."""
    rank, ranks, started = dist.get_rank(), dist.get_world_size(), perf_counter()
    received = torch.empty_like(block)
    works = [dist.isend(block, (rank + 1) % ranks), dist.irecv(received, (rank - 1) % ranks)]

    def arrived():
        for work in works:
            work.wait()
        sleep(max(0.0, started + alpha - perf_counter()))
        return received

    return arrived


def pretend_products(seconds):
    sleep(seconds)  # a GPU would compute; two cores for four ranks cannot, and a sleep leaves them free


def timed_forward(alphas, compute, before):
    fastest = []
    for alpha in alphas:
        times = []
        for _ in range(3):
            dist.barrier()
            start, block = perf_counter(), torch.zeros(2, 64, DIM)
            for step in range(dist.get_world_size()):
                more = step < dist.get_world_size() - 1
                arrived = slow_pass(block, alpha) if more and before else None
                pretend_products(compute)
                if more:
                    block = (arrived or slow_pass(block, alpha))()
            times.append(perf_counter() - start)
        fastest.append(min(times))
    return fastest


COMPUTE, ALPHAS = 0.02, [0.0, 0.01, 0.02, 0.03, 0.04]
figure, ax = plt.subplots(figsize=(6, 3.5), layout="constrained")
for number, before in enumerate((False, True)):
    took = launch(timed_forward, ALPHAS, COMPUTE, before, ranks=4, trace=False).values[0]
    if before:
        guesses = [COMPUTE + 3 * max(COMPUTE, alpha) for alpha in ALPHAS]
    else:
        guesses = [4 * COMPUTE + 3 * alpha for alpha in ALPHAS]
    name = "transfer started before the products" if before else "transfer started after them"
    print(f"{name:>36}: " + ", ".join(f"{t * 1000:.0f} ({g * 1000:.0f})" for t, g in zip(took, guesses, strict=True)))
    ax.plot([a * 1000 for a in ALPHAS], [t * 1000 for t in took], "o", color=rank_color(number), label=name)
    ax.plot([a * 1000 for a in ALPHAS], [g * 1000 for g in guesses], "--", color=rank_color(number))
ax.axvline(COMPUTE * 1000, color="#BBBBBB", linewidth=1)
ax.set(xlabel="α of the link for one block, ms (grey: a block's products)", ylabel="forward pass, ms", ylim=(0, None))
ax.set_title("measured (points) and predicted (lines)", loc="left", fontsize=10)
ax.spines[["top", "right"]].set_visible(False)
ax.legend(frameon=False, fontsize=9)
plt.show()

# %% [markdown]
# In brackets the prediction, in ms. Up to α = c the transfers cost nothing; beyond that each round takes α
# and the *products* are hidden. A block's products grow with (S/p)², its bytes with S/p: **long sequences
# hide their traffic by themselves.**
#
# ## What else must know about the cut
#
# Norms and feed-forwards treat each token alone. Positions, labels and the loss do not. RoPE (旋转位置编码) turns
# q and k by an angle that grows with the position; their product depends on the difference of positions.
#
# **Predict.** Two ranks, 4 tokens each; each counts its positions from 0. Which scores are wrong, those
# inside a piece or those between pieces?

# %%
def rope(x, positions):
    half = x.shape[1] // 2
    angles = positions[:, None] * 100.0 ** (-torch.arange(half) / half)
    a, b = x[:, :half], x[:, half:]
    return torch.cat([a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()], 1)


q, k, true, local = sample(7, 8, 8), sample(8, 8, 8), torch.arange(8), torch.arange(8) % 4
off = (rope(q, true) @ rope(k, true).t() - rope(q, local) @ rope(k, local).t()).abs()
print(f"inside the pieces: off by {max(off[:4, :4].max(), off[4:, 4:].max()):.0e}")
print(f"between the pieces: off by {max(off[:4, 4:].max(), off[4:, :4].max()):.2f}")

# %% [markdown]
# Inside a piece only the difference counts, and that is right. A test on one rank, or on a rank's own
# block, sees nothing.
#
# **Predict.** Tokens 0 to 7; each token's label is the next one. Cut in two pieces, then shift each: which
# labels are lost? And if rank 0's labels do not count but one, and rank 1's do all: what is wrong with each
# rank dividing its loss by its own number of labels?

# %%
tokens = torch.arange(8)
ignored = torch.tensor([-100])
cut_then_shift = [torch.cat([piece[1:], ignored]).tolist() for piece in tokens.chunk(2)]
shift_then_cut = [piece.tolist() for piece in torch.cat([tokens[1:], ignored]).chunk(2)]
print("cut, then shift:", cut_then_shift)
print("shift, then cut:", shift_then_cut)


def gradient_of_first_token(by_all):
    """Of the logits of rank 0's only token that counts; rank 1 has 4 that count."""
    rank = dist.get_rank()
    labels = torch.tensor([1, -100, -100, -100] if rank == 0 else [0, 2, 1, 2])
    logits = sample(9 + rank, 4, 3).requires_grad_()
    count = (labels != -100).sum()
    if by_all:
        dist.all_reduce(count)
    (F.cross_entropy(logits, labels, reduction="sum") / count).backward()
    return logits.grad[0]


right, wrong = (launch(gradient_of_first_token, by_all, ranks=2).value for by_all in (True, False))
print(f"gradient divided by a rank's own count: {(wrong / right).mean():.3g} times the right one")

# %% [markdown]
# The token at each border loses its label: with p ranks p-1 of S-1 labels, in silence. And divided by its
# own count, the one token of rank 0 weighs as much as the four of rank 1 together. (A rank with no label at
# all would compute 0/0.)
#
# ## The other way: all-to-all
#
# Heads do not talk to each other. So one *all-to-all* (全互换) can turn "all heads of my tokens" into "my heads
# of all tokens"; attention then needs nothing from anybody; a second one turns the result back (DeepSpeed
# Ulysses, Jacobs et al. 2023).
#
# **Predict.** Four ranks, 12 heads. In units of one rank's q: what does a rank send in the ring, forward,
# and what with all-to-all?

# %%
HEADS, TOKENS = 12, 48


def by_heads():
    """Forward, with equal pieces in order; [heads, tokens, D]."""
    rank, ranks = dist.get_rank(), dist.get_world_size()

    def swap(x, to_heads):
        parts = [part.contiguous() for part in x.chunk(ranks, 0 if to_heads else 1)]
        flat = torch.cat([part.flatten() for part in parts])
        got = torch.empty_like(flat)
        dist.all_to_all_single(got, flat)
        pieces = [piece.view(parts[0].shape) for piece in got.chunk(ranks)]
        return torch.cat(pieces, 1 if to_heads else 0)

    q, k, v = (swap(sample(seed, HEADS, TOKENS, DIM).chunk(ranks, 1)[rank], True) for seed in (3, 4, 5))
    scores = q @ k.transpose(1, 2) / math.sqrt(DIM)
    return swap(scores.softmax(2) @ v, False)


right = F.scaled_dot_product_attention(*(sample(seed, HEADS, TOKENS, DIM) for seed in (3, 4, 5)))
for ranks in (1, 2, 3, 4):
    run = launch(by_heads, ranks=ranks)
    unit = HEADS * TOKENS // ranks * DIM * 4
    error = (torch.cat(run.values, 1) - right).abs().max()
    sent, ring = run.trace.bytes_sent(0) / unit, 2 * (ranks - 1)
    predicted = f"(predicted {4 * (ranks - 1) / ranks:.2f})"
    print(f"p = {ranks}: all-to-all {sent:.2f} {predicted}, ring {ring}; off by {error:.0e}")
worlds = range(1, 17)
figure, ax = plt.subplots(figsize=(5.8, 3.3), layout="constrained")
ax.plot(worlds, [2 * (p - 1) / p for p in worlds], "o-", color=rank_color(0), label="ring")
ax.plot(worlds, [4 * (p - 1) / p / p for p in worlds], "s-", color=rank_color(1), label="all-to-all")
ax.set(xlabel="ranks p", ylabel="sent by a rank, in units of the whole q", ylim=(0, None))
ax.set_title("forward pass of one layer, the same whole sequence", loc="left", fontsize=10)
ax.spines[["top", "right"]].set_visible(False)
ax.legend(frameon=False, fontsize=9)
plt.show()

# %% [markdown]
# 4 (p-1)/p against 2 (p-1) of a rank's q: equal at p = 2, and from there on all-to-all sends less. But it
# deals out heads: no more ranks than there are heads, and of key-value heads (GQA) there are few. Its
# transfers cannot hide behind the products either, since attention can only begin when all has come. And
# where there are fewer key-value heads than query heads, the ring's blocks shrink with them. Many systems
# use both: all-to-all inside a machine, the ring between machines.
#
# ## What to take with you
#
# - Block softmaxes do not add up: the denominator belongs to the whole row. A maximum, a denominator and a
#   weighted sum make one pass enough; finished parts join by their log-sum-exps.
# - -inf - (-inf) waits wherever a row sees nothing of a block; plain causal tests never get there.
# - Blocks take the bytes of S x S away, not its FLOPs. The ring takes 1/p of k and v at a time, and all of
#   them travel: (p-1)/p of the whole to every rank, forward; backward about twice that.
# - Zigzag for equal work, transfers started before the products; positions, labels and token counts of the
#   whole sequence.
#
# **Next**: [lab 10](../labs/lab10_online_softmax/lab10_online_softmax.ipynb).
