# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Lab 11: Mixture of experts
#
# **20 points.** You write a router, a capacity and a balance loss, and then a layer whose experts lie on
# different ranks: every token travels to its experts, and its results travel back into its place. Values and
# gradients must be those of one process that holds all experts, with each rank computing for its own experts
# only.
#
# | part | what you write | points |
# |---|---|---|
# | 1 | the router; balance loss and z-loss, over the tokens of all ranks | 4 |
# | 2 | capacity: which choices are dropped, in one order for all ranks | 2 |
# | 3 | counts, and an all-to-all with a backward pass | 4 |
# | 4 | the layer | 7 |
# | 5 | gradients with experts and data parallelism together | 2 |
# | 6 | questions | 1 |
#
# *You should have read* notebooks 02, 04 and 14. *Time:* about four hours. *Machine:* any; no GPU is needed.

# %% [markdown]
# ## How this lab works
#
# - Write your code in the cells that raise `NotImplementedError`. The test cells below them are locked. Run
#   them as often as you like. Grading runs them with further sizes and numbers of ranks.
# - The tests look at **values**, at **gradients**, at **traffic** (how many bytes went from which rank to
#   which) and at **work** (how many FLOPs a rank spent).
# - **You may call** anything in `torch` and `torch.distributed`.
# - To try something, add a cell: `launch(lambda: my_function(...), ranks=3).values`.
#
# **Conventions.** `p` ranks of a *group* hold E experts (专家), E/p each: rank r holds the experts r E/p to
# (r+1) E/p - 1. Each rank has **tokens of its own**, T of them, and T differs from rank to rank; it can be
# 0. Each token chooses k experts (top-k); a *choice* (or slot) is one of these T k pairs. H is the hidden size, F
# the width inside an expert. `group=None` is the group of all ranks; use the group that you are given and no
# other. Every function must work for any p, 1 included.
#
# A rank without tokens still takes part in every exchange, forward and backward: the others wait for it.

# %% shared="imports"
import math

import torch
import torch.distributed as dist
import torch.nn.functional as F

from utils import check, launch
from utils.checks.experts import queued


def draw(seed: int, *shape: int) -> torch.Tensor:
    """Random float32 numbers of this shape, the same ones for the same seed on every rank."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def barrier() -> None:
    """Marks the journal between two passes."""
    if dist.is_initialized():
        dist.barrier()


def filled(grad: torch.Tensor | None, like: torch.Tensor) -> torch.Tensor:
    """A gradient; zeros where there is none."""
    return torch.zeros_like(like) if grad is None else grad


def choices(seed: int, tokens: int, experts: int, k: int, skew: float = 0.0) -> torch.Tensor:
    """Random choices [T, k], no expert twice for a token; with `skew`, low experts are chosen more often."""
    return (draw(seed, tokens, experts) - skew * torch.arange(float(experts))).topk(k).indices


# %% [markdown]
# # Part 1. The router
#
# ## route
#
# The *router* (路由器) gives each token E scores, the logits. `route(logits, k, renormalise)` turns `logits`
# `[T, E]` into
#
# - `ids` `[T, k]` (int64): the k experts with the largest probability, largest first;
# - `weights` `[T, k]` (float32): what their results count. Probabilities come from a softmax over **all** E
#   logits, computed in float32 also where logits are bf16.
#
# There are two conventions, and models use both. With `renormalise=False` the weights are these
# probabilities; they add up to less than 1. With `renormalise=True` they are divided by their sum.
#
# *Example*, the lecture's: 64 experts, top 2. Expert 7 has probability 0.3, expert 42 has 0.2, the other 62
# share the rest. `ids` is [7, 42]; `weights` is [0.3, 0.2], or renormalised [0.6, 0.4]. The lecture's 0.6
# and 0.4 add up to 1: either it renormalises, or the other 62 experts had probability 0.
#
# The gradient must flow from the weights to the logits: it is all that a router learns from. *Size:* about 5
# lines.

# %% solution="route"
def route(logits: torch.Tensor, k: int, renormalise: bool = True) -> tuple[torch.Tensor, torch.Tensor]:
    ### BEGIN SOLUTION
    probs = logits.float().softmax(-1)
    weights, ids = probs.topk(k, dim=-1)
    if renormalise:
        weights = weights / weights.sum(-1, keepdim=True)
    return ids, weights
    ### END SOLUTION


# %% test="route_values" points=1
def probe_route(cases):
    results = []
    for seed, tokens, experts, k, scale, bf16 in cases:
        logits = scale * draw(seed, tokens, experts)
        logits = logits.bfloat16() if bf16 else logits
        row = {"logits after the call": logits}
        for renormalise in (False, True):
            ids, weights = route(logits, k, renormalise)
            row |= {f"ids, renormalise={renormalise}": ids, f"weights, renormalise={renormalise}": weights}
        results.append(row)
    return results


def verdict_route(cases):
    rows = launch(probe_route, cases, ranks=None, timeout=20).value
    for row, (seed, tokens, experts, k, scale, bf16) in zip(rows, cases, strict=True):
        logits = scale * draw(seed, tokens, experts)
        logits = logits.bfloat16() if bf16 else logits
        exps = [[math.exp(v - max(token)) for v in token] for token in logits.double().tolist()]
        probs = torch.tensor([[v / sum(token) for v in token] for token in exps]).reshape(tokens, experts)
        ids = torch.tensor([sorted(range(experts), key=lambda e: -token[e])[:k] for token in logits.tolist()])
        ids = ids.long().reshape(tokens, k)
        raw = probs.gather(1, ids).float()
        share = (raw / raw.sum(1, keepdim=True)).float()
        picked, where = logits.float().gather(1, ids), f"route (E = {experts}, k = {k}, {logits.dtype})"
        check.agree(row["logits after the call"], logits, f"{where}: logits after the call", rtol=0, atol=0)
        for renormalise in (False, True):
            name = f"renormalise={renormalise}"
            finite = bool(row[f"weights, {name}"].isfinite().all())
            assert finite, f"{where}: NaN in the weights: exp of a large logit is infinite; take its maximum away first"
            backwards = {"the experts are right and stand the wrong way round": ids.flip(1)} if k > 1 else {}
            backwards |= {"they are the least likely ones": logits.float().argsort(1)[:, :k]}
            check.outcome(row[f"ids, {name}"], ids, f"{where}, ids", backwards)
            mistakes = {
                "they are the raw logits": picked,
                "they were not divided by their sum": raw,
                "they were divided by their sum, and the other convention was asked for": share,
                "a sigmoid was taken for the softmax": picked.sigmoid(),
                "they are all the same": torch.full_like(raw, 1 / k),
            }
            check.outcome(row[f"weights, {name}"], share if renormalise else raw, f"{where}, weights, {name}", mistakes)


verdict_route([(1, 4, 8, 2, 1.0, False)])
### BEGIN HIDDEN TESTS
verdict_route([(2, 5, 64, 2, 2.0, False), (3, 3, 6, 1, 1.0, False), (4, 3, 5, 4, 40.0, False)])
verdict_route([(5, 4, 8, 3, 1.0, True), (6, 0, 4, 2, 1.0, False)])
### END HIDDEN TESTS

# %% test="route_gradients" points=1
def probe_route_gradients(cases):
    grads = []
    for seed, tokens, experts, k, renormalise in cases:
        logits = draw(seed, tokens, experts).requires_grad_()
        weights = route(logits, k, renormalise)[1]
        if weights.grad_fn is not None:
            (weights * draw(seed + 1, tokens, k)).sum().backward()
        grads.append(filled(logits.grad, logits))
    return grads


def verdict_route_gradients(cases):
    grads = launch(probe_route_gradients, cases, ranks=None, timeout=20).value
    for grad, (seed, tokens, experts, k, renormalise) in zip(grads, cases, strict=True):
        result = {}
        for other in (False, True):
            logits = draw(seed, tokens, experts).double().requires_grad_()
            mass = logits.exp() / logits.exp().sum(1, keepdim=True)
            mass = mass.gather(1, logits.argsort(1, descending=True)[:, :k])
            mass = mass / mass.sum(1, keepdim=True) if other else mass
            (mass * draw(seed + 1, tokens, k)).sum().backward()
            result[other] = logits.grad.float()
        mistakes = {
            "it is 0: the weights were cut off from the logits (detach, no_grad, or a copy of the numbers)": grad * 0,
            "it is that of the other convention": result[not renormalise],
        }
        where = f"route (E = {experts}, k = {k}, renormalise={renormalise}), gradient of the logits"
        check.outcome(grad, result[renormalise], where, mistakes)


verdict_route_gradients([(11, 3, 6, 2, True), (13, 3, 6, 2, False)])
### BEGIN HIDDEN TESTS
verdict_route_gradients([(21, 4, 9, 3, True), (23, 4, 9, 3, False), (25, 2, 4, 1, True), (27, 2, 4, 1, False)])
### END HIDDEN TESTS

# %% [markdown]
# ## balance_loss and z_loss
#
# Nothing so far keeps a router from sending every token to the same experts. The *balance loss* (负载均衡损失;
# Fedus et al. 2021, arXiv 2101.03961, equations 4 to 6) is
#
# $$L = E \sum_{e=1}^{E} f_e P_e,$$
#
# $f_e$ the share of all T k choices that went to expert e, and $P_e$ the mean over the tokens of its
# probability (softmax over all E). Both add up to 1, so L is **1 when all is balanced** and at most E.
# (Counting tokens in place of choices, as some code does, gives k.) $f_e$ is a count and has no gradient; L
# pushes down the probabilities of experts that are chosen too often.
#
# The *z-loss* (Zoph et al. 2022, arXiv 2202.08906, equation 5) keeps logits small: the mean over the tokens of
# $(\log \sum_e \exp(\text{logit}_e))^2$.
#
# `balance_loss(logits, ids, group)` and `z_loss(logits, group)` are given this rank's `logits` `[T, E]` and
# `ids` `[T, k]`, and return (a scalar tensor) the loss of the tokens of **all ranks of the group**, as if one
# process had them all; the same number on each rank. After `loss.backward()`, called once on every rank, the
# gradient of a rank's logits is its part of the gradient that this one process would get. *Take care:* ranks
# have different numbers of tokens, so a mean of the ranks' means is not it.
#
# *Example*, p = 2, E = 2, k = 1. Rank 0 has one token with probabilities [0.75, 0.25], rank 1 two, with [0.5,
# 0.5]; all three chose expert 0. f = [1, 0], P = [1.75/3, 1.25/3], L = 2 * 1 * 1.75/3 = 1.1667 on both ranks.
#
# *Target:* at most 3E + 4 numbers a rank to each other rank, never the logits. *Size:* about 8 and 5 lines.
# *Hint:* which part of L does this rank's own logits appear in?

# %% solution="balance"
def balance_loss(
    logits: torch.Tensor, ids: torch.Tensor, group: dist.ProcessGroup | None = None
) -> torch.Tensor:
    ### BEGIN SOLUTION
    experts, k = logits.shape[1], ids.shape[1]
    sums = logits.float().softmax(-1).sum(0)
    counts = torch.bincount(ids.flatten(), minlength=experts).float()
    totals = torch.cat([counts, sums.detach(), torch.tensor([float(len(logits))])])
    dist.all_reduce(totals, group=group)
    counts, everyones, tokens = totals[:experts], totals[experts:-1], totals[-1]
    scale = experts * counts / (tokens * k) / tokens
    own, whole = (scale * sums).sum(), (scale * everyones).sum()
    return own + (whole - own.detach())
    ### END SOLUTION


def z_loss(logits: torch.Tensor, group: dist.ProcessGroup | None = None) -> torch.Tensor:
    ### BEGIN SOLUTION
    own = logits.float().logsumexp(-1).square().sum()
    totals = torch.stack([own.detach(), torch.tensor(float(len(logits)))])
    dist.all_reduce(totals, group=group)
    return (own + (totals[0] - own.detach())) / totals[1]
    ### END SOLUTION


# %% shared="balance_cases"
def balance_case(seed: int, tokens: list, experts: int, k: int, scale: float = 1.0) -> tuple[list, list]:
    """Logits and choices of each rank; the ranks prefer different experts."""
    logits = [scale * draw(seed + r, n, experts) + draw(seed + 50 + r, experts) for r, n in enumerate(tokens)]
    return logits, [one.topk(k).indices for one in logits]


def losses_on_rank(balance, z, cases):
    """On a rank: the value of both losses for each case, and the gradients of this rank's logits."""
    rank, results = dist.get_rank(), []
    for case in cases:
        logits, ids = balance_case(*case)
        row = {}
        for name, loss in (("balance_loss", lambda x, i=ids: balance(x, i[rank])), ("z_loss", z)):
            own = logits[rank].clone().requires_grad_()
            value = loss(own)
            if value.grad_fn is not None:
                value.backward()
            row |= {name: value.detach(), f"grad of {name}": filled(own.grad, own)}
        results.append(row)
    return results


def balance_of(logits: torch.Tensor, ids: torch.Tensor, others: torch.Tensor | None = None) -> torch.Tensor:
    """The balance loss of these tokens in one process; with `others`, counts are of these choices instead."""
    ids = ids if others is None else others
    experts, probs = logits.shape[1], logits.double().softmax(1)
    share = torch.tensor([float((ids == e).sum()) for e in range(experts)], dtype=torch.float64) / ids.numel()
    return experts * sum(share[e] * probs[:, e].mean() for e in range(experts))


def z_of(logits: torch.Tensor) -> torch.Tensor:
    return logits.double().logsumexp(1).square().mean()


# %% test="balance_values" points=1
def probe_balance(cases):
    return losses_on_rank(balance_loss, z_loss, cases)


def probe_balanced(experts):
    rank, ids = dist.get_rank(), torch.arange(experts).view(-1, 1)
    return balance_loss(torch.zeros(experts, experts), (ids + rank) % experts).detach()


def verdict_balance(cases, ranks):
    run = launch(probe_balance, cases, ranks=ranks, timeout=20)
    for number, case in enumerate(cases):
        logits, ids = balance_case(*case)
        every, chosen, k = torch.cat(logits), torch.cat(ids), case[3]
        value, some = balance_of(every, chosen), [r for r in range(ranks) if len(logits[r])]
        means = {"balance_loss": sum(balance_of(logits[r], ids[r]) for r in some) / ranks,
                 "z_loss": sum(z_of(logits[r]) for r in some) / ranks}  # fmt: skip
        for rank in range(ranks):
            got, who = run.values[rank][number], f"(p = {ranks}, rank {rank})"
            mistakes = {
                "it is k times too large: counts must be divided by the T k choices": k * value,
                "the factor E is missing": value / every.shape[1],
                "it is the mean of the ranks' own losses, but they have different tokens": means["balance_loss"],
                "it is the sum of the ranks' own losses": means["balance_loss"] * ranks,
                "probabilities were added up, not averaged": value * len(every),
            }
            own_z = {
                "the square is missing": every.double().logsumexp(1).mean(),
                "it is a sum over the tokens; a mean is wanted": z_of(every) * len(every),
                "it is the mean of the ranks' means, but they have different numbers of tokens": means["z_loss"],
            }
            if rank in some:
                alone = "it is the loss of this rank's own tokens: nothing was added up over the ranks"
                mistakes[alone], own_z[alone] = balance_of(logits[rank], ids[rank]), z_of(logits[rank])
                counts = "the choices counted are this rank's only; was the result of the all-reduce used?"
                mistakes[counts] = balance_of(every, chosen, ids[rank])
            rows = ("balance_loss", value, mistakes), ("z_loss", z_of(every), own_z)
            for name, want, wrong in rows:
                wrong = {sentence: other.float() for sentence, other in wrong.items()}
                check.outcome(got[name], want.float(), f"{name} {who}", wrong)


verdict_balance([(100, [3, 5], 4, 2)], 2)
run = launch(probe_balanced, 4, ranks=2, timeout=20)
check.agree(run.value, torch.tensor(1.0), "balance_loss of a balanced router, which is 1")
### BEGIN HIDDEN TESTS
verdict_balance([(110, [4, 0, 3], 6, 2), (120, [1, 2, 5], 4, 1)], 3)
verdict_balance([(130, [2, 3, 4, 1], 8, 3, 40.0)], 4)
verdict_balance([(140, [5], 4, 2)], 1)
### END HIDDEN TESTS

# %% test="balance_gradients" points=1
def probe_balance_gradients(cases):
    return losses_on_rank(balance_loss, z_loss, cases)


def gradient(loss, *tensors):
    """The gradient of loss(*tensors) by the first of them."""
    leaf = tensors[0].clone().requires_grad_()
    loss(leaf, *tensors[1:]).backward()
    return leaf.grad


def verdict_balance_gradients(cases, ranks):
    run = launch(probe_balance_gradients, cases, ranks=ranks, timeout=20)
    for number, case in enumerate(cases):
        logits, ids = balance_case(*case)
        every, chosen = torch.cat(logits), torch.cat(ids)
        dense = {"balance_loss": gradient(balance_of, every, chosen), "z_loss": gradient(z_of, every)}
        for rank, part in enumerate(torch.arange(len(every)).split([len(own) for own in logits])):
            if not len(part):
                continue
            own = {"balance_loss": gradient(balance_of, logits[rank], ids[rank])}
            own["z_loss"] = gradient(z_of, logits[rank])
            for name, grads in dense.items():
                alone = "it is that of the loss of this rank's own tokens, divided by their number only"
                check.agree(
                    run.values[rank][number][f"grad of {name}"],
                    grads[part],
                    f"{name} (p = {ranks}, rank {rank}), gradient of the logits",
                    suspects={
                        f"the backward pass added it up over the {ranks} ranks once too often": float(ranks),
                        f"divided by the {ranks} ranks; its part of the whole gradient is wanted": 1 / ranks,
                        "divided by this rank's tokens; the mean is over the tokens of all": len(every) / len(part),
                        "counts must be divided by the T k choices": float(case[3]),
                    },
                    resembles={alone: own[name], "no gradient flows to the logits": grads[part] * 0},
                    atol=1e-7,
                )


verdict_balance_gradients([(150, [3, 4], 5, 3)], 2)
### BEGIN HIDDEN TESTS
verdict_balance_gradients([(160, [4, 0, 3], 6, 2), (170, [1, 2, 4], 4, 1)], 3)
verdict_balance_gradients([(180, [2, 3, 3, 1], 8, 3)], 4)
### END HIDDEN TESTS

# %% [markdown]
# # Part 2. Capacity
#
# ## drop_over_capacity
#
# Hardware likes buffers of one size. So an expert takes at most `capacity` (容量) choices a step, and what comes
# later is dropped: the token goes on without this expert. Who comes first? Here, as in GShard (arXiv
# 2006.16668, algorithm 1): **all first choices come before all second choices**, and so on; among the choices
# of one number, tokens come in their order, those of rank 0 before those of rank 1.
#
# `drop_over_capacity(ids, num_experts, capacity, group)` is given this rank's `ids` `[T, k]` and returns a
# new tensor like it, with -1 in place of each dropped choice. The result must not depend on how the tokens
# are spread over ranks: it is what one process would drop that has all tokens in the order of the ranks.
#
# *Example*, p = 2, E = 2, k = 2, capacity 2. Rank 0: [[0, 1]]; rank 1: [[0, 1], [0, 1]]. The queue for expert
# 0: rank 0's token, rank 1's two tokens; the third is over. All of them choose expert 1 second; again the
# third is over. Rank 0 gets [[0, 1]], rank 1 [[0, 1], [-1, -1]]: its last token has no expert at all.
#
# *Target:* k E numbers a rank to each other rank, never the ids themselves. *Size:* about 8 lines. *Hint:*
# how many choices come before those of this rank? Then `F.one_hot(ids, E).cumsum(0)`.

# %% solution="drop_over_capacity"
def drop_over_capacity(
    ids: torch.Tensor, num_experts: int, capacity: int, group: dist.ProcessGroup | None = None
) -> torch.Tensor:
    ### BEGIN SOLUTION
    hot = F.one_hot(ids, num_experts)  # [T, k, E]
    own = hot.sum(0)  # [k, E]
    everyones = [torch.empty_like(own) for _ in range(dist.get_world_size(group))]
    dist.all_gather(everyones, own, group=group)
    total = sum(everyones)
    before = total.cumsum(0) - total  # earlier choices of everybody
    before = before + sum(everyones[: dist.get_rank(group)])  # the same choice, of ranks before this one
    place = ((hot.cumsum(0) - 1 + before) * hot).sum(-1)  # [T, k], from 0
    return torch.where(place < capacity, ids, -1)
    ### END SOLUTION


# %% shared="capacity_cases"
def capacity_mistakes(ids: list, capacity: int, rank: int) -> dict:
    """What known mistakes leave of rank `rank`'s choices."""
    mistakes = {
        "tokens came one by one; all first choices come before all second choices": (ids, capacity, "token"),
        "the last tokens were served first": (ids, capacity, "late"),
        "one more than the capacity was kept": (ids, capacity + 1),
        "one fewer than the capacity was kept": (ids, capacity - 1),
        "nothing was dropped": (ids, 10**6),
        "one rank came after the other; first choices of all ranks come first": (ids, capacity, "rank"),
    }
    result = {sentence: queued(*case)[rank] for sentence, case in mistakes.items()}
    if len(ids) > 1:
        own, each = "each rank filled the capacity with its own tokens", "each rank got an equal part of the capacity"
        result[f"{own}; it is one queue for the tokens of all"] = queued(ids[rank : rank + 1], capacity)[0]
        result[f"{each}; it is one queue for the tokens of all"] = queued(ids[rank : rank + 1], capacity // len(ids))[0]
    return result


def capacity_case(seed: int, tokens: list, experts: int, k: int, capacity: int) -> list:
    """The choices of each rank; low experts are chosen more often."""
    return [choices(seed + r, n, experts, k, skew=0.4) for r, n in enumerate(tokens)]


# %% test="capacity_order" points=1
def probe_capacity_order(cases):
    results = []
    for case in cases:
        (ids,) = capacity_case(*case)
        results.append({"kept": drop_over_capacity(ids, case[2], case[4]), "ids": ids})
    return results


def verdict_capacity_order(cases):
    rows = launch(probe_capacity_order, cases, ranks=1, timeout=20).value
    for row, case in zip(rows, cases, strict=True):
        ids, capacity = capacity_case(*case), case[4]
        check.unchanged([row["ids"]], ids, "drop_over_capacity")
        want = queued(ids, capacity)[0]
        where = f"drop_over_capacity (p = 1, capacity {capacity})"
        check.outcome(row["kept"], want, where, capacity_mistakes(ids, capacity, 0))


verdict_capacity_order([(200, [5], 4, 2, 2)])
### BEGIN HIDDEN TESTS
verdict_capacity_order([(210, [9], 4, 2, 3), (220, [7], 6, 3, 2), (230, [6], 3, 1, 1), (240, [6], 4, 2, 0)])
### END HIDDEN TESTS

# %% test="capacity_over_ranks" points=1
def probe_capacity_ranks(cases):
    rank, results = dist.get_rank(), []
    for case in cases:
        ids = capacity_case(*case)[rank]
        results.append({"kept": drop_over_capacity(ids, case[2], case[4]), "ids": ids})
    return results


def verdict_capacity_ranks(cases, ranks, delay=None):
    run = launch(probe_capacity_ranks, cases, ranks=ranks, timeout=20, delay=delay)
    for number, case in enumerate(cases):
        ids, capacity = capacity_case(*case), case[4]
        want = queued(ids, capacity)
        check.unchanged([value[number]["ids"] for value in run.values], ids, "drop_over_capacity")
        for rank in range(ranks):
            where = f"drop_over_capacity (p = {ranks}, rank {rank}, capacity {capacity})"
            mistakes = capacity_mistakes(ids, capacity, rank)
            check.outcome(run.values[rank][number]["kept"], want[rank], where, mistakes)


verdict_capacity_ranks([(250, [4, 5], 4, 2, 3)], 2)
### BEGIN HIDDEN TESTS
verdict_capacity_ranks([(260, [5, 0, 4], 4, 2, 3), (270, [3, 6, 1], 3, 2, 4)], 3, delay={1: 0.02})
verdict_capacity_ranks([(280, [4, 2, 5, 3], 5, 3, 4)], 4)
### END HIDDEN TESTS

# %% [markdown]
# # Part 3. Moving rows
#
# ## count_rows
#
# Before rows can travel, each rank must know how many will come. `count_rows(ids, num_experts, group)` is given
# this rank's `ids` `[T, k]` (-1: dropped, counts nowhere) and returns two int64 tensors `[p, E/p]`:
#
# - `send[s, e]`: how many of this rank's choices go to rank s for its e-th expert;
# - `recv[s, e]`: how many choices come from rank s for this rank's own e-th expert.
#
# *Example*, p = 2, E = 4: rank 0 has [[0, 3], [3, 1]], rank 1 has [[2, -1]]. Rank 0: send [[1, 1], [0, 2]],
# recv [[1, 1], [0, 0]]. Rank 1: send [[0, 0], [1, 0]], recv [[0, 2], [1, 0]].
#
# *Target:* an all-to-all (全互换): E/p numbers to each other rank. *Size:* about 5 lines.

# %% solution="count_rows"
def count_rows(
    ids: torch.Tensor, num_experts: int, group: dist.ProcessGroup | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    ### BEGIN SOLUTION
    kept = ids[ids >= 0]
    send = torch.bincount(kept, minlength=num_experts).view(dist.get_world_size(group), -1)
    recv = torch.empty_like(send)
    dist.all_to_all_single(recv, send, group=group)
    return send, recv
    ### END SOLUTION


# %% shared="count_cases"
def some_dropped(seed: int, tokens: int, experts: int, k: int) -> torch.Tensor:
    """Choices, about a quarter of them dropped."""
    ids = choices(seed, tokens, experts, k)
    return ids.masked_fill(draw(seed + 1, tokens, k) < -0.7, -1)


# %% test="counts_values" points=1
def probe_counts(cases):
    rank, results = dist.get_rank(), []
    for seed, tokens, experts, k in cases:
        ids = some_dropped(seed + 2 * rank, tokens[rank], experts, k)
        send, recv = count_rows(ids, experts)
        results.append({"send": send, "recv": recv})
    return results


def verdict_counts(cases, ranks):
    run = launch(probe_counts, cases, ranks=ranks, timeout=20)
    for number, (seed, tokens, experts, k) in enumerate(cases):
        ids = [some_dropped(seed + 2 * r, tokens[r], experts, k).flatten().tolist() for r in range(ranks)]
        table = torch.tensor([[own.count(e) for e in range(experts)] for own in ids]).view(ranks, ranks, -1)
        for rank in range(ranks):
            got, where = run.values[rank][number], f"count_rows (p = {ranks}, rank {rank}, E = {experts})"
            last = table[rank].clone()
            last[-1, -1] += ids[rank].count(-1)
            dropped = "dropped choices (-1) were counted for the last expert"
            check.outcome(got["send"], table[rank], f"{where}, send", {dropped: last})
            theirs = table[:, rank].clone()
            if rank == ranks - 1:
                theirs[:, -1] += torch.tensor([own.count(-1) for own in ids])
            mistakes = {
                "it is what this rank sends": table[rank],
                "it is what all ranks send this rank together, on each row": table[:, rank].sum(0).expand(ranks, -1),
                dropped: theirs,
            }
            check.outcome(got["recv"], table[:, rank], f"{where}, recv", mistakes)


verdict_counts([(300, [3, 4], 4, 2)], 2)
### BEGIN HIDDEN TESTS
verdict_counts([(310, [5, 0, 2], 9, 3), (320, [4, 4, 4], 3, 1)], 3)
verdict_counts([(330, [2, 6, 1, 3], 8, 2)], 4)
verdict_counts([(340, [4], 4, 2)], 1)
### END HIDDEN TESTS

# %% test="counts_traffic" points=1
def probe_small_messages(tokens, experts, k):
    logits = draw(350 + dist.get_rank(), tokens, experts).requires_grad_()
    ids = logits.detach().topk(k).indices
    barrier()
    balance_loss(logits, ids).backward()
    barrier()
    z_loss(logits).backward()
    barrier()
    drop_over_capacity(ids, experts, tokens // 2)
    barrier()
    count_rows(ids, experts)
    barrier()


def verdict_small_messages(tokens, experts, k, ranks):
    run = launch(probe_small_messages, tokens, experts, k, ranks=ranks, timeout=20)
    number, others = 8, ranks - 1
    check.sent_at_most(run.trace, [
        ("balance_loss", others * (3 * experts + 4) * number, "3E + 4 numbers to each other rank"),
        ("z_loss", others * 4 * number, "a sum and a count"),
        ("drop_over_capacity", others * k * experts * number, "k E counts to each other rank"),
        ("count_rows", others * experts // ranks * number, "E/p counts to each other rank"),
    ])  # fmt: skip


verdict_small_messages(60, 8, 2, 2)
### BEGIN HIDDEN TESTS
verdict_small_messages(80, 6, 3, 3)
### END HIDDEN TESTS

# %% [markdown]
# ## exchange
#
# `exchange(rows, send, recv, group)` is the all-to-all that carries rows, in a form that autograd can use.
# `rows` `[N, ...]` stand in the order of the ranks that they go to: the first `send[0]` go to rank 0, the next
# `send[1]` to rank 1, and so on (`send` and `recv` are lists of p whole numbers; any of them can be 0). It
# returns the rows that came in, those from rank 0 first: `[sum(recv), ...]`.
#
# In the backward pass the gradients go the opposite way: each row's gradient returns to where the row came
# from. `rows` and the gradient that comes in may be non-contiguous (gloo refuses those), and keep their values.
#
# *Example*, p = 2: rank 0 has rows [a, b, c] and send [1, 2], rank 1 has [d] and send [1, 0]. Rank 0 gets [a,
# d], rank 1 gets [b, c].
#
# *Target:* each row is sent once, and once back. *Size:* about 12 lines, with a `torch.autograd.Function`.
# `dist.all_to_all_single` has no backward pass of its own.

# %% solution="exchange"
class Exchange(torch.autograd.Function):
    @staticmethod
    def forward(ctx, rows, send, recv, group):
        ### BEGIN SOLUTION
        ctx.back = recv, send, group
        out = rows.new_empty(sum(recv), *rows.shape[1:])
        dist.all_to_all_single(out, rows.contiguous(), recv, send, group=group)
        return out
        ### END SOLUTION

    @staticmethod
    def backward(ctx, grad):  # one gradient for each argument of forward
        ### BEGIN SOLUTION
        send, recv, group = ctx.back
        out = grad.new_empty(sum(recv), *grad.shape[1:])
        dist.all_to_all_single(out, grad.contiguous(), recv, send, group=group)
        return out, None, None, None
        ### END SOLUTION


def exchange(
    rows: torch.Tensor, send: list[int], recv: list[int], group: dist.ProcessGroup | None = None
) -> torch.Tensor:
    return Exchange.apply(rows, send, recv, group)


# %% shared="exchange_cases"
def exchange_on_rank(swap, cases):
    """On a rank: one exchange forward and backward for each case, with strided rows and gradients."""
    rank, results = dist.get_rank(), []
    for seed, matrix, width in cases:
        send, recv = matrix[rank], [row[rank] for row in matrix]
        rows = draw(seed + rank, width, sum(send)).t().requires_grad_()
        out = swap(rows, send, recv)
        if out.grad_fn is not None:
            (out.t() * draw(seed + 20 + rank, width, sum(recv))).sum().backward()
        results.append({"out": out.detach(), "grad": filled(rows.grad, rows), "rows": rows.detach()})
    return results


def exchanged(parts: list, matrix: list) -> list:
    """What each rank has when rank r has sent its rows `parts[r]`, matrix[r][s] of them to rank s."""
    pieces = [own.split(row) for own, row in zip(parts, matrix, strict=True)]
    return [torch.cat([pieces[r][s] for r in range(len(parts))]) for s in range(len(parts))]


MATRIX = {
    1: [[3]],
    2: [[1, 2], [3, 0]],
    3: [[0, 2, 1], [4, 1, 0], [0, 0, 0]],
    4: [[1, 0, 2, 0], [0, 0, 0, 5], [1, 1, 1, 1], [2, 0, 0, 3]],
}


# %% test="exchange_values" points=1
def probe_exchange(cases):
    return exchange_on_rank(exchange, cases)


def verdict_exchange(cases, ranks, delay=None):
    run = launch(probe_exchange, cases, ranks=ranks, timeout=20, delay=delay)
    for number, (seed, matrix, width) in enumerate(cases):
        rows = [draw(seed + r, width, sum(matrix[r])).t() for r in range(ranks)]
        want = exchanged(rows, matrix)
        for rank in range(ranks):
            got, where = run.values[rank][number], f"exchange (p = {ranks}, rank {rank})"
            likes = {"they are the rows that this rank put in": rows[rank]} if ranks > 1 else {}
            check.outcome(got["out"], want[rank], where, likes)
            check.agree(got["rows"], rows[rank], f"{where}: rows after the call", rtol=0, atol=0)


verdict_exchange([(400, MATRIX[2], 3)], 2)
### BEGIN HIDDEN TESTS
verdict_exchange([(410, MATRIX[3], 2), (420, [[0] * 3] * 3, 4)], 3, delay={0: 0.02})
verdict_exchange([(430, MATRIX[4], 3)], 4)
verdict_exchange([(440, MATRIX[1], 2)], 1)
### END HIDDEN TESTS

# %% test="exchange_gradients" points=1
def probe_exchange_gradients(cases):
    return exchange_on_rank(exchange, cases)


def verdict_exchange_gradients(cases, ranks):
    run = launch(probe_exchange_gradients, cases, ranks=ranks, timeout=20)
    for number, (seed, matrix, width) in enumerate(cases):
        back = [[row[r] for row in matrix] for r in range(ranks)]
        grads = [draw(seed + 20 + r, width, sum(back[r])).t() for r in range(ranks)]
        want = exchanged(grads, back)
        for rank in range(ranks):
            mistakes = {
                "it is 0: no gradient came back through the all-to-all": want[rank] * 0,
                "it is the gradient that arrived here, never sent back": grads[rank],
            }
            where = f"exchange (p = {ranks}, rank {rank}), gradient of rows"
            check.outcome(run.values[rank][number]["grad"], want[rank], where, mistakes)


verdict_exchange_gradients([(450, MATRIX[2], 3)], 2)
### BEGIN HIDDEN TESTS
verdict_exchange_gradients([(460, MATRIX[3], 2), (470, [[1] * 3] * 3, 2)], 3)
verdict_exchange_gradients([(480, MATRIX[4], 3)], 4)
### END HIDDEN TESTS

# %% [markdown]
# # Part 4. The layer
#
# ## moe_layer
#
# `moe_layer(x, router, experts, k, capacity, renormalise, group)` puts it together:
#
# - `x` `[T, H]` is this rank's tokens; `router` `[E, H]` is the whole router weight, equal on all ranks, and
#   the logits are `x @ router.T`;
# - `experts` holds this rank's own E/p experts: `up` `[E/p, F, H]`, `up_bias` `[E/p, F]`, `down` `[E/p, H, F]`,
#   `down_bias` `[E/p, H]`. Expert e is `expert(rows, up[e], up_bias[e], down[e], down_bias[e])` (given
#   below);
# - `capacity` is a whole number, or None: nothing is dropped.
#
# It returns y `[T, H]`, this rank's tokens in their order: the weighted sum of the results of each token's
# experts. A dropped choice adds nothing, and the other weights of its token stay what they are; a token
# with no choice left gets zeros (in a model the residual connection carries it on).
#
# *Dispatch* (分发): one row for each choice that was kept, in the order of experts. *Combine* (合并): the
# results come back, and each goes to its token. A row that comes in is marked by nothing but its place:
# rows from rank 0 come first, and within them those for your first expert. Your experts want their rows
# together.
#
# *Example*, the lecture's: a token with `ids` [7, 42] and weights [0.6, 0.4] gets 0.6 E7(x) + 0.4 E42(x). With
# 8 experts a rank, E7 is on rank 0 and E42 is the third expert of rank 5: row x goes to both.
#
# **Gradients.** x and the experts get the gradients of one process that holds everything. For the experts
# this comes by itself: their rows come from all ranks. The router's gradient on a rank is the part of **this
# rank's tokens**; it is summed in part 5.
#
# *Target:* in each direction, 4 H bytes for each choice that leaves its rank and 4 H for each result; 4 H F
# FLOPs for each row that an expert gets, and no padded rows. *Size:* about 20 lines.

# %% shared="experts"
EXPERT = ("up", "up_bias", "down", "down_bias")


def expert(
    rows: torch.Tensor, up: torch.Tensor, up_bias: torch.Tensor, down: torch.Tensor, down_bias: torch.Tensor
) -> torch.Tensor:
    """One expert: [N, H] to [N, H]; up [F, H], up_bias [F], down [H, F], down_bias [H]. N can be 0."""
    return F.linear(F.gelu(F.linear(rows, up, up_bias)), down, down_bias)


# %% solution="moe_layer"
def moe_layer(
    x: torch.Tensor,
    router: torch.Tensor,
    experts: dict[str, torch.Tensor],
    k: int,
    capacity: int | None = None,
    renormalise: bool = True,
    group: dist.ProcessGroup | None = None,
) -> torch.Tensor:
    ### BEGIN SOLUTION
    ids, weights = route(x @ router.t(), k, renormalise)
    if capacity is not None:
        ids = drop_over_capacity(ids, len(router), capacity, group)
    send, recv = count_rows(ids, len(router), group)
    out_sizes, in_sizes = send.sum(1).tolist(), recv.sum(1).tolist()
    slots = ids.flatten().argsort(stable=True)[int((ids < 0).sum()) :]  # by expert, and so by rank; -1 stood first
    tokens = slots // k

    rows = exchange(x[tokens], out_sizes, in_sizes, group)
    local = torch.arange(recv.shape[1]).repeat(len(recv)).repeat_interleave(recv.flatten())  # the expert of each row
    order = local.argsort(stable=True)
    parts = rows[order].split(recv.sum(0).tolist())
    done = torch.cat([expert(part, *(experts[name][e] for name in EXPERT)) for e, part in enumerate(parts)])
    results = exchange(done[order.argsort()], in_sizes, out_sizes, group)

    return torch.zeros_like(x).index_add(0, tokens, results * weights.flatten()[slots, None])
    ### END SOLUTION


# %% shared="layer_cases"
def layer_case(seed: int, tokens: list, experts: int, hidden: int, ffn: int, skew: float = 0.0) -> dict:
    """A layer in one process: x and the gradient of the output of each rank, router, all experts.

    With `skew` the experts of low number are chosen more often.
    """
    router = draw(seed + 1, experts, hidden) / 2
    x = [draw(seed + 10 + r, n, hidden) for r, n in enumerate(tokens)]
    if skew:
        router[:, 0] = -skew * torch.arange(float(experts))
        x = [torch.cat([torch.ones(len(own), 1), own[:, 1:]], 1) for own in x]
    return {
        "x": x,
        "upstream": [draw(seed + 20 + r, n, hidden) for r, n in enumerate(tokens)],
        "router": router,
        "up": draw(seed + 2, experts, ffn, hidden),
        "up_bias": draw(seed + 3, experts, ffn),
        "down": draw(seed + 4, experts, hidden, ffn) / 2,
        "down_bias": 2 * draw(seed + 5, experts, hidden),
    }


def layer_step(layer, case: dict, k: int, **options) -> dict:
    """On a rank: forward and backward of `layer` on this rank's part; barriers before, between and after."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    own = {"x": case["x"][rank], "router": case["router"]}
    own |= {name: case[name].chunk(ranks)[rank] for name in EXPERT}
    leaves = {name: value.clone().requires_grad_() for name, value in own.items()}
    barrier()
    out = layer(leaves["x"], leaves["router"], {name: leaves[name] for name in EXPERT}, k, **options)
    barrier()
    if out.grad_fn is not None:
        (out * case["upstream"][rank]).sum().backward()
    barrier()
    grads = {f"grad of {name}": filled(leaf.grad, leaf) for name, leaf in leaves.items()}
    return {"out": out.detach(), **grads, **{f"{name} after the call": leaf.detach() for name, leaf in leaves.items()}}


def picked(logits: torch.Tensor, k: int, renormalise: bool = True, kept: torch.Tensor | None = None) -> torch.Tensor:
    """The weight of each expert's result in each token, [T, E]; with `kept` [T, k], of these choices only."""
    mass = logits.softmax(1)
    mass = mass * (mass >= mass.sort(1, descending=True).values[:, k - 1 : k])
    mass = mass / mass.sum(1, keepdim=True) if renormalise else mass
    if kept is None:
        return mass
    return mass * torch.stack([(kept == e).any(1) for e in range(mass.shape[1])], 1)


def mixed(x: torch.Tensor, matrix: torch.Tensor, case: dict) -> torch.Tensor:
    """Every expert works on all tokens, and `matrix` [T, E] says what counts."""
    results = [expert(x, *(case[name][e] for name in EXPERT)) for e in range(matrix.shape[1])]
    return sum(matrix[:, e : e + 1] * result for e, result in enumerate(results))


def all_choices(case: dict, k: int) -> list:
    """The choices of each rank's tokens, largest weight first."""
    return [(x.double() @ case["router"].double().t()).argsort(1, descending=True)[:, :k] for x in case["x"]]


def dense_steps(case: dict, k: int, renormalise: bool = True, capacity: int | None = None, cut: str = "") -> list:
    """What each rank must hold after a step: the result of one process, in its parts, as `layer_step` names them.

    `cut` gives gradients of known mistakes: "weights" or "experts" lets no gradient through these.
    """
    ranks = len(case["x"])
    leaves = {name: case[name].double().requires_grad_() for name in ("router", *EXPERT)}
    xs = [x.double().requires_grad_() for x in case["x"]]
    kept = [None] * ranks if capacity is None else queued(all_choices(case, k), capacity)
    outs, routers = [], []
    for r, x in enumerate(xs):
        matrix = picked(x @ leaves["router"].t(), k, renormalise, kept[r])
        matrix = matrix.detach() if cut == "weights" else matrix
        if cut == "experts":
            frozen = {name: leaf.detach() for name, leaf in leaves.items()}
            outs.append(mixed(x.detach(), matrix, frozen))
        else:
            outs.append(mixed(x, matrix, leaves))
        loss = (outs[r] * case["upstream"][r]).sum()
        routers.append(torch.autograd.grad(loss, leaves["router"], retain_graph=True, allow_unused=True)[0])
    names = ("router", *EXPERT)
    grads = torch.autograd.grad(
        sum((out * up).sum() for out, up in zip(outs, case["upstream"], strict=True)),
        [*xs, *leaves.values()],
        allow_unused=True,
    )
    rows, whole = [], dict(zip(names, grads[ranks:], strict=True))
    for r in range(ranks):
        row = {"out": outs[r], "grad of x": filled(grads[r], xs[r])}
        row["grad of router"] = filled(routers[r], case["router"])
        row |= {f"grad of {name}": filled(whole[name], case[name]).chunk(ranks)[r] for name in EXPERT}
        row |= {"x after the call": case["x"][r], "router after the call": case["router"]}
        row |= {f"{name} after the call": case[name].chunk(ranks)[r] for name in EXPERT}
        rows.append({name: value.detach().float() for name, value in row.items()})
    return rows


def looked_at(row: dict, *names: str) -> dict:
    """The row with only the names looked at that begin or end like this."""
    return {name: value if name.startswith(names) or name.endswith(names) else None for name, value in row.items()}


def hold(got: dict, want: dict, what: str, likes, suspects: dict | None = None) -> None:
    """`got` is `want`; where not, `likes()` works out what known mistakes give, and the message names what fits."""
    try:
        check.agree(got, want, what, atol=2e-5)
    except check.CheckFailed:
        check.agree(got, want, what, suspects=suspects, resembles=likes(), atol=2e-5)


# %% test="moe_routing" points=1
def probe_moe_routing(cases, k):
    return [layer_step(moe_layer, coded(*case), k)["out"] for case in cases]


def coded(seed, tokens, experts, ffn):
    """A layer in which the result of expert e is 1 at place e and 0 elsewhere, whatever its input."""
    case = layer_case(seed, tokens, experts, experts, ffn)
    return case | {"down": torch.zeros(experts, experts, ffn), "down_bias": torch.eye(experts)}


def verdict_moe_routing(cases, k, ranks):
    run = launch(probe_moe_routing, cases, k, ranks=ranks, timeout=20)
    for number, case in enumerate(cases):
        layer = coded(*case)
        for rank, x in enumerate(layer["x"]):
            where = f"moe_layer (p = {ranks}, rank {rank}, E = {case[2]}, k = {k})"
            check.went_through(run.values[rank][number], picked(x @ layer["router"].t(), k), where)


verdict_moe_routing([(500, [4, 3], 4, 3)], 2, 2)
### BEGIN HIDDEN TESTS
verdict_moe_routing([(530, [5, 0, 2], 6, 3), (560, [1, 2, 3], 3, 2)], 2, 3)
verdict_moe_routing([(590, [3, 6, 1, 2], 12, 3)], 3, 4)
verdict_moe_routing([(620, [5], 4, 3)], 2, 1)
### END HIDDEN TESTS

# %% test="moe_values" points=1
def probe_moe_values(cases):
    return [layer_step(moe_layer, layer_case(*case), k, renormalise=again) for case, k, again in cases]


def by_arrival(case, k, renormalise):
    """The outputs when rows are given to experts in the order in which they come in: by rank, then by expert."""
    ranks, total = len(case["x"]), len(case["router"])
    width, chosen = total // ranks, all_choices(case, k)
    weights = [picked(x @ case["router"].t(), k, renormalise) for x in case["x"]]
    matrices = [torch.zeros(len(x), total) for x in case["x"]]
    for s in range(ranks):
        rows = [(r, t, int(e)) for r, own in enumerate(chosen) for t, row in enumerate(own) for e in row]
        rows = [row for row in rows if row[2] // width == s]
        rows.sort(key=lambda row: (row[0], row[2]))
        for (r, t, e), wrong in zip(rows, sorted(row[2] for row in rows), strict=True):
            matrices[r][t, wrong] += weights[r][t, e]
    return [mixed(x, matrix, case) for x, matrix in zip(case["x"], matrices, strict=True)]


def left_sorted(case, rank, k, renormalise):
    """The output when results stay in the order of the experts."""
    x, ids = case["x"][rank], all_choices(case, k)[rank]
    weights = picked(x @ case["router"].t(), k, renormalise).gather(1, ids)
    hot = F.one_hot(ids, len(case["router"])).float()
    slots = torch.stack([mixed(x, hot[:, j], case) for j in range(k)], 1).flatten(0, 1)
    slots = slots[ids.flatten().argsort(stable=True)].view(len(x), k, x.shape[1])
    return (slots * weights[..., None]).sum(1)


def values_like(case, rank, k, again):
    """What known mistakes make of rank `rank`'s output."""
    x, ranks = case["x"][rank], len(case["x"])
    matrix, first = picked(x @ case["router"].t(), k, again), torch.zeros(len(x), len(case["router"]))
    first[:, :: len(case["router"]) // ranks] = matrix.unflatten(1, (ranks, -1)).sum(-1)
    likes = {
        "the weights are of the other convention (renormalise)": dense_steps(case, k, not again)[rank]["out"],
        "the results were added up without their weights": mixed(x, (matrix > 0).float(), case),
        "rows went to experts in the order in which they came in; they come rank by rank":
            by_arrival(case, k, again)[rank],
        "each row went through the first expert of its rank": mixed(x, first, case),
        "the results were left in the order of the experts": left_sorted(case, rank, k, again),
    }  # fmt: skip
    return {sentence: {"out": value} for sentence, value in likes.items()}


def verdict_moe_values(cases, ranks):
    run = launch(probe_moe_values, cases, ranks=ranks, timeout=20)
    for number, (sizes, k, again) in enumerate(cases):
        case = layer_case(*sizes)
        dense = dense_steps(case, k, again)
        for rank in range(ranks):
            hold(
                run.values[rank][number],
                looked_at(dense[rank], "out", " after the call"),
                f"moe_layer (p = {ranks}, rank {rank}, E = {sizes[2]}, k = {k}, renormalise={again})",
                lambda case=case, rank=rank, k=k, again=again: values_like(case, rank, k, again),
            )


verdict_moe_values([((700, [4, 3], 4, 3, 5), 2, True)], 2)
### BEGIN HIDDEN TESTS
verdict_moe_values([((730, [5, 0, 2], 6, 4, 3), 2, False), ((760, [2, 4, 3], 3, 4, 3), 1, False)], 3)
verdict_moe_values([((790, [3, 6, 1, 2], 8, 5, 4), 3, True)], 4)
### END HIDDEN TESTS

# %% test="moe_gradients" points=1
def probe_moe_gradients(cases):
    return [layer_step(moe_layer, layer_case(*case), k, renormalise=again) for case, k, again in cases]


def gradients_like(case, rank, k, again):
    return {
        "it came by way of the router's weights only: nothing came back through the experts":
            dense_steps(case, k, again, cut="experts")[rank],
        "it came through the experts only: the weights let no gradient through":
            dense_steps(case, k, again, cut="weights")[rank],
    }  # fmt: skip


def verdict_moe_gradients(cases, ranks):
    run = launch(probe_moe_gradients, cases, ranks=ranks, timeout=20)
    for number, (sizes, k, again) in enumerate(cases):
        case = layer_case(*sizes)
        dense = dense_steps(case, k, again)
        for rank in range(ranks):
            hold(
                run.values[rank][number],
                looked_at(dense[rank], "grad of x", "grad of up", "grad of down"),
                f"moe_layer (p = {ranks}, rank {rank}, E = {sizes[2]}, k = {k}, renormalise={again})",
                lambda case=case, rank=rank, k=k, again=again: gradients_like(case, rank, k, again),
                {
                    f"divided by the {ranks} ranks; the rows of all ranks are in it already": 1 / ranks,
                    f"it was added up over the {ranks} ranks once too often": float(ranks),
                },
            )


verdict_moe_gradients([((900, [4, 3], 4, 3, 5), 2, True)], 2)
### BEGIN HIDDEN TESTS
verdict_moe_gradients([((930, [5, 0, 2], 6, 4, 3), 2, False), ((960, [0, 1, 0], 3, 4, 3), 1, False)], 3)
verdict_moe_gradients([((990, [3, 6, 1, 2], 8, 5, 4), 3, True)], 4)
### END HIDDEN TESTS

# %% test="moe_router_gradient" points=1
def probe_moe_router(cases):
    return [layer_step(moe_layer, layer_case(*case), k, renormalise=again) for case, k, again in cases]


def router_like(case, rank, k, again):
    name = "grad of router"
    dense, other = (dense_steps(case, k, which) for which in (again, not again))
    total = sum(row[name] for row in dense)
    likes = {
        "it is 0: the weights that multiply the results carry no gradient": total * 0,
        "it is summed over the ranks already: leave it the part of this rank's tokens": total,
        "it is that of the other convention (renormalise)": other[rank][name],
    }
    return {sentence: {name: value} for sentence, value in likes.items()}


def verdict_moe_router(cases, ranks):
    run = launch(probe_moe_router, cases, ranks=ranks, timeout=20)
    for number, (sizes, k, again) in enumerate(cases):
        case = layer_case(*sizes)
        dense = dense_steps(case, k, again)
        for rank in range(ranks):
            hold(
                run.values[rank][number],
                looked_at(dense[rank], "grad of router"),
                f"moe_layer (p = {ranks}, rank {rank}, E = {sizes[2]}, k = {k}, renormalise={again})",
                lambda case=case, rank=rank, k=k, again=again: router_like(case, rank, k, again),
                {f"divided by the {ranks} ranks": 1 / ranks},
            )


verdict_moe_router([((1100, [4, 3], 4, 3, 5), 2, True)], 2)
### BEGIN HIDDEN TESTS
verdict_moe_router([((1130, [5, 0, 2], 6, 4, 3), 2, False), ((1160, [2, 1, 3], 3, 4, 3), 1, False)], 3)
### END HIDDEN TESTS

# %% test="moe_dropped" points=1
def probe_moe_dropped(cases):
    torch.use_deterministic_algorithms(True, warn_only=True)  # memory that nobody wrote holds NaN from here on
    rows = []
    for case, k, capacity in cases:
        layer_step(moe_layer, layer_case(*case), k, capacity=capacity)
        rows.append(layer_step(moe_layer, layer_case(*case), k, capacity=capacity))  # the second call
    return rows


def dropped_like(case, rank, k, capacity):
    """What known mistakes make of rank `rank`'s output where some choices are dropped."""
    x, chosen = case["x"][rank], all_choices(case, k)
    kept, logits = queued(chosen, capacity)[rank], x @ case["router"].t()
    matrix = picked(logits, k, kept=kept)
    last = matrix.clone()
    last[:, -1] += (picked(logits, k).gather(1, chosen[rank]) * (kept < 0)).sum(1)
    again = matrix / matrix.sum(1, keepdim=True).clamp(min=1e-9)
    alone = picked(logits, k, kept=queued(chosen[rank : rank + 1], capacity)[0])
    likes = {
        "nothing was dropped": mixed(x, picked(logits, k), case),
        "dropped choices (-1) went through the last expert": mixed(x, last, case),
        "weights were renormalised again after dropping; they stay what they are": mixed(x, again, case),
        "each rank filled the capacity with its own tokens": mixed(x, alone, case),
        "tokens without any expert kept their x; zeros are wanted":
            torch.where((kept < 0).all(1, keepdim=True), x, mixed(x, matrix, case)),
    }  # fmt: skip
    return {sentence: {"out": value} for sentence, value in likes.items()}


def verdict_moe_dropped(cases, ranks):
    run = launch(probe_moe_dropped, cases, ranks=ranks, timeout=20)
    for number, (sizes, k, capacity) in enumerate(cases):
        case = layer_case(*sizes)
        kept = queued(all_choices(case, k), capacity)
        assert any((own < 0).all(1).any() for own in kept), "no token is dropped altogether"
        dense = dense_steps(case, k, capacity=capacity)
        for rank in range(ranks):
            got = run.values[rank][number]
            where = f"moe_layer (p = {ranks}, rank {rank}, capacity {capacity})"
            finite = all(bool(value.isfinite().all()) for value in got.values() if isinstance(value, torch.Tensor))
            assert finite, f"{where}: NaN: memory that was never written (an empty row for a dropped choice?)"
            hold(
                got,
                looked_at(dense[rank], "out"),
                where,
                lambda case=case, rank=rank, k=k, capacity=capacity: dropped_like(case, rank, k, capacity),
            )
            check.agree(got, looked_at(dense[rank], "grad of"), where, atol=2e-5)


verdict_moe_dropped([((1300, [5, 4], 4, 4, 3, 0.5), 2, 2)], 2)
### BEGIN HIDDEN TESTS
verdict_moe_dropped([((1330, [6, 0, 5], 6, 4, 3, 0.5), 2, 2), ((1360, [3, 4, 2], 3, 3, 3, 0.5), 1, 2)], 3)
### END HIDDEN TESTS

# %% test="moe_traffic" points=1
def probe_moe_traffic(case, k):
    layer_step(moe_layer, layer_case(*case), k)


def verdict_moe_traffic(sizes, k, ranks):
    run = launch(probe_moe_traffic, sizes, k, ranks=ranks, timeout=20)
    width = sizes[2] // ranks
    owners = [own // width for own in all_choices(layer_case(*sizes), k)]
    rows = [[int((own == s).sum()) for s in range(ranks)] for own in owners]
    fewest = [[int((own == s).any(1).sum()) for s in range(ranks)] for own in owners]
    check.expert_traffic(run.trace, rows, fewest, 4 * sizes[3], sizes[2], f"moe_layer (p = {ranks}, E = {sizes[2]})")


verdict_moe_traffic((1400, [12, 9], 4, 256, 2), 2, 2)
### BEGIN HIDDEN TESTS
verdict_moe_traffic((1430, [14, 0, 9], 6, 256, 2), 2, 3)
verdict_moe_traffic((1460, [6, 9, 12, 8], 8, 256, 2), 3, 4)
### END HIDDEN TESTS

# %% test="moe_work" points=1
def probe_moe_work(case, k):
    from utils.work import Work

    rank, ranks, whole = dist.get_rank(), dist.get_world_size(), layer_case(*case)
    own = {name: whole[name].chunk(ranks)[rank].clone().requires_grad_() for name in EXPERT}
    x, router = whole["x"][rank].requires_grad_(), whole["router"].requires_grad_()
    with Work() as work:
        moe_layer(x, router, own, k)
    return work.flops


def verdict_moe_work(sizes, k, ranks):
    run = launch(probe_moe_work, sizes, k, ranks=ranks, timeout=20)
    _, tokens, experts, hidden, ffn = sizes
    owners = torch.cat([own.flatten() for own in all_choices(layer_case(*sizes), k)]) // (experts // ranks)
    for rank in range(ranks):
        rows = int((owners == rank).sum())
        need = rows * 4 * hidden * ffn + 2 * tokens[rank] * hidden * experts
        most = need + 2 * tokens[rank] * k * hidden  # a weighted sum may be written as a product
        assert run.values[rank] <= most, (
            f"moe_layer (p = {ranks}, rank {rank}): {run.values[rank]} FLOPs, {run.values[rank] / need:.2f} times the "
            f"{need} of the router and of the {rows} rows for this rank's experts. Is there work for rows of other "
            "experts, or for rows of padding?"
        )


verdict_moe_work((1500, [12, 9], 4, 8, 32), 2, 2)
### BEGIN HIDDEN TESTS
verdict_moe_work((1530, [14, 0, 9], 6, 8, 32), 2, 3)
### END HIDDEN TESTS

# %% [markdown]
# # Part 5. Experts and data parallelism together
#
# ## average_gradients
#
# Large models use both: `ep` ranks hold the experts between them, and there are several such groups, each with a
# copy of all experts and with tokens of its own. With 4 ranks and ep = 2, the *expert-parallel groups* are {0, 1}
# and {2, 3}; ranks {0, 2} are *replicas* with the same experts, and so are {1, 3}. The router is on all four.
#
# On each rank the loss is the **sum** over its own tokens, so after backward `router.grad` is the part of the
# rank's tokens, and the experts' gradients are the part of the tokens of its expert-parallel group: the
# all-to-all has added those up already. `average_gradients(router, experts, tokens, replicas)` makes of both
# the gradient of the **mean over all tokens of all ranks**:
#
# - `router` is a tensor, `experts` a dict of tensors; their `.grad` is read and set. It may be None where
#   nothing was computed (an expert without tokens): that counts as 0, and afterwards there is a gradient.
# - `tokens` is the number of this rank's tokens; `replicas` is the group of ranks that hold the same experts
#   (None: all ranks).
#
# *Example*, p = 2, ep = 2 (each rank is its only replica), tokens 3 and 1. Router gradients [8] and [4]: both
# ranks get [8 + 4] / 4 = [3]. Rank 0's expert has gradient [20] and gets [20 / 4] = [5]; rank 1's has None and
# gets [0].
#
# *Size:* about 8 lines.

# %% solution="average_gradients"
def average_gradients(
    router: torch.Tensor,
    experts: dict[str, torch.Tensor],
    tokens: int,
    replicas: dist.ProcessGroup | None = None,
) -> None:
    ### BEGIN SOLUTION
    total = torch.tensor(float(tokens))
    dist.all_reduce(total)
    for tensor, group in [(router, None), *((one, replicas) for one in experts.values())]:
        grad = torch.zeros_like(tensor) if tensor.grad is None else tensor.grad.contiguous()
        dist.all_reduce(grad, group=group)
        tensor.grad = grad / total
    ### END SOLUTION


# %% shared="mesh_cases"
def expert_groups(ranks: int, ep: int) -> tuple:
    """On a rank: its expert-parallel group, and the group of its replicas."""
    rank, mine = dist.get_rank(), []
    rows = [list(range(first, first + ep)) for first in range(0, ranks, ep)]
    columns = [list(range(first, ranks, ep)) for first in range(ep)]
    for lists in (rows, columns):
        groups = [dist.new_group(members) for members in lists]
        mine.append(groups[[rank in members for members in lists].index(True)])
    return tuple(mine)


def gradient_case(seed: int, rank: int, ranks: int, ep: int) -> tuple:
    """Tokens of a rank, its router's gradient and those of its experts; rank 1's "down" has none."""
    router, up, down = draw(seed + rank, 3, 2), draw(seed + 10 + rank, 2, 4), draw(seed + 20 + rank, 2, 5)
    return 3 + 5 * rank % 7, router, up, None if rank == 1 else down


# %% test="gradients_averaged" points=1
def probe_average(seed, ranks, ep):
    rank = dist.get_rank()
    tokens, router, up, down = gradient_case(seed, rank, ranks, ep)
    tensors = {"router": torch.zeros(3, 2), "up": torch.zeros(2, 4), "down": torch.zeros(2, 5)}
    for tensor, grad in zip(tensors.values(), (router, up, down), strict=True):
        tensor.requires_grad_()
        tensor.grad = None if grad is None else grad.clone()
    replicas = expert_groups(ranks, ep)[1]
    average_gradients(tensors["router"], {name: tensors[name] for name in ("up", "down")}, tokens, replicas)
    return {name: tensor.grad for name, tensor in tensors.items()}


def verdict_average(seed, ranks, ep):
    run = launch(probe_average, seed, ranks, ep, ranks=ranks, timeout=20)
    cases = [gradient_case(seed, rank, ranks, ep) for rank in range(ranks)]
    total, names = sum(case[0] for case in cases), ("router", "up", "down")
    for rank in range(ranks):
        members = {"router": range(ranks), "up": range(rank % ep, ranks, ep), "down": range(rank % ep, ranks, ep)}
        shapes = {"router": (3, 2), "up": (2, 4), "down": (2, 5)}
        sums, every, own = {}, {}, {}
        for at, name in enumerate(names, 1):
            grads = [torch.zeros(shapes[name]) if case[at] is None else case[at] for case in cases]
            sums[name], own[name] = sum(grads[r] for r in members[name]), grads[rank] / total
            every[name] = sum(grads) / total
        near = sum(cases[r][0] for r in members["up"])
        check.agree(
            run.values[rank],
            {name: value / total for name, value in sums.items()},
            f"average_gradients (p = {ranks}, ep = {ep}, rank {rank})",
            suspects={
                "a sum; the mean over the tokens of all ranks is wanted": float(total),
                "divided by the number of ranks, not of tokens": total / ranks,
                "divided by this rank's own tokens": total / cases[rank][0],
                "divided by the tokens of its replicas only": total / near,
                "divided by the tokens, and then by the ranks too": 1 / ranks,
                "divided by the tokens, and then by the ranks that hold experts too (ep)": 1 / ep,
                "divided by the number of its replicas, not by all tokens": total / len(members["up"]),
            },
            resembles={
                "summed over all ranks, but other ranks hold other experts": {n: every[n] for n in ("up", "down")},
                "its replicas were not added": {n: own[n] for n in ("up", "down")},
                "it is the part of this rank's tokens: the ranks were not added": {"router": own["router"]},
            },
        )


verdict_average(1600, 4, 2)
verdict_average(1640, 2, 1)
### BEGIN HIDDEN TESTS
verdict_average(1680, 2, 2)
verdict_average(1720, 3, 3)
### END HIDDEN TESTS

# %% [markdown]
# ## Two steps
#
# Everything together, on 4 ranks with ep = 2 and different numbers of tokens: two steps of SGD. Each
# expert-parallel group has its own capacity, balance loss and z-loss, over its own tokens; the loss of a group of n
# tokens is the sum of $|y - target|^2$ plus n times (0.5 balance_loss + 0.01 z_loss), and the gradients are those
# of the mean over all tokens of both groups. After each step the router and the experts must be those of one process.

# %% shared="step_cases"
STEPS, RATE, BALANCE, Z, EP = 2, 0.05, 0.5, 0.01, 2


def dense_sgd(
    seed: int, tokens: list, experts: int, hidden: int, ffn: int, k: int, capacity: int, mistake: str = ""
) -> list:
    """The router and all experts after each step, by one process; `tokens[step]` has a number for each of 4 ranks.

    `mistake` is "queue" or "losses": these are then over all four ranks, not over those of a group.
    """
    case = layer_case(seed, tokens[0], experts, hidden, ffn)
    leaves = {name: case[name].double().requires_grad_() for name in ("router", *EXPERT)}
    history = []
    for step in range(STEPS):
        data, loss = layer_case(seed + step, tokens[step], experts, hidden, ffn), 0
        xs, targets = ([torch.cat(data[name][r : r + EP]).double() for r in (0, EP)] for name in ("x", "upstream"))
        every = [x @ leaves["router"].t() for x in xs]
        chosen = [logits.argsort(1, descending=True)[:, :k] for logits in every]
        queues = queued(chosen, capacity) if mistake == "queue" else [queued([ids], capacity)[0] for ids in chosen]
        for g, (x, target, logits, ids) in enumerate(zip(xs, targets, every, chosen, strict=True)):
            y = mixed(x, picked(logits, k, kept=queues[g]), leaves)
            if mistake == "losses":
                logits, ids = torch.cat([logits, every[1 - g].detach()]), torch.cat([ids, chosen[1 - g]])
            extra = BALANCE * balance_of(logits, ids) + Z * z_of(logits)
            loss = loss + (y - target).square().sum() + len(x) * extra
        (loss / sum(tokens[step])).backward()
        with torch.no_grad():
            for leaf in leaves.values():
                leaf -= RATE * leaf.grad
                leaf.grad = None
        history.append({name: leaf.detach().float() for name, leaf in leaves.items()})
    return history


# %% test="two_steps" points=1
def probe_two_steps(seed, tokens, experts, hidden, ffn, k, capacity):
    torch.use_deterministic_algorithms(True, warn_only=True)  # memory that nobody wrote holds NaN from here on
    rank, ranks = dist.get_rank(), dist.get_world_size()
    group, replicas = expert_groups(ranks, EP)
    case = layer_case(seed, tokens[0], experts, hidden, ffn)
    router = case["router"].clone().requires_grad_()
    own = {name: case[name].chunk(EP)[rank % EP].clone().requires_grad_() for name in EXPERT}
    history = []
    for step in range(STEPS):
        data, first = layer_case(seed + step, tokens[step], experts, hidden, ffn), rank - rank % EP
        x, target = data["x"][rank], data["upstream"][rank]
        y = moe_layer(x, router, own, k, capacity=capacity, group=group)
        logits = x @ router.t()
        balance = balance_loss(logits, route(logits, k)[0], group)
        extra = sum(tokens[step][first : first + EP]) * (BALANCE * balance + Z * z_loss(logits, group))
        ((y - target).square().sum() + extra).backward()
        average_gradients(router, own, len(x), replicas)
        with torch.no_grad():
            for tensor in (router, *own.values()):
                tensor -= RATE * tensor.grad
                tensor.grad = None
        history.append({"router": router.detach().clone(), **{name: t.detach().clone() for name, t in own.items()}})
    return history


def steps_like(sizes, rank, before):
    """What the first step gives where groups are not heeded."""
    likes = {"it did not change at all": before}
    for mistake, what in (("queue", "the capacity is that"), ("losses", "the losses are those")):
        row = dense_sgd(*sizes, mistake)[0]
        cut = {name: row[name] if name == "router" else row[name].chunk(EP)[rank % EP] for name in row}
        likes[f"{what} of all ranks, not of the group that was passed"] = cut
    return likes


def verdict_two_steps(*sizes):
    run = launch(probe_two_steps, *sizes, ranks=4, timeout=20)
    case, dense = layer_case(sizes[0], sizes[1][0], *sizes[2:5]), dense_sgd(*sizes)
    for step in range(STEPS):
        for rank in range(4):
            want, before = {"router": dense[step]["router"]}, {"router": case["router"]}
            want |= {name: dense[step][name].chunk(EP)[rank % EP] for name in EXPERT}
            before |= {name: case[name].chunk(EP)[rank % EP] for name in EXPERT}
            where = f"step {step + 1} of {STEPS} (4 ranks, ep = {EP}, rank {rank})"
            hold(run.values[rank][step], want, where, lambda rank=rank, before=before: steps_like(sizes, rank, before))


verdict_two_steps(1800, [[4, 3, 2, 5], [3, 4, 6, 1]], 4, 3, 4, 2, 3)
### BEGIN HIDDEN TESTS
verdict_two_steps(1850, [[6, 0, 3, 2], [2, 5, 0, 4]], 6, 4, 3, 2, 2)
### END HIDDEN TESTS

# %% [markdown]
# ## Measure it
#
# The next cell is not graded. It runs your layer on 4 ranks with routers that prefer the experts of low number
# more and more, and draws how many rows each rank computes, and how many choices a capacity of 1.25 times the
# mean would drop. *Before you run it: with all tokens on the same two of 16 experts, both on rank 0, how much
# longer than in the balanced case does everybody wait? What share is dropped?*

# %%
def rows_on_rank(skew, tokens, experts, k, capacity):
    case = layer_case(5, [tokens] * dist.get_world_size(), experts, 16, 64, skew)
    rank, ranks = dist.get_rank(), dist.get_world_size()
    own = {name: case[name].chunk(ranks)[rank] for name in EXPERT}
    ids = route(case["x"][rank] @ case["router"].t(), k)[0]
    moe_layer(case["x"][rank], case["router"], own, k)
    kept = drop_over_capacity(ids, experts, capacity)
    return int(count_rows(ids, experts)[1].sum()), int((kept < 0).sum())


def measure_and_plot(tokens=64, experts=16, k=2, ranks=4):
    import matplotlib.pyplot as plt

    from utils.pictures import rank_color

    skews, capacity = [0.0, 0.1, 0.3, 1.0, 3.0], math.ceil(1.25 * ranks * tokens * k / experts)
    rows, dropped = [], []
    for skew in skews:
        run = launch(rows_on_rank, skew, tokens, experts, k, capacity, ranks=ranks)
        rows.append([value[0] for value in run.values])
        dropped.append(sum(value[1] for value in run.values) / (ranks * tokens * k))
        sent = [run.trace.bytes_sent(rank) for rank in range(ranks)]
        print(f"skew {skew}: rows by rank {rows[-1]}, bytes sent by rank {sent}, dropped {dropped[-1]:.0%}")
    left, right = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")[1]
    for rank in range(ranks):
        left.plot(range(len(skews)), [row[rank] for row in rows], "o-", color=rank_color(rank), label=f"rank {rank}")
    left.axhline(tokens * k, color="#BBBBBB", linewidth=1)
    left.set(ylabel="rows that the rank computes", title="the slowest rank sets the time", ylim=(0, None))
    left.legend(frameon=False, fontsize=9)
    right.plot(range(len(skews)), [100 * share for share in dropped], "o-", color="#D55E00")
    right.set(ylabel="% of the choices dropped", title=f"capacity {capacity} an expert", ylim=(0, 100))
    for ax in (left, right):
        ax.set_xticks(range(len(skews)), skews)
        ax.set_xlabel("how much the router prefers low experts")
        ax.spines[["top", "right"]].set_visible(False)
    plt.show()


measure_and_plot()

# %% [markdown]
# # Part 6. Questions
#
# ## questions
#
# The visible tests show only whether your answer has the right form. Return one dictionary.
#
# *The lecture's token*: 64 experts, top 2. The softmax over all 64 gives expert 7 the probability 0.3 and expert
# 42 0.2. E7(x) = [10, 20], E42(x) = [5, 0].
#
# - `"renormalised"`: the output with renormalised weights, a list of whole numbers.
# - `"raw"`: the output when the two probabilities are used as they are, a list of whole numbers.
#
# *A layer*: E = 64 experts on p = 8 ranks, k = 2, 4096 tokens on **each** rank, H = 4096, F = 14336 (two
# matrices, no biases), activations in bf16.
#
# - `"capacity"`: the capacity of an expert (choices of all ranks together) with a capacity factor of 1.25.
# - `"dispatch_bytes"`: with perfectly balanced routing, how many bytes does each rank send to other ranks in one
#   dispatch?
# - `"flops_ratio"`: FLOPs of a token's experts, divided by those of one expert.
# - `"parameters_ratio"`: parameters of all experts, divided by those of one expert.
# - `"one_rank_time"`: with balanced routing all experts' work takes 1 ms on each rank. Now all tokens choose
#   experts of rank 3 only, and nothing is dropped. How many ms does the layer's expert work take?
#
# *One letter for each*:
#
# `"why_balance"`: why must routing be balanced?
#
# - A: because tokens of one expert cannot be computed together.
# - B: because the rank of a crowded expert makes all others wait, while their hardware idles, and what is over
#   capacity is dropped.
# - C: because the gradients of experts are averaged.
# - D: because the all-to-all works only with equal sizes.
#
# `"convention"`: the lecture takes softmax over 64 scores, then the largest two, "0.6 and 0.4". What must be said?
#
# - A: nothing; the two largest of 64 probabilities always add up to 1.
# - B: that the softmax is over two scores, which is never done.
# - C: whether they are renormalised: two of 64 probabilities do not add up to 1 by themselves.
# - D: that the weights must be integers.
#
# `"top_1"`: with k = 1 and renormalised weights, what does the router learn from the layer's output?
#
# - A: nothing: the weight is always 1, and its gradient 0.
# - B: the same as with k = 2.
# - C: twice as much, since all the weight is on one expert.
# - D: only its bias.
#
# `"expert_gradients"`: ep = 8 ranks hold the experts, and no expert has a replica. What happens to an expert's
# gradient after backward (loss: a sum over tokens)?
#
# - A: it is all-reduced over the 8 ranks.
# - B: it is averaged over the 8 ranks.
# - C: nothing is added: the rows of all ranks came to this expert; it is divided by the number of all tokens.
# - D: it is multiplied by 8.

# %% solution="questions"
def questions() -> dict:
    ### BEGIN SOLUTION
    return {
        "renormalised": [8, 12],
        "raw": [4, 6],
        "capacity": 1280,
        "dispatch_bytes": 4096 * 2 * 7 // 8 * 4096 * 2,
        "flops_ratio": 2,
        "parameters_ratio": 64,
        "one_rank_time": 8,
        "why_balance": "B",
        "convention": "C",
        "top_1": "A",
        "expert_gradients": "C",
    }
    ### END SOLUTION


# %% test="question_values" points=1
answer = check.answer(launch(lambda: questions(), ranks=None, timeout=20).value, "questions")
for key in ("renormalised", "raw"):
    check.has_list_of_ints(answer, key, "questions")
for key in ("capacity", "dispatch_bytes", "flops_ratio", "parameters_ratio", "one_rank_time"):
    check.has_number(answer, key, "questions")
for key in ("why_balance", "convention", "top_1", "expert_gradients"):
    check.has_letter(answer, key, "ABCD", "questions")
### BEGIN HIDDEN TESTS
outputs, probabilities = torch.tensor([[10.0, 20.0], [5.0, 0.0]]), torch.tensor([0.3, 0.2])
right = {"renormalised": (probabilities / probabilities.sum()) @ outputs, "raw": probabilities @ outputs}
right = {name: [round(float(v)) for v in value] for name, value in right.items()}
right |= {"why_balance": "B", "convention": "C", "top_1": "A", "expert_gradients": "C"}
check.answers_agree(answer, right, "questions")
choices_each, choices_all = 4096 * 2, 8 * 4096 * 2
check.number(answer["capacity"], math.ceil(1.25 * choices_all / 64), "capacity", "choices")
check.number(answer["dispatch_bytes"], choices_each * 7 / 8 * 4096 * 2, "dispatch_bytes", "bytes")
check.number(answer["flops_ratio"], 2, "flops_ratio", "experts")
check.number(answer["parameters_ratio"], 64, "parameters_ratio", "experts")
check.number(answer["one_rank_time"], 8, "one_rank_time", "ms")
### END HIDDEN TESTS

# %% [markdown]
# ## What to take away
#
# - The weights of the chosen experts are the router's only link to the loss: keep them in the graph.
# - Two conventions for the weights, two for the counts of the balance loss, several for who is dropped first.
#   Say which.
# - Counts first, then rows: dispatch and combine are the same all-to-all, and each is the other's backward pass.
# - An expert's gradient has the tokens of all ranks in it already. The router's has not.
# - Parameters grow with E, work with k; and the most crowded rank sets the time for everybody.
