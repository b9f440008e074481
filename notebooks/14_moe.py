# %% [markdown]
# # 14 · Mixture of experts
#
# **You will build** a layer with many feed-forwards of which each token uses only one or two; a router that
# chooses; a capacity and what it drops; the loss that keeps the load balanced, and a router that collapses
# without it, on real text. Then you put the experts on different ranks: tokens travel to them and back by
# all-to-all, and you count the rows and the bytes.
#
# **You need** notebook [02](02_collectives.ipynb) (all-to-all), and the feed-forward of a Transformer block.
#
# **Time**: about 50 minutes to read and try; 30 seconds to run.
#
# One expert for each token, one expert on each rank, and forward only across ranks: this notebook shows the
# simple case. Lab 11 asks for several experts a token and a rank, capacity over ranks, and all gradients.

# %%
from time import thread_time

import matplotlib.pyplot as plt
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

from utils import launch
from utils.models import Transformer, TransformerConfig, batches
from utils.pictures import draw_dispatch, draw_load, draw_matrix_of_rows, rank_color
from utils.work import Work

# %% [markdown]
# ## One token, 64 experts
#
# A *mixture of experts* (混合专家, MoE) has many feed-forwards, the *experts* (专家), in place of one. A *router*
# (路由器) gives each token one score for each expert, and the token goes to the k best. The lecture's token: 64
# experts, top 2; expert 7 gets weight 0.6, expert 42 gets 0.4, and the output is 0.6 E7(x) + 0.4 E42(x).
#
# Let the softmax over all 64 scores give expert 7 the probability 0.3, expert 42 0.2, and the other 62
# share 0.5.
#
# **Predict.** "Softmax, then the largest two": what are the two weights, and what do they add up to?

# %%
EXPERTS, HIDDEN = 64, 8


def sample(seed, *shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


probabilities = torch.full((EXPERTS,), 0.5 / 62)
probabilities[7], probabilities[42] = 0.3, 0.2
scores = probabilities.log() + 1.7  # a softmax does not see what is added to all scores
weights, chosen = scores.softmax(0).topk(2)
renormalised = weights / weights.sum()
print(f"experts {chosen.tolist()}: probabilities {[round(w, 3) for w in weights.tolist()]}, sum {weights.sum():.2f}")
print(f"divided by their sum: {[round(w, 3) for w in renormalised.tolist()]}")

matrices = sample(0, EXPERTS, HIDDEN, HIDDEN)  # an expert is a single matrix here
x = sample(1, HIDDEN)
y = sum(w * (matrices[e] @ x) for w, e in zip(renormalised, chosen, strict=True))
by_hand = 0.6 * (matrices[7] @ x) + 0.4 * (matrices[42] @ x)
print("0.6 E7(x) + 0.4 E42(x):", torch.allclose(y, by_hand))
top_first = scores.topk(2).values.softmax(0)
print(f"softmax over the two best scores only: {[round(w, 3) for w in top_first.tolist()]}")

# %% [markdown]
# Two of 64 probabilities do not add up to 1. The lecture's 0.6 and 0.4 are the weights **after they were
# divided by their sum**. Both conventions are in use: Mixtral divides, OLMoE uses 0.3 and 0.2 as they are. A
# model trained with one and run with the other gives wrong answers and no error, so a configuration has to
# say which (`norm_topk_prob`). Dividing is the same as a softmax over the k best scores only.
#
# ## Parameters of 64, work of 2
#
# **Predict.** With 64 experts and top 2, how many times the parameters of one feed-forward does the layer
# have? How many times its FLOPs for a token? (The router adds 2 H E FLOPs.)

# %%
def feed_forward(rows, up, down):
    return F.gelu(rows @ up.t()) @ down.t()


def experts_of(seed, experts, hidden, ffn):
    return sample(seed, experts, ffn, hidden) / hidden**0.5, sample(seed + 1, experts, hidden, ffn) / ffn**0.5


def top_k_layer(x, router, up, down, k):
    """All experts in one process: each works on its own tokens only."""
    weights, ids = (x @ router.t()).softmax(-1).topk(k)
    weights = weights / weights.sum(-1, keepdim=True)
    y = torch.zeros_like(x)
    for e in range(len(router)):
        tokens, places = (ids == e).nonzero(as_tuple=True)
        y = y.index_add(0, tokens, weights[tokens, places, None] * feed_forward(x[tokens], up[e], down[e]))
    return y


tokens, hidden, ffn = sample(2, 128, 32), 32, 128
for count, k in ((1, 1), (8, 2), (64, 2)):
    up, down = experts_of(3, count, hidden, ffn)
    router = sample(4, count, hidden)
    with Work() as work:
        top_k_layer(tokens, router, up, down, k)
    parameters = up.numel() + down.numel() + router.numel()
    predicted = k * 4 * hidden * ffn + 2 * hidden * count
    counted = work.flops / len(tokens)
    print(f"E = {count:2}, top {k}: {parameters:6} parameters; FLOPs a token {counted:.0f}, predicted {predicted}")

# %% [markdown]
# Parameters grow with E, work with k. That is *conditional computation* (条件计算): more capacity to remember,
# at the price of two feed-forwards. The catch is all that follows.
#
# ## Capacity: what a queue drops
#
# An expert takes its tokens from a buffer of fixed size, its *capacity* (容量): tokens x k / E when all is
# balanced, times a *capacity factor* such as 1.25. What comes later is dropped: the token skips this layer, and
# only its residual connection carries it on.
#
# **Predict.** 256 tokens, 8 experts, top 1, factor 1.25: the capacity is 40. If the router sends every token
# to expert 0, what share is dropped?

# %%
def dropped_share(ids, experts, factor):
    """The share of the tokens that come when their expert is full."""
    capacity = int(factor * len(ids) / experts)
    hot = F.one_hot(ids, experts)
    place = ((hot.cumsum(0) - 1) * hot).sum(1)  # how many came before, to the same expert
    return (place >= capacity).float().mean().item()


even, random = torch.arange(256) % 8, torch.randint(8, (256,), generator=torch.Generator().manual_seed(5))
for name, ids in (("balanced", even), ("at random", random), ("all to one", torch.zeros(256, dtype=torch.int64))):
    print(f"{name:>10}: {dropped_share(ids, 8, 1.25):.1%} dropped; fullest expert has {ids.bincount().max()} of 256")
print(f"predicted for all to one: {1 - 40 / 256:.1%}")
draw_dispatch([[0, 1, 0], [0, 3], [2], [0, 0]], 4, capacity=3, title="eight tokens, four experts, capacity 3")
plt.show()

# %% [markdown]
# On the right each expert has its queue, on the left is each token, in the colour of the rank it comes from.
# Dashed: over capacity, dropped.
#
# ## A router collapses
#
# Now train one, on the source text of Python's standard library, byte by byte: a Transformer block whose
# feed-forward is 8 experts with top 1 and capacity factor 1.25. The router starts **collapsed**: a bias
# prefers expert 0.
#
# An expert that gets no token gets no gradient, so it never gets better, so it gets no token. The *balance
# loss* (负载均衡损失) breaks this circle. With $f_e$ the share of tokens that went to expert e, and $P_e$ the mean
# of its probability,
#
# $$L = E \sum_e f_e P_e$$
#
# is 1 when all are equal, and E when one has everything. $f_e$ is a count and has no gradient, but $P_e$ has
# one: it pushes down the probability of who has too many.
#
# **Predict.** Two trainings, without it and with 0.1 L added to the loss. What share is dropped at the start
# of each, and at the end?

# %%
class Experts(nn.Module):
    """A feed-forward of `experts` experts, top 1; leaves its balance loss and what it saw in attributes."""

    def __init__(self, hidden, ffn, experts, factor=1.25):
        super().__init__()
        self.router, self.factor = nn.Linear(hidden, experts), factor
        up, down = experts_of(7, experts, hidden, ffn)
        self.up, self.down = nn.Parameter(up), nn.Parameter(down)
        with torch.no_grad():
            self.router.bias.zero_()[0] = 4.0  # collapsed: expert 0 is preferred by far

    def forward(self, x):
        rows, experts = x.flatten(0, -2), len(self.up)
        probs = self.router(rows).softmax(-1)
        weights, ids = probs.max(-1)
        hot = F.one_hot(ids, experts)
        place = ((hot.cumsum(0) - 1) * hot).sum(1)
        kept = place < int(self.factor * len(rows) / experts)
        y = torch.zeros_like(rows)
        for e in range(experts):
            tokens = (kept & (ids == e)).nonzero()[:, 0]
            y = y.index_add(0, tokens, weights[tokens, None] * feed_forward(rows[tokens], self.up[e], self.down[e]))
        share = hot.float().mean(0)
        self.balance = experts * (share * probs.mean(0)).sum()
        self.seen = share.tolist(), 1 - kept.float().mean().item(), ids
        return y.view_as(x)


def trained(strength, steps=240):
    """What was seen in a training, step by step, and which bytes each expert gets in the end."""
    torch.manual_seed(0)
    model = Transformer(TransformerConfig(hidden=32, layers=1, heads=4, max_len=32))
    layer = model.blocks[0].feed_forward = Experts(32, 64, experts=8)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    seen = {"loss": [], "shares": [], "dropped": [], "balance": []}
    for tokens, targets in batches(16, 32, steps):
        loss = model.loss(tokens, targets)
        optimizer.zero_grad()
        (loss + strength * layer.balance).backward()
        optimizer.step()
        for name, value in zip(seen, (loss.item(), *layer.seen[:2], layer.balance.item()), strict=True):
            seen[name].append(value)
    tokens, targets = next(batches(32, 32, 1, seed=9))
    with torch.no_grad():
        model.loss(tokens, targets)
    return seen, [tokens.flatten()[layer.seen[2] == e].bincount(minlength=256) for e in range(8)]


def first_and_last(numbers):
    return f"{numbers[0]:.2f} at first, {sum(numbers[-20:]) / 20:.2f} at the end"


results = {strength: launch(trained, strength, ranks=None).value for strength in (0.0, 0.1)}
figure, axes = plt.subplots(1, 3, figsize=(10.5, 3), layout="constrained")
for number, (strength, (seen, _)) in enumerate(results.items()):
    print(f"balance loss x {strength}:")
    for name in ("dropped", "balance", "loss"):
        print(f"  {name:>7}: {first_and_last(seen[name])}")
    draw_load(seen["shares"], axes[number], title=f"balance loss x {strength}: who gets the tokens")
    percent = [100 * share for share in seen["dropped"]]
    axes[2].plot(percent, color=rank_color(number), linewidth=1.2, label=f"balance loss x {strength}")
axes[2].set(xlabel="step", ylabel="% of the tokens dropped", ylim=(0, 100))
axes[2].spines[["top", "right"]].set_visible(False)
axes[2].legend(frameon=False, fontsize=9)
plt.show()

# %% [markdown]
# Each band is an expert; dotted lines are equal shares. At the start expert 0 has everything, its queue drops five
# tokens of six, and for these the layer hardly exists. Without the balance loss the language loss itself moves
# the router in the end, but only from one crowded expert to the next, and about half of the tokens are still
# dropped. With it the router spreads the tokens out within some dozens of steps, and the loss is better too. Balance
# is never perfect: a batch of text is not even, and a strength that is too large would fight the language loss.
#
# What do the experts specialise in? Here are the bytes that each one gets most of, in text that was not
# trained on.

# %%
for e, counts in enumerate(results[0.1][1]):
    top = [repr(chr(byte))[1:-1].replace(" ", "␣") for byte in counts.topk(6).indices.tolist() if counts[byte] > 0]
    print(f"expert {e}: {int(counts.sum()):3} tokens, mostly {'  '.join(top)}")

# %% [markdown]
# Characters, kinds of characters, blanks: an expert of a language model is hardly ever a subject such as
# "chemistry".
#
# One more thing keeps a router healthy. A softmax does not see a number that is added to all scores, so nothing
# keeps the scores small. bf16 does see it: near 300 its numbers are 2 apart. The *z-loss*, the mean of (log of the
# sum of exponentials)² over the tokens, keeps the scores near 0.
#
# **Predict.** The same scores, plus 0, 30 and 300, rounded to bf16: how many tokens change their expert?

# %%
plain = sample(8, 2000, 8)
for shift in (0, 30, 300):
    shifted = plain + shift
    z = shifted.logsumexp(1).square().mean()
    rounded = shifted.bfloat16().float()
    error = (rounded.softmax(1) - plain.softmax(1)).abs().max()
    moved = (rounded.argmax(1) != plain.argmax(1)).float().mean()
    print(f"plus {shift:3}: z-loss {z:8.1f}; in bf16 {moved:5.1%} of the tokens change their expert, "
          f"probabilities are off by up to {error:.3f}")

# %% [markdown]
# Two reasons to compute the router in float32, and to add a small z-loss.
#
# ## Experts on ranks: all-to-all
#
# *Expert parallelism* (专家并行, EP): each rank holds some of the experts and has tokens of its own. So tokens
# travel: grouped by expert, an *all-to-all* (全互换) sends each to the rank of its expert (*dispatch*, 分发); the
# expert works; a second all-to-all, with the sizes the other way round, brings the results home (*combine*, 合并),
# where they are put back into their places. How many rows come is not known beforehand: the counts travel
# first.
#
# Four ranks with one expert each, top 1, and 5, 3, 0 and 4 tokens.
#
# **Predict.** Rank 2 has no token at all. Does it have anything to do? How many times does each rank call a
# collective?

# %%
RANKS, TOKENS = 4, [5, 3, 0, 4]


def ranks_tokens(width=HIDDEN):
    return [sample(20 + r, n, width) for r, n in enumerate(TOKENS)]


def there_and_back(x, ids, expert):
    """Rank r holds expert r. Returns each token's result, and how many rows came from which rank."""
    send = ids.bincount(minlength=dist.get_world_size())
    recv = torch.empty_like(send)
    dist.all_to_all_single(recv, send)  # first the counts
    order = ids.argsort(stable=True)
    rows = x.new_empty(int(recv.sum()), x.shape[1])
    dist.all_to_all_single(rows, x[order], recv.tolist(), send.tolist())
    results = torch.empty_like(x)
    dist.all_to_all_single(results, expert(rows), send.tolist(), recv.tolist())  # the sizes the other way round
    y = torch.empty_like(x)
    y[order] = results
    return y, recv


def on_rank(width, identity):
    rank = dist.get_rank()
    x, router = ranks_tokens(width)[rank], sample(37, RANKS, width)
    matrix = torch.eye(width) if identity else sample(40, RANKS, width, width)[rank]
    ids = (x @ router.t()).argmax(1)
    y, recv = there_and_back(x, ids, lambda rows: rows @ matrix.t())
    return y, recv.tolist(), ids.tolist()


def dense(width):
    """One process with all experts."""
    matrices, router = sample(40, RANKS, width, width), sample(37, RANKS, width)
    return [torch.stack([matrices[e] @ row for row, e in zip(x, (x @ router.t()).argmax(1), strict=True)])
            if len(x) else x for x in ranks_tokens(width)]  # fmt: skip


run = launch(on_rank, HIDDEN, False, ranks=RANKS)
matches = all(torch.allclose(y, want, atol=1e-5) for (y, _, _), want in zip(run.values, dense(HIDDEN), strict=True))
rows = [[run.values[s][1][r] for s in range(RANKS)] for r in range(RANKS)]
calls = [len(run.trace.collectives(r)) for r in range(RANKS)]
print("equal to one process:", matches, "· collectives of each rank:", calls)
for r in range(RANKS):
    out = sum(rows[r]) - rows[r][r] + sum(rows[s][r] for s in range(RANKS) if s != r)
    predicted = out * HIDDEN * 4 + (RANKS - 1) * 8
    print(f"rank {r}: sent {run.trace.bytes_sent(r)} bytes, predicted {predicted}")
figure, axes = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained", width_ratios=(2, 1))
draw_dispatch([value[2] for value in run.values], RANKS, axes[0], title="dispatch: tokens and their experts")
draw_matrix_of_rows(rows, axes[1], title="rows from rank to rank")
plt.show()

# %% [markdown]
# Rank 2 has no token and takes part in all three collectives: its expert works for the others. The bytes are
# what the matrix of rows says: 4 H for each row that leaves its rank and 4 H for its result, and 8 bytes for
# each count. What stays at home (hatched) costs nothing.
#
# Compare this with moving the experts to the tokens, as ZeRO-3 would: an all-gather of everybody's weights.
# An expert of Mixtral has 176 million parameters, a token 4096 numbers.
#
# ## A test that sees nothing
#
# Did the rows go to the right experts, and come back to the right places? Some public test suites answer with
# experts that do nothing (the identity): what comes back must be what went in.
#
# **Predict.** Let every rank group its tokens by the **wrong** expert: (e + 1) mod 4. Does the identity notice?

# %%
def wrong_experts(width, identity):
    rank = dist.get_rank()
    x, router = ranks_tokens(width)[rank], sample(37, RANKS, width)
    matrix = torch.eye(width) if identity else sample(40, RANKS, width, width)[rank]
    ids = ((x @ router.t()).argmax(1) + 1) % RANKS
    return there_and_back(x, ids, lambda rows: rows @ matrix.t())[0]


for identity in (True, False):
    got = launch(wrong_experts, HIDDEN, identity, ranks=RANKS).values
    want = ranks_tokens() if identity else dense(HIDDEN)
    off = max((a - b).abs().max().item() for a, b in zip(got, want, strict=True) if len(a))
    print(f"experts that are {'all the identity' if identity else 'all different   '}: largest error {off:.2f}")

# %% [markdown]
# Experts must differ, or a test of routing tests nothing.
#
# ## Whose gradient is complete?
#
# torch has an all-to-all with a backward pass: the gradients go back the way the rows came. Two ranks, one
# expert each, and the loss is the sum over all tokens of both ranks.
#
# **Predict.** After `backward()`, before anything is reduced: is the gradient of expert 0, on rank 0, that of
# rank 0's tokens or that of all tokens? And that of the router, which both ranks hold?

# %%
def gradients_on_rank():
    import torch.distributed.nn.functional as collectives

    rank, ranks = dist.get_rank(), dist.get_world_size()
    x, router = ranks_tokens()[rank], sample(37, 2, HIDDEN).requires_grad_()
    matrix = sample(40, 2, HIDDEN, HIDDEN)[rank].requires_grad_()
    weights, ids = (x @ router.t()).softmax(1).max(1)
    order, send = ids.argsort(stable=True), ids.bincount(minlength=ranks)
    recv = torch.empty_like(send)
    dist.all_to_all_single(recv, send)
    out, into = send.tolist(), recv.tolist()
    rows = collectives.all_to_all_single(x.new_empty(sum(into), HIDDEN), x[order], into, out)
    back = collectives.all_to_all_single(torch.empty_like(x), rows @ matrix.t(), out, into)
    (weights[order, None] * back).sin().sum().backward()
    return router.grad, matrix.grad


def gradients_of_one():
    router, matrices = sample(37, 2, HIDDEN).requires_grad_(), sample(40, 2, HIDDEN, HIDDEN).requires_grad_()
    x = torch.cat(ranks_tokens()[:2])
    weights, ids = (x @ router.t()).softmax(1).max(1)
    (weights[:, None] * torch.einsum("thk,tk->th", matrices[ids], x)).sin().sum().backward()
    return router.grad, matrices.grad


values, (router_grad, expert_grads) = launch(gradients_on_rank, ranks=2).values, gradients_of_one()
for rank, (router, expert) in enumerate(values):
    same = torch.allclose(expert, expert_grads[rank], atol=1e-5)
    part = torch.allclose(router, router_grad, atol=1e-5)
    print(f"rank {rank}: its expert's gradient is that of all tokens: {same}; its router's: {part}")
total = values[0][0] + values[1][0]
print("the two routers' gradients add up to it:", torch.allclose(total, router_grad, atol=1e-5))

# %% [markdown]
# The expert's gradient is complete: the tokens of both ranks came to it. **All-reduce it over these ranks, or
# divide it by their number, and it is wrong** (several frameworks have had this bug; Adam hides the factor).
# The router is replicated and sees its own rank's tokens, like any weight under data parallelism: its
# gradient must be summed.
#
# ## The queue, in seconds
#
# Nobody can go on before the last result is home. So the most crowded rank sets the time, for all.
#
# **Predict.** Four ranks, 256 tokens each. With balanced routing each expert gets 256 rows. How much longer does
# the slowest rank compute when half of all tokens go to expert 0? When all do?

# %%
def busy_on_rank(share):
    """Rows of this rank's expert, and the seconds of processor time that it computed for them."""
    rank, width = dist.get_rank(), 192
    x, (up, down) = sample(50 + rank, 256, width), experts_of(60, 1, width, 4 * width)
    ids = torch.arange(256) % RANKS
    ids[: int(share * 256)] = 0
    spent = []

    def expert(rows):
        start = thread_time()
        done = feed_forward(rows, up[0], down[0])
        spent.append(thread_time() - start)
        return done

    for _ in range(6):
        _, recv = there_and_back(x, ids, expert)
    return int(recv.sum()), min(spent)


shares = [0.0, 0.33, 1.0]
measured = [launch(busy_on_rank, share, ranks=RANKS).values for share in shares]
base = sum(value[1] for value in measured[0]) / RANKS
figure, axes = plt.subplots(1, 3, figsize=(9.5, 2.8), layout="constrained", sharey=True)
for ax, values in zip(axes, measured, strict=True):
    counts, seconds = zip(*values, strict=True)
    predicted, slowest = max(counts) / 256, max(seconds) / base
    print(f"rows {list(counts)}: the slowest rank computes {slowest:.2f} times as long, predicted {predicted:.2f}")
    names, colors = [f"rank {r}" for r in range(RANKS)], [rank_color(r) for r in range(RANKS)]
    ax.bar(names, [1000 * s for s in seconds], color=colors)
    ax.set_title(f"rows {list(counts)}", fontsize=9)
    ax.spines[["top", "right"]].set_visible(False)
axes[0].set_ylabel("ms of computing")
plt.show()

# %% [markdown]
# With everything on one expert, four ranks are as slow as one: three idle. So routing must be balanced for the
# sake of time, not of quality only: the lecture's question. A capacity bounds the wait, at the price of
# dropped tokens; the balance loss makes both rare.
#
# ## What to take with you
#
# - Softmax over all, the k best, and then say whether the weights are divided by their sum.
# - Parameters grow with E, FLOPs with k.
# - Routers collapse by themselves: who gets no token gets no gradient. The balance loss, 1 when balanced, mends it.
# - Counts, dispatch, combine: three all-to-alls; bytes are 2 x 4 H for each row that leaves its rank.
# - Experts have the gradient of all tokens already; the router's must be summed.
# - The most crowded rank sets the time for everybody.
#
# **Next**: [lab 11](../labs/lab11_moe/lab11_moe.ipynb).
