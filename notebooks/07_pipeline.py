# %% [markdown]
# # 07 · Pipeline parallelism: cut the model by depth
#
# **You will build** pipelines on paper and on ranks: a Transformer cut into stages, schedules as plain data, a
# rule that says whether a schedule can run and how long it takes, and a GPipe engine that trains on real text
# and gives the gradients of one process. You predict the bubble by both definitions and then measure it.
#
# **You need** notebooks [02](02_collectives.ipynb) (send and receive) and [03](03_cost_model.ipynb); how
# `loss.backward()` adds to `.grad`.
#
# **Time**: about 70 minutes to read and try; 30 seconds to run.
#
# Equal micro-batches, one stage a rank, blocking sends: this notebook shows the simple case. Lab 05 asks you
# for an engine that runs any schedule.

# %%
import time

import matplotlib.pyplot as plt
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

from utils import Deadlock, launch
from utils.models import Transformer, TransformerConfig, batches
from utils.pictures.schedule import draw_schedule
from utils.schedules import Span, Timeline, action_text, most_in_flight, play, read_actions
from utils.stages import cut_model

# %% [markdown]
# ## A model, cut
#
# **Pipeline parallelism** (流水线并行, PP) cuts a model by depth. Each rank holds some consecutive layers, a
# **stage** (流水线阶段): the first stage turns tokens into activations `[B, S, H]`, a middle one turns
# activations into activations, the last one turns them into logits and a loss. Nobody holds the whole model,
# so a model may be p times as deep as one card could bear.
#
# What crosses between stages is small: one activation going down, its gradient coming back.
#
# **Predict.** Eight blocks of width 64 on four ranks, two blocks each. Which ranks hold more parameters than
# the others, and why? How many bytes cross a boundary for a batch of 8 rows of 32 tokens, there and back?

# %%
CONFIG = TransformerConfig(layers=8, hidden=64, heads=4, max_len=32, tied=False)
RANKS, ROWS, LENGTH = 4, 8, 32


def the_model(config=CONFIG):
    torch.manual_seed(0)  # every rank draws the same numbers and keeps its own stage
    return Transformer(config)


stages = cut_model(the_model(), [0, 2, 4, 6, 8])
for rank, stage in enumerate(stages):
    count = sum(p.numel() for p in stage.parameters())
    ends = {0: " + embeddings", 3: " + norm and output matrix"}.get(rank, "")
    print(f"rank {rank}: blocks {', '.join(stage.blocks)}{ends}: {count:,} parameters")
boundary = ROWS * LENGTH * CONFIG.hidden * 4
print(f"one boundary: {boundary:,} bytes there and {boundary:,} back")
print(f"all parameters: {4 * CONFIG.num_parameters():,} bytes")

# %% [markdown]
# The two ends carry the embeddings (positions too) and the output matrix. Keep that in mind: equal numbers of
# layers are not equal stages.
#
# ## One batch through the ranks
#
# The simplest way: the batch goes down, the gradient comes back, with nothing but `send` and `recv`. Two lines
# are worth a look. A received activation is a *leaf*: autograd knows nothing of the rank it came from, so we
# ask for its gradient ourselves. And a stage in the middle has no loss to start from: its backward starts from
# the gradient that the next stage sends.
#
# **Predict.** While the batch goes down and back, what share of the time does each of the four ranks work? How
# many bytes does rank 1 send?

# %%
def loss_of(logits, targets):
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def forward_part(stage, tokens, targets):
    """Input and output of this rank's stage for one (micro-)batch; the output is sent on, or is the loss."""
    rank, last = dist.get_rank(), dist.get_world_size() - 1
    x = tokens
    if rank > 0:
        x = torch.empty(*tokens.shape, CONFIG.hidden)
        dist.recv(x, rank - 1)
        x.requires_grad_()
    y = stage(x)
    if rank == last:
        return x, loss_of(y, targets)
    dist.send(y.detach(), rank + 1)
    return x, y


def backward_part(x, y):
    """Add this stage's gradients, and send back the gradient of its input."""
    rank, last = dist.get_rank(), dist.get_world_size() - 1
    if rank == last:
        y.backward()
    else:
        grad = torch.empty_like(y)
        dist.recv(grad, rank + 1)
        y.backward(grad)
    if rank > 0:
        dist.send(x.grad, rank - 1)


def naive_step():
    stage = cut_model(the_model(), [0, 2, 4, 6, 8])[dist.get_rank()]
    tokens, targets = next(batches(ROWS, LENGTH, steps=1))
    x, y = forward_part(stage, tokens, targets)
    backward_part(x, y)
    return {name: p.grad for name, p in stage.named_parameters()}


def whole_model_gradients(config=CONFIG, rows=ROWS):
    model = the_model(config)
    model.loss(*next(batches(rows, LENGTH, steps=1))).backward()
    return {name: p.grad for name, p in model.named_parameters()}


def compare(run, want, what):
    """The ranks' gradients, put together, against those of one process."""
    got = {name: grad for grads in run.values for name, grad in grads.items()}
    worst = max(float((got[name] - want[name]).abs().max()) for name in want)
    same = all(torch.allclose(got[name], want[name], rtol=1e-4, atol=1e-6) for name in want)
    verdict = "agrees" if same and got.keys() == want.keys() else "DIFFERS"
    print(f"{what}: {verdict} with one process; largest difference {worst:.1e} over {len(got)} tensors")


run = launch(naive_step, ranks=RANKS)
compare(run, whole_model_gradients(), "naive pipeline")
for rank in range(RANKS):
    sent = {peer: run.trace.bytes_sent(rank, to=peer) for peer in sorted(run.trace.peers(rank))}
    print(f"rank {rank} sent " + (", ".join(f"{n:,} bytes to rank {peer}" for peer, n in sent.items()) or "nothing"))

# %% [markdown]
# Right gradients, messages between neighbours only, and exactly the predicted bytes. And, since only one rank
# works at any time, three quarters of the machine idle. That is the **bubble** (流水线气泡). To fight it we
# first write down what happens as data.
#
# ## Schedules are data
#
# An **action** is the forward or backward of one micro-batch in one stage: `2F0` is the forward (F) of
# micro-batch 0 in stage 2, `2B0` its backward. A **schedule** (调度) is one list of actions for each rank. A
# rank works through its list in order. Two rules say when an action may begin:
#
# - F of a stage needs F of the stage before it, of the same micro-batch;
# - B of a stage needs F of that stage, and B of the stage *after* it.
#
# That is enough to know whether a schedule can run at all, without starting a process: do whatever is ready
# until nothing is.
#
# **Predict.** Two stages, one micro-batch. Which of these three can run to its end: `0F0 0B0 | 1F0 1B0`, `0F0
# 0B0 | 1B0 1F0`, `0B0 0F0 | 1F0 1B0`?

# %%
def left_over(schedule):
    """What cannot run: for each rank the rest of its list once nothing is ready any more."""
    stages = 1 + max(stage for actions in schedule for _, stage, _ in actions)
    rest, done, moved = [list(actions) for actions in schedule], set(), True
    while moved:
        moved = False
        for actions in rest:
            while actions:
                op, stage, k = actions[0]
                before = [("F", stage - 1, k)] if op == "F" and stage else []
                if op == "B":
                    before = [("F", stage, k)] + [("B", stage + 1, k)] * (stage + 1 < stages)
                if not done.issuperset(before):
                    break
                done.add(actions.pop(0))
                moved = True
    return {rank: [action_text(action) for action in actions] for rank, actions in enumerate(rest) if actions}


for text in ("0F0 0B0 | 1F0 1B0", "0F0 0B0 | 1B0 1F0", "0B0 0F0 | 1F0 1B0"):
    stuck = left_over([read_actions(row) for row in text.split("|")])
    print(f"{text}:  {'runs' if not stuck else f'stuck, left over: {stuck}'}")

# %% [markdown]
# `play` of `utils.schedules` does the same and writes down when each action begins and ends, for given costs
# of F and B. A backward costs about twice a forward: it makes two gradients, that of the input and that of
# the weights. We take F = 1 and B = 2 from here on.
#
# ## GPipe: cut the batch
#
# The remedy is to cut the batch of B rows into m **micro-batches** (微批次). As soon as rank 0 has done
# micro-batch 0 it hands it on and begins with 1. **GPipe** (Huang et al. 2019) does all forwards, then all
# backwards.
#
# **Predict.** Four ranks, the same total work. The naive step takes 4 (1 + 2) = 12 units. In four micro-batches
# each action costs a quarter. How long does the step take, and which share of the ranks' time is idle?

# %%
def rows(text):
    """A schedule from its lines, one a rank."""
    return [read_actions(line) for line in text.strip().splitlines()]


NAIVE = rows("\n".join(f"{s}F0 {s}B0" for s in range(4)))
GPIPE_4 = rows(
    """
    0F0 0F1 0F2 0F3 0B0 0B1 0B2 0B3
    1F0 1F1 1F2 1F3 1B0 1B1 1B2 1B3
    2F0 2F1 2F2 2F3 2B0 2B1 2B2 2B3
    3F0 3F1 3F2 3F3 3B0 3B1 3B2 3B3
    """
)
naive, gpipe = play(NAIVE, 1, 2), play(GPIPE_4, 1 / 4, 2 / 4)
axes = plt.subplots(2, 1, figsize=(8, 4.4), layout="constrained")[1]
draw_schedule(naive, axes[0], title="naive, one batch", until=12)
draw_schedule(gpipe, axes[1], title="GPipe, 4 micro-batches", until=12, unit="units of time (F of the whole batch = 1)")
plt.show()
print(f"naive {naive.seconds:g} units, {naive.bubble:.1%} idle; GPipe {gpipe.seconds:g} units, {gpipe.bubble:.1%} idle")

# %% [markdown]
# The same work in less than half the time. The bubble has not gone: at the beginning rank 3 waits for
# something to come down, around the middle rank 0 waits for something to come back, and at the end rank 3 has
# nothing left. p - 1 forwards and p - 1 backwards are lost on every rank, whatever m is; more micro-batches
# only make each of them shorter.
#
# ## Two definitions of the bubble
#
# Count, in units of one micro-batch's F + B: a rank works m of them and is idle for p - 1.
#
# - GPipe's paper counts the idle **share of the total** time: (p-1) / (m+p-1).
# - Megatron's papers count the idle time **over the ideal** time: (p-1) / m.
#
# Both are called "bubble", and they are far apart when m is small. Always say which one you mean.
#
# **Predict.** p = 4, m = 8: both numbers. How large must m be for a share of at most 20 %? (GPipe's paper calls
# the bubble negligible from m = 4 p on.)

# %%
def all_f_then_b(p, m):
    return [[(op, s, k) for op in "FB" for k in range(m)] for s in range(p)]


print("  p   m   share of the total     over the ideal")
print("          formula   played    formula   played")
for p, m in ((4, 1), (4, 4), (4, 8), (4, 16), (4, 32), (8, 8), (8, 32)):
    line = play(all_f_then_b(p, m))
    print(f"{p:3} {m:3}   {(p - 1) / (m + p - 1):8.4f} {line.bubble:8.4f}   {(p - 1) / m:8.4f} {line.overhead:8.4f}")

# %%
ax = plt.subplots(figsize=(6.2, 3.4), layout="constrained")[1]
for p in (2, 4, 8):
    counts = [1, 2, 4, 8, 16, 32, 64]
    (curve,) = ax.plot(counts, [(p - 1) / (m + p - 1) for m in counts], label=f"p = {p}, share of the total")
    ax.plot(counts, [play(all_f_then_b(p, m)).bubble for m in counts], "o", color=curve.get_color(), markersize=4)
    ax.plot(4 * p, (p - 1) / (5 * p - 1), "D", color=curve.get_color(), markersize=8, fillstyle="none")
ax.set_xscale("log", base=2)
ax.set_xticks(counts, [str(m) for m in counts])
ax.set_xlabel("micro-batches m")
ax.set_ylabel("idle share of the total")
ax.set_title("lines: (p-1)/(m+p-1); dots: played; diamonds: m = 4p", fontsize=10, loc="left")
ax.legend(frameon=False, fontsize=9)
plt.show()

# %% [markdown]
# 12 micro-batches for 20 %: 3/15. At m = 4p the share is below a fifth for every p.
#
# ### A look at the lecture's table
#
# The lecture draws four stages and two micro-batches in one small table. Its order of actions is below. It
# shows very well where the idle ends are; as a timeline it cannot be taken literally, because GPU 0 and GPU 1
# run B1 in the same column, and GPU 0's B1 needs what GPU 1's B1 makes. Played with its own order (the last
# stage goes backward from micro-batch 0, the others from 1) it does run, with a longer wait than a schedule
# whose stages agree:

# %%
LECTURE = rows(
    """
    0F0 0F1 0B1 0B0
    1F0 1F1 1B1 1B0
    2F0 2F1 2B1 2B0
    3F0 3B0 3F1 3B1
    """
)
axes = plt.subplots(2, 1, figsize=(8, 4.4), layout="constrained")[1]
orders = {"the table's order": LECTURE, "GPipe": all_f_then_b(4, 2)}
for ax, (title, schedule) in zip(axes, orders.items(), strict=True):
    line = play(schedule, 1, 1)
    draw_schedule(line, ax, title=f"{title}, F = B = 1, {line.seconds} units", until=11)
plt.show()

# %% [markdown]
# ## 1F1B: the same bubble, less memory
#
# Between its F and its B a micro-batch's activations must be kept: it is **in flight** (在途). GPipe keeps all
# m. **1F1B** (Narayanan et al. 2021) begins a backward as early as it can, and from then on does one forward
# and one backward in turn. Here is one for p = 4 and m = 8, written by hand:
#
# **Predict.** Compared with GPipe for the same m: is it faster? How many micro-batches has rank 0 in flight at
# most, how many rank 3?

# %%
ONE_F_ONE_B = rows(
    """
    0F0 0F1 0F2 0F3 0B0 0F4 0B1 0F5 0B2 0F6 0B3 0F7 0B4 0B5 0B6 0B7
    1F0 1F1 1F2 1B0 1F3 1B1 1F4 1B2 1F5 1B3 1F6 1B4 1F7 1B5 1B6 1B7
    2F0 2F1 2B0 2F2 2B1 2F3 2B2 2F4 2B3 2F5 2B4 2F6 2B5 2F7 2B6 2B7
    3F0 3B0 3F1 3B1 3F2 3B2 3F3 3B3 3F4 3B4 3F5 3B5 3F6 3B6 3F7 3B7
    """
)
GPIPE_8 = all_f_then_b(4, 8)
axes = plt.subplots(2, 1, figsize=(9, 4.6), layout="constrained")[1]
for ax, (title, schedule) in zip(axes, {"GPipe": GPIPE_8, "1F1B": ONE_F_ONE_B}.items(), strict=True):
    line = play(schedule)
    draw_schedule(line, ax, title=f"{title}, p = 4, m = 8, {line.seconds} units")
    held = [most_in_flight(actions) for actions in schedule]
    print(f"{title:>5}: {line.seconds} units, at most {held} micro-batches in flight on ranks 0 to 3")
plt.show()

# %% [markdown]
# Exactly as long; but rank r holds at most min(m, p - r) micro-batches. With 1F1B one can raise m as high as
# one likes, to shrink the bubble, and memory stays where it is. That is why it won.
#
# ## What blocking sends do to it
#
# The rules above let a stage finish whether or not anybody takes its result. `dist.send` does not: it ends
# when the receiver has taken the data. Let us write down what a rank really does for each action (receive,
# compute, send) and see who waits for whom, still on paper: a message passes when its sender and its receiver
# both stand at it.
#
# **Predict.** Which of GPipe and 1F1B still runs with blocking sends and two ranks?

# %%
def with_messages(actions, stages):
    """Each action as receive, then send, of one rank with one stage; what needs no message is left out."""
    steps = []
    for op, stage, k in actions:
        came, goes = (stage - 1, stage + 1) if op == "F" else (stage + 1, stage - 1)
        if 0 <= came < stages:
            steps.append(("recv", came, stage, op, k))
        if 0 <= goes < stages:
            steps.append(("send", stage, goes, op, k))
    return steps


def blocking_leaves(schedule):
    """Where ranks stand for ever when every send waits for its receiver; {} when all is done."""
    todo = [with_messages(actions, len(schedule)) for actions in schedule]
    moved = True
    while moved:
        moved = False
        for source in todo:
            if source and source[0][0] == "send":
                target = todo[source[0][2]]
                if target and target[0] == ("recv", *source[0][1:]):
                    source.pop(0), target.pop(0)
                    moved = True
    verbs = {"send": "sends {3}{4} to {2}", "recv": "receives {3}{4} from {1}"}
    return {rank: verbs[steps[0][0]].format(*steps[0]) for rank, steps in enumerate(todo) if steps}


TWO_1F1B = rows("0F0 0F1 0B0 0F2 0B1 0B2 \n 1F0 1B0 1F1 1B1 1F2 1B2")
print("GPipe, p = 2, m = 3:", blocking_leaves(all_f_then_b(2, 3)) or "runs")
print("1F1B,  p = 2, m = 3:", blocking_leaves(TWO_1F1B) or "runs")
print("1F1B,  p = 4, m = 8:", blocking_leaves(ONE_F_ONE_B) or "runs")

# %% [markdown]
# In 1F1B two neighbours want to send to each other at the same time, an activation down and a gradient up. A
# **deadlock** (死锁), found before any process was started. Do real ranks agree? The engine below is the two
# functions from above, put in the order of a schedule.

# %%
def run_blocking(schedule, micro_batches, config=CONFIG):
    """Every rank works through its list with blocking sends; returns its gradients of the mean loss."""
    ranks = dist.get_world_size()
    bounds = [config.layers * s // ranks for s in range(ranks + 1)]
    stage = cut_model(the_model(config), bounds)[dist.get_rank()]
    tokens, targets = (part.chunk(micro_batches) for part in next(batches(ROWS, LENGTH, steps=1)))
    held = {}
    for op, _, k in schedule[dist.get_rank()]:
        if op == "F":
            x, y = forward_part(stage, tokens[k], targets[k])
            held[k] = x, y / micro_batches if dist.get_rank() == ranks - 1 else y
        else:
            backward_part(*held.pop(k))
    return {name: p.grad for name, p in stage.named_parameters()}


run = launch(run_blocking, GPIPE_4, 4, ranks=4)
compare(run, whole_model_gradients(), "GPipe, blocking sends")
print(f"rank 1 sent {run.trace.bytes_sent(1):,} bytes in {run.trace.messages(1)} messages")
try:
    launch(run_blocking, ONE_F_ONE_B, 8, ranks=4)
except Deadlock as report:
    print(report)

# %% [markdown]
# The report says what the paper said. GPipe runs, with the same bytes as the naive step in four times as many
# messages. The way out for 1F1B is not to wait: start the send (`isend`), go on, and wait for it later. The
# buffer must then stay as it is until the message is through. That engine is yours to write, in lab 05.
#
# Look at one line above: `y / micro_batches`. The loss of the batch is the mean over *all* its targets. Each
# micro-batch's mean must weigh 1/m; forget it and the gradient is m times too large.
#
# **Predict.** Now the batch has 5 rows, and m = 2 gives micro-batches of 3 and 2. Is the mean of the two means
# the mean of the batch? Take the numbers 0, 1, 2, 3, 4 as "losses", squared.

# %%
values = torch.arange(5.0) ** 2
parts = values.tensor_split(2)
means = [float(part.mean()) for part in parts]
print(f"rows {[part.tolist() for part in parts]}, their means {[round(mean, 4) for mean in means]}")
print(f"mean of the means {sum(means) / 2:.4f}; mean of the batch {float(values.mean()):.4f}")
print(f"sums over the count of the whole batch: {sum(float(part.sum()) / 5 for part in parts):.4f}")

# %% [markdown]
# The last line is always right: **divide each micro-batch's sum by the count of the whole batch**. It also
# holds when some targets do not count (padding), where even equal micro-batches have unequal counts.
#
# ## torch's own pipelines
#
# `torch.distributed.pipelining` has these schedules. The journal of a launch sees what they send, so we can hold
# them to our predictions: values, bytes, and the order in which rank 0 sends and receives.
#
# **Predict.** GPipe, 1F1B and interleaved 1F1B, two ranks, m = 4, a batch of 8 rows. Interleaved gives each rank
# *two* smaller stages (0 and 2 on rank 0, 1 and 3 on rank 1), so that a micro-batch goes round twice. Which of
# the three sends more bytes, and how many times as many?

# %%
def torch_pipeline(kind, chunks, micro_batches=4):
    from torch.distributed import pipelining as pp

    rank, ranks = dist.get_rank(), dist.get_world_size()
    count, size = ranks * chunks, ROWS // micro_batches
    parts = cut_model(the_model(), [CONFIG.layers * s // count for s in range(count + 1)])
    ends = torch.zeros(size, LENGTH, dtype=torch.long), torch.zeros(size, LENGTH, CONFIG.vocab_size, requires_grad=True)
    between = torch.zeros(size, LENGTH, CONFIG.hidden, requires_grad=True)
    mine = [
        pp.PipelineStage(
            parts[s], s, count, torch.device("cpu"),
            input_args=(ends[0] if s == 0 else between,), output_args=(ends[1] if s == count - 1 else between,),
        )
        for s in range(rank, count, ranks)
    ]  # fmt: skip
    schedule = getattr(pp, kind)(mine if chunks > 1 else mine[0], micro_batches, loss_fn=loss_of)
    tokens, targets = next(batches(ROWS, LENGTH, steps=1))
    schedule.step(*([tokens] if rank == 0 else []), **({"target": targets} if rank == ranks - 1 else {}))
    return {name: p.grad for stage in mine for name, p in stage.submod.named_parameters()}


want, torch_sent = whole_model_gradients(), {}
for kind, chunks in (("ScheduleGPipe", 1), ("Schedule1F1B", 1), ("ScheduleInterleaved1F1B", 2)):
    run = launch(torch_pipeline, kind, chunks, ranks=2)
    compare(run, want, f"torch {kind}")
    large = [event for event in run.trace.of(0) if event.nbytes > 64]  # not the handshake of a few bytes
    torch_sent[kind] = sum(event.sent for event in large)
    order = "".join({"send": "s", "recv": "r"}[event.op] for event in large)
    print(f"   rank 0 sent {torch_sent[kind]:,} bytes, predicted {(2 * chunks - 1) * boundary:,}; order {order}")

# %% [markdown]
# Values and bytes agree, and the order shows the schedule: GPipe sends all four, then receives; 1F1B begins to
# receive after two. Interleaving sends three times the bytes here: with p ranks and v stages on each there are
# v p - 1 boundaries where there were p - 1.
#
# What does it buy? Stages of a v-th of the size fill the pipeline v times sooner. The bubble over the ideal
# becomes (p-1)/(v m). Here is the order that torch gives rank 0 to 3 for p = 4, m = 8, v = 2:

# %%
def torch_orders():
    from torch.distributed import pipelining as pp

    ranks = dist.get_world_size()
    example = torch.zeros(1, 1, requires_grad=True)
    mine = [
        pp.PipelineStage(
            nn.Linear(1, 1), s, 2 * ranks, torch.device("cpu"), input_args=(example,), output_args=(example,)
        )
        for s in range(dist.get_rank(), 2 * ranks, ranks)
    ]
    order = pp.ScheduleInterleaved1F1B(mine, 8, loss_fn=loss_of).pipeline_order[dist.get_rank()]
    return " ".join(str(action) for action in order if action is not None)


INTERLEAVED = [read_actions(text) for text in launch(torch_orders, ranks=4, trace=False).values]
line, plain = play(INTERLEAVED, 1 / 2, 1), play(ONE_F_ONE_B, 1, 2)  # half the layers, half the cost
draw_schedule(line, plt.subplots(figsize=(10, 2.6), layout="constrained")[1], title="interleaved 1F1B, v = 2")
plt.show()
print(f"1F1B        {plain.seconds:g} units, idle over ideal {plain.overhead:.4f}, (p-1)/m     = {3 / 8:.4f}")
print(f"interleaved {line.seconds:g} units, idle over ideal {line.overhead:.4f}, (p-1)/(v m) = {3 / 16:.4f}")
print(f"stage inputs in flight at most {[most_in_flight(actions) for actions in INTERLEAVED]}, each of half the layers")

# %% [markdown]
# Half the bubble, for more messages and somewhat more memory.
#
# ## Measure it
#
# A bubble can only be measured where ranks really work at the same time. Your computer may have few cores: four
# ranks on two cores would measure the cores, not the pipeline. So first two ranks with real stages on real text,
# then four ranks whose stages *sleep* as long as a card would compute, while messages, waiting and autograd are
# real.
#
# The engine notes when each forward and each backward ran.
#
# **Predict.** Two ranks, GPipe, m from 1 to 8 for the same batch of 16 rows. One process takes T for the step,
# so without any bubble it would be T/2; with it, T/2 (1 + 1/m). What will m = 1 give, and what m = 8?

# %%
BIG = TransformerConfig(layers=4, hidden=128, heads=4, max_len=64, tied=False)
BATCH = 16


def timed_step(stage, tokens, targets, micro_batches, spans):
    """One GPipe step; appends (op, micro-batch, start, end) of this rank's computing."""
    rank, last = dist.get_rank(), dist.get_world_size() - 1
    held = []
    for k, (t, w) in enumerate(zip(tokens.chunk(micro_batches), targets.chunk(micro_batches), strict=True)):
        x = t
        if rank > 0:
            x = torch.empty(*t.shape, BIG.hidden)
            dist.recv(x, rank - 1)
            x.requires_grad_()
        start = time.perf_counter()
        y = stage(x)
        if rank == last:
            y = loss_of(y, w) / micro_batches
        spans.append(("F", k, start, time.perf_counter()))
        if rank < last:
            dist.send(y.detach(), rank + 1)
        held.append((x, y))
    for k, (x, y) in enumerate(held):
        grad = None
        if rank < last:
            grad = torch.empty_like(y)
            dist.recv(grad, rank + 1)
        start = time.perf_counter()
        y.backward(grad)
        spans.append(("B", k, start, time.perf_counter()))
        if rank > 0:
            dist.send(x.grad, rank - 1)


def step_times(counts, tries=4):
    """By m: seconds of the fastest try, and its spans, on this rank."""
    ranks = dist.get_world_size()
    stage = cut_model(the_model(BIG), [BIG.layers * s // ranks for s in range(ranks + 1)])[dist.get_rank()]
    tokens, targets = next(batches(BATCH, 64, steps=1))
    results = {m: [] for m in counts}
    for attempt in range(tries + 1):
        for m in counts:
            spans = []
            dist.barrier()
            start = time.perf_counter()
            timed_step(stage, tokens, targets, m, spans)
            dist.barrier()
            if attempt:  # the first opens connections and touches memory for the first time
                results[m].append((time.perf_counter() - start, spans))
    return results


def fastest(values, m):
    """The try with the least time over all ranks: its seconds and its timeline."""
    tries = range(len(values[0][m]))
    best = min(tries, key=lambda t: max(value[m][t][0] for value in values))
    spans = [Span(rank, op, rank, k, a, b) for rank, value in enumerate(values) for op, k, a, b in value[m][best][1]]
    return max(value[m][best][0] for value in values), Timeline(len(values), spans)


COUNTS = [1, 2, 4, 8]
alone = fastest(launch(step_times, [1], ranks=1, trace=False).values, 1)[0]
values = launch(step_times, COUNTS, ranks=2, trace=False).values
print(f"one process: {1e3 * alone:.0f} ms a step")
two_ranks = {m: fastest(values, m) for m in COUNTS}
for m, (seconds, line) in two_ranks.items():
    said, idle = alone / 2 * (1 + 1 / m), 1 / (m + 1)
    print(
        f"m = {m}: predicted {1e3 * said:4.0f} ms, measured {1e3 * seconds:4.0f} ms; "
        f"idle share predicted {idle:.0%}, measured {line.bubble:.0%}"
    )

# %%
figure = plt.figure(figsize=(9, 5.6), layout="constrained")
top, bottom = figure.subfigures(2, 1, height_ratios=[1.35, 1])
ax = top.subplots()
ax.plot(COUNTS, [1e3 * alone / 2 * (1 + 1 / m) for m in COUNTS], "--", label="predicted: T/2 (1 + 1/m)")
ax.plot(COUNTS, [1e3 * two_ranks[m][0] for m in COUNTS], "o-", label="measured, two ranks")
ax.axhline(1e3 * alone, color="#777777", linewidth=1, label="one process, T")
ax.axhline(5e2 * alone, color="#BBBBBB", linewidth=1, label="no bubble, T/2")
ax.set_xscale("log", base=2)
ax.set_xticks(COUNTS, [str(m) for m in COUNTS])
ax.set_ylim(0, None)
ax.set_xlabel("micro-batches m")
ax.set_ylabel("ms per step (fastest of 4)")
ax.legend(frameon=False, fontsize=9, ncols=2)
draw_schedule(two_ranks[4][1], bottom.subplots(), title="measured, two ranks, m = 4", unit="seconds")
plt.show()

# %% [markdown]
# The curve falls as predicted at first. Then every micro-batch costs something of its own (starting some
# hundred operators, a message, less work to share it), and smaller ones use the core less well: the measured
# curve stops following. If other programs share your cores, both ranks and the single process are slower than
# they could be, and the lines shift. So m is a choice: large enough for the bubble, not so large that each
# micro-batch becomes inefficient.
#
# ## Cards that sleep: unequal stages and a late rank
#
# Now four "cards". A stage here is one tiny layer and a pause: F pauses for its forward cost, B for its backward
# cost. Everything else is as before.
#
# **Predict.** Stage 2 is twice as slow as the others (20 and 40 ms instead of 10 and 20), m = 4. By how much does
# the step grow: by 30 ms, once? By 4 times 30? Where are the other ranks waiting?

# %%
class Pause(torch.autograd.Function):
    """Sleeps in the forward and in the backward."""

    @staticmethod
    def forward(ctx, x, forward, backward):
        ctx.seconds = backward
        time.sleep(forward)
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        time.sleep(ctx.seconds)
        return grad, None, None


class Card(nn.Module):
    def __init__(self, forward, backward, hiccup=None):
        super().__init__()
        self.layer, self.costs, self.hiccup, self.calls = nn.Linear(8, 8), (forward, backward), hiccup, 0

    def forward(self, x):
        extra = self.hiccup if self.calls == 1 and self.hiccup else 0  # once, in micro-batch 1
        self.calls += 1
        return Pause.apply(self.layer(x), self.costs[0] + extra, self.costs[1])


def card_step(forward, backward, micro_batches, hiccups=None):
    rank, last, spans = dist.get_rank(), dist.get_world_size() - 1, []
    Card(0, 0)(torch.ones(2, 8, requires_grad=True)).sum().backward()  # autograd starts up, outside the measurement
    card = Card(forward[rank], backward[rank], (hiccups or {}).get(rank))
    dist.barrier()
    held = []
    for k in range(micro_batches):
        x = torch.ones(2, 8)
        if rank > 0:
            dist.recv(x, rank - 1)
        x.requires_grad_()
        start = time.perf_counter()
        y = card(x)
        spans.append(("F", k, start, time.perf_counter()))
        if rank < last:
            dist.send(y.detach(), rank + 1)
        held.append((x, y))
    for k, (x, y) in enumerate(held):
        grad = torch.ones_like(y)
        if rank < last:
            dist.recv(grad, rank + 1)
        start = time.perf_counter()
        y.backward(grad)
        spans.append(("B", k, start, time.perf_counter()))
        if rank > 0:
            dist.send(x.grad, rank - 1)
    return spans


def on_cards(forward, backward, m, hiccups=None, tries=3):
    """The fastest of some tries, as a timeline."""
    lines = []
    for _ in range(tries):
        values = launch(card_step, forward, backward, m, hiccups, ranks=len(forward), trace=False).values
        spans = [Span(rank, op, rank, k, a, b) for rank, value in enumerate(values) for op, k, a, b in value]
        lines.append(Timeline(len(forward), spans))
    return min(lines, key=lambda line: line.seconds)


EQUAL, SLOW = [0.01] * 4, [0.01, 0.01, 0.02, 0.01]
figure, axes = plt.subplots(3, 1, figsize=(9, 6.6), layout="constrained")
cases = {"equal stages": (EQUAL, None), "stage 2 twice as slow": (SLOW, None)}
cases |= {"rank 1 loses 30 ms once": (EQUAL, {1: 0.03})}
for ax, (title, (costs, hiccups)) in zip(axes, cases.items(), strict=True):
    double = [2 * cost for cost in costs]
    said = play(all_f_then_b(4, 4), costs, double).seconds + (0.03 if hiccups else 0)
    line = on_cards(costs, double, 4, hiccups)
    draw_schedule(line, ax, title=title, until=0.36)
    print(f"{title}: predicted {1e3 * said:.0f} ms, measured {1e3 * line.seconds:.0f} ms, idle {line.bubble:.0%}")
axes[-1].set_xlabel("seconds")
plt.show()

# %% [markdown]
# The slow stage sets the pace for everybody: all m micro-batches queue up before it, so the step grows by m
# times 30 ms, and each of the other ranks idles for the difference. A single hiccup costs its own length and no
# more: it is passed on down the line, but it does not add up. (Messages and waking up take a little time that
# the prediction leaves out.)
#
# So **cut by cost, not by count**. The ends of a language model are unlike the middle: an embedding is a lookup
# and costs next to nothing, the output matrix of a large vocabulary costs as much as several blocks.
#
# **Predict.** Eight blocks of cost 1, an embedding of cost 0 and a head of cost 3, on four ranks: which cut has
# the cheapest most expensive stage? How much faster is it for m = 8 than two blocks each?

# %%
def stage_costs(sizes, head=3):
    """Cost of each stage for `sizes` blocks in it; the last has the head as well."""
    return [size + (head if s == len(sizes) - 1 else 0) for s, size in enumerate(sizes)]


for name, sizes in (("by count", [2, 2, 2, 2]), ("by cost", [3, 3, 2, 0]), ("by cost", [3, 2, 2, 1])):
    costs = stage_costs(sizes)
    line = play(all_f_then_b(4, 8), costs, [2 * cost for cost in costs])
    print(f"{name} {sizes}: stages cost {costs}, step {line.seconds} units, {line.bubble:.0%} idle")

# %% [markdown]
# With two blocks each the last stage costs 5 and everybody waits for it. The best cut leaves the last rank with
# the head and nothing else: most expensive stage 3, which is as good as it gets for 11 units of work on four
# ranks.
#
# ## Fewer micro-batches than ranks
#
# **Predict.** p = 4 and m = 2: does the pipeline still run? What is the bubble?

# %%
few = play(all_f_then_b(4, 2))
print(f"m = 2: {few.seconds} units, stuck: {few.stuck or 'nobody'}")
print(f"idle {few.bubble:.0%}, (p-1)/(m+p-1) = {3 / 5:.0%}")

# %% [markdown]
# It runs, and more than half of the machine idles. A program that fills its pipeline with p micro-batches without
# asking whether there are so many does not run: a bug that real frameworks have had.
#
# ## Train, and mind the tied embedding
#
# At last the whole thing: four steps of SGD on text, two ranks. Many models have **tied embeddings** (共享词嵌入):
# input embedding and output matrix are one parameter. In a pipeline the first stage and the last both need it, so
# each holds a *copy*, and each copy sees a part of the gradient. The sum is the true gradient.
#
# **Predict.** If nobody adds the two parts: does the loss still fall? Are the two copies still equal after four
# steps?

# %%
TIED = TransformerConfig(layers=4, hidden=64, heads=4, max_len=32, tied=True)


def train_tied(add_parts):
    rank, losses = dist.get_rank(), []
    stage = cut_model(the_model(TIED), [0, 2, 4])[rank]
    copy = stage.embedding.weight if rank == 0 else stage.head.weight
    for tokens, targets in batches(ROWS, LENGTH, steps=4):
        held = []
        for t, w in zip(tokens.chunk(4), targets.chunk(4), strict=True):
            x, y = forward_part(stage, t, w)
            held.append((x, y / 4 if rank == 1 else y))
        for x, y in held:
            backward_part(x, y)
        if add_parts:
            dist.all_reduce(copy.grad)
        losses.append(sum(float(y.detach()) for _, y in held) if rank == 1 else None)
        with torch.no_grad():
            for p in stage.parameters():
                p -= 0.1 * p.grad
                p.grad = None
    return losses, copy.detach()


model, alone = the_model(TIED), []
for tokens, targets in batches(ROWS, LENGTH, steps=4):
    loss = model.loss(tokens, targets)
    alone.append(loss.item())
    model.zero_grad()
    loss.backward()
    with torch.no_grad():
        for p in model.parameters():
            p -= 0.1 * p.grad
print("one process:      ", [f"{loss:.4f}" for loss in alone])
for add_parts in (False, True):
    run = launch(train_tied, add_parts, ranks=2)
    (_, first), (losses, last) = run.values
    name = "parts added:      " if add_parts else "parts not added:  "
    apart, wrong = (first - last).abs().max(), (first - model.embedding.weight).abs().max()
    print(name, [f"{loss:.4f}" for loss in losses], f"copies differ by {apart:.1e}, from one process by {wrong:.1e}")

# %% [markdown]
# Without the sum the loss falls too: nothing tells you that the two copies have become different matrices, and
# that the model is no longer the one you meant to train. With it the losses are those of one process, digit by
# digit. (With two ranks an `all_reduce` does it; in lab 05 the two copies are somewhere among more ranks.)
#
# ## What to take away
#
# - A pipeline cuts by depth; neighbours exchange one activation and one gradient a micro-batch. Few bytes, but
#   everybody depends on everybody.
# - **Where the bubble comes from**: later stages wait for the first activation, earlier ones for the first
#   gradient, and the last to finish keeps the others waiting. (p-1)/(m+p-1) of the total, (p-1)/m over the ideal.
# - GPipe and 1F1B take the same time; 1F1B holds at most p - r micro-batches on rank r. Interleaving divides the
#   bubble by v and sends more.
# - The slowest stage sets the pace: cut by cost.
# - Each micro-batch's sum of losses is divided by the count of the whole batch. Tied copies need their sum.
#
# Now [lab 05](../labs/lab05_pipeline/lab05_pipeline.ipynb).
