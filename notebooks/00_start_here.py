# %% [markdown]
# # 00 · Start here
#
# **You will build** nothing yet: you will start ranks from a cell, get their values back, read a timeline,
# and read the report of a program that hangs.
#
# **You need** Python and a little PyTorch. No GPU.
#
# **Time**: about 30 minutes to read and try; 15 seconds to run.
#
# How to read these notebooks: where it says **Predict**, stop and write down a guess before you run the
# cell. A wrong guess that you have noticed teaches more than a right text that you have read.

# %%
import os
from time import perf_counter

import matplotlib.pyplot as plt
import torch
import torch.distributed as dist

from utils import Deadlock, LaunchTimeout, Mismatch, RankFailed, launch

# %% [markdown]
# ## Ranks from a cell
#
# A **rank** (进程编号) is the number of one process in a distributed job. All ranks run *the same program*;
# what a rank does differs only because its number differs. `launch` starts fresh processes, gives them
# their numbers, connects them, runs your function on each, and brings the results back.
#
# **Predict.** Four ranks run `hello`. How many different process ids come back? Is one of them this
# notebook's own?

# %%
def hello():
    rank, world_size = dist.get_rank(), dist.get_world_size()
    print(f"I am rank {rank} of {world_size}")
    return {"rank": rank, "square": rank**2, "process": os.getpid()}


start = perf_counter()
run = launch(hello, ranks=4)
took = perf_counter() - start

for rank, value in enumerate(run.values):
    print(f"values[{rank}] = {value}")
print(f"this notebook is process {os.getpid()}; from the call to the values: {took * 1000:.0f} ms")

# %% [markdown]
# Four processes, none of them this one. The **world size** (进程总数) is their number. `run.values[r]` is
# what rank r returned: numbers, strings, tensors, and lists, tuples, dicts and dataclasses of these. Lines
# that ranks print appear as they come, in any order; the label says whose they are.
#
# The very first launch may take some seconds: it waits for PyTorch to be loaded, once, in the background.
# Run the cell again to see what a launch costs from then on.

# %% [markdown]
# ## What comes back
#
# | | |
# |---|---|
# | `run.values[r]` | what rank r returned |
# | `run.stdout[r]`, `run.stderr[r]` | what rank r printed |
# | `run.peak_bytes[r]` | the most memory rank r held at any time, above what it had before your function |
# | `run.seconds` | from the first rank's start to the last one's end |
# | `run.trace` | every message and every collective operation, with its size, its time and its line |
#
# **Predict.** Rank r makes a tensor of 16 (r + 1) MiB, then returns its sum. Does the tensor come back to
# the notebook?

# %%
def hold_memory():
    numbers = torch.ones((dist.get_rank() + 1) * 4 * 2**20)  # float32: 4 bytes each
    return numbers.sum().item()


run = launch(hold_memory, ranks=4)
for rank in range(4):
    print(f"rank {rank}: sum {run.values[rank]:.0f}, peak {run.peak_bytes[rank] / 2**20:5.1f} MiB")

# %% [markdown]
# Only what you return comes back; the tensors died with their processes. Mind the unit: **1 MiB = 2^20
# bytes, 1 MB = 10^6 bytes**; 1 GiB is 7 % more than 1 GB. Memory is usually counted in GiB, links and model
# sizes in GB. This course says which.
#
# The processes are *copies*. A function sees the notebook's variables as they were when it was launched,
# and what it changes stays there:

# %%
counter = [0]


def count():
    counter[0] += 10 + dist.get_rank()
    return counter[0]


print("on the ranks:", launch(count, ranks=3).values, "- here:", counter[0])

# %% [markdown]
# That is what *distributed memory* means. Ranks share nothing. If rank 2 is to know something, somebody has
# to send it.
#
# ## A cell on every rank
#
# For a quick try you need no function: `%%ranks 4` runs the cell's own lines on four ranks and shows what
# each one prints.

# %%
# %%ranks 4
x = torch.arange(3) + 10 * dist.get_rank()
dist.all_reduce(x)  # the sum over all ranks, on all ranks
print(x.tolist())

# %% [markdown]
# ## Reading a timeline
#
# The ranks below add up their numbers, three times. `delay={2: 0.15}` makes rank 2 start 0.15 s late.
#
# **Predict.** Which rank's *first* bar in the picture is the shortest?

# %%
def add_three_times():
    x = torch.full((1000,), float(dist.get_rank()))
    for _ in range(3):
        dist.all_reduce(x)
    return x[0].item()


run = launch(add_three_times, ranks=4, delay={2: 0.15})
run.trace.plot()
plt.show()

# %% [markdown]
# Time runs to the right, one row a rank, one bar for each operation, from the call to its return. Ranks 0,
# 1 and 3 have a *long* first bar: they wait. The first bar of rank 2 is short: when it arrives, everybody
# is there already.
#
# So **the rank with the long bar is the one that waits, not the one that is slow**. Look for the short bar
# and ask what that rank did before.
#
# The same as a list. `trace.of(rank)` is in the order of the calls:

# %%
for event in run.trace.of(2):
    took = (event.end - event.start) * 1e6
    what = f"{event.op} #{event.seq}  {event.nbytes} bytes  {event.dtype}"
    print(f"rank {event.rank}  {what}  {took:6.0f} µs  line {event.line}")

# %% [markdown]
# `run.trace.save_perfetto("run.json")` writes the same for the trace viewer at ui.perfetto.dev.
#
# ## When a rank fails
#
# **Predict.** Rank 2 divides by zero before the all-reduce. What will ranks 0, 1 and 3 say?

# %%
def divide():
    x = torch.tensor([1.0])
    if dist.get_rank() == 2:
        x += 1 // 0
    dist.all_reduce(x)
    return x.item()


try:
    launch(divide, ranks=4)
except RankFailed as report:
    print(report)

# %% [markdown]
# Without help you would see four errors, three of them "connection closed by peer", in any order. The
# report puts the **first** failure first, with the line of *your* cell; what the others were waiting for
# comes after. Read from the top and stop when you know enough.
#
# (The `try` is there so that the notebook runs to its end. In your own work just call `launch`; the same
# text appears.)
#
# ## When a program hangs
#
# The most common fault has no error at all. Below, rank 0 sends the sum to rank 3, so rank 3 thinks that it
# need not take part in the adding.
#
# **Predict.** What does rank 3 do, what do ranks 0 to 2 do, and for how long?

# %%
def skip_one():
    total = torch.tensor([float(dist.get_rank())])
    if dist.get_rank() != 3:
        dist.all_reduce(total)
    if dist.get_rank() == 0:
        dist.send(total, dst=3)
    if dist.get_rank() == 3:
        dist.recv(total, src=0)
    return total.item()


try:
    launch(skip_one, ranks=4)
except Deadlock as report:
    print(report)

# %% [markdown]
# On a cluster they would stand there until a timeout, ten minutes or half an hour later, and the message
# would come from a rank that did nothing wrong. Here every operation is written into a journal that
# outlives its rank. When every rank waits and no wait can end, the launch stops at once and says **who did
# not arrive**, where the others wait, and at which lines of your cell. Then you know which `if` to look at.
#
# That is the habit to take along, on any machine: *not* "which rank printed the error", but "**which rank
# is the first that did not arrive, and where is it instead?**"
#
# Worse than a hang is a wrong number. Here rank 1 adds up its two tensors in the other order. Both have one
# element, so the library notices nothing and adds one rank's loss to the other's token count. The launch
# compares the journals at the end:

# %%
def swapped():
    loss, tokens = torch.tensor([1.0]), torch.tensor([10.0])
    for x in (tokens, loss) if dist.get_rank() == 1 else (loss, tokens):
        dist.all_reduce(x)
    return loss.item(), tokens.item()


try:
    print(launch(swapped, ranks=2).values)
except Mismatch as report:
    print(report)

# %% [markdown]
# Without that check both numbers would have come back as 11, and nobody would have known.
#
# A rank that is busy could still arrive, so nothing can be proved; then the time limit decides:

# %%
def never_ready():
    while dist.get_rank() == 1:
        pass
    dist.barrier()


try:
    launch(never_ready, ranks=3, timeout=1)
except LaunchTimeout as report:
    print(report)

# %% [markdown]
# ## Stepping through one rank
#
# When the report is not enough, walk through one rank with the debugger:
#
# ```python
# run = launch(add_three_times, ranks=4, debug=2)
# ```
#
# Rank 2 stops at the first line of the function, and a `(Pdb)` prompt opens below the cell. The other ranks
# run on and wait for rank 2 where they need it, without a time limit. Useful words: `n` next line, `s` step
# into a call, `p x` print x, `w` where am I, `c` continue to the end, `q` quit.
#
# ## Chance
#
# **Predict.** Each rank draws `torch.rand(1)`. Four equal numbers, or four different ones?

# %%
def draw():
    return round(torch.rand(1).item(), 4)


print("no seed:    ", launch(draw, ranks=4).values)
print("seed=7:     ", launch(draw, ranks=4, seed=7).values)
print("seed=7 again:", launch(draw, ranks=4, seed=7).values)

# %% [markdown]
# Different on each rank, and the same every time for one `seed`. This is on purpose: if all ranks drew the
# same numbers, a model whose first parameters were never broadcast would look right by luck.
#
# ## Your map
#
# The next cell looks at the labs beside this notebook, as you last saved them. Run it whenever you want to
# know where you are.

# %%
from utils.progress import my_progress

my_progress()

# %% [markdown]
# In a lab you fill in the cells that say `YOUR CODE HERE` and run the test cells below them. To check a
# whole lab at once, open a terminal in the course folder and run
#
# ```
# python -m utils.selfcheck labs/lab01_allreduce/lab01_allreduce.ipynb
# ```
#
# It runs the notebook from top to bottom in a fresh kernel and lists every visible test. The marker runs
# these and hidden ones.
#
# ## Words
#
# | English | 中文 | in one line |
# |---|---|---|
# | rank | 进程编号 | the number of one process in a job, from 0 |
# | world size | 进程总数 | how many ranks there are |
# | process group | 通信组 | the ranks that take part in a collective together |
# | point-to-point | 点对点通信 | one rank sends, one receives |
# | collective communication | 集合通信 | an operation that all ranks of a group call in the same order |
# | broadcast | 广播 | the root's data on every rank |
# | reduce | 规约 | combine the data of all ranks on the root |
# | all-reduce | 全规约 AllReduce | combine the data of all ranks, the result on every rank |
# | scatter, gather | 分发、收集 | pieces from the root to the ranks, and back |
# | all-gather | 全收集 AllGather | every rank's piece on every rank, joined in rank order |
# | reduce-scatter | 规约分发 ReduceScatter | combine, then each rank keeps one piece |
# | all-to-all | 全交换 All-to-All | a different piece from every rank to every other |
# | ring, tree | 环、树 | two ways to arrange the messages of a collective |
# | latency α | 启动延迟 | the fixed time of a message, however short |
# | bandwidth 1/β | 带宽 | bytes per second of a long message |
# | deadlock | 死锁 | each waits for one that is waiting |
# | timeout | 超时 | giving up after a time limit |
# | training step | 训练步 | forward, loss, backward, update |
# | batch, micro-batch | 批次、微批次 | the samples of one update, and the part handled at once |
# | gradient | 梯度 | the derivative of the loss by the parameters |
# | gradient accumulation | 梯度累积 | adding up gradients of several micro-batches before an update |
# | activation | 激活 | an intermediate result, kept for the backward pass |
# | optimizer state | 优化器状态 | what the optimizer remembers for each parameter |
# | master weights | 主权重 | the fp32 copy that small updates are added to |
# | mixed precision | 混合精度 | 16-bit arithmetic, 32-bit where it matters |
# | activation checkpointing | 激活检查点（重算） | keep few activations, compute the others again |
# | data parallelism, DP | 数据并行 | copies of the model, different samples |
# | parameter server | 参数服务器 | one process collects gradients and hands out parameters |
# | bucket | 梯度桶 | gradients sent together in one collective |
# | overlap | 通信计算重叠 | communicate while computing |
# | shard | 分片 | the part of something that one rank keeps |
# | ZeRO, FSDP | 零冗余优化器、完全分片 | data parallel, model state in shards |
# | pipeline parallelism, PP | 流水线并行 | consecutive layers on different ranks |
# | stage, bubble | 阶段、气泡 | one rank's layers, and its idle time |
# | tensor parallelism, TP | 张量并行 | one matrix cut over several ranks |
# | sequence or context parallelism | 序列并行、上下文并行 | tokens cut over ranks |
# | expert parallelism, EP | 专家并行 | experts on different ranks |
# | device mesh | 设备网格 | ranks arranged by dimensions such as DP x TP x PP |
# | topology | 拓扑 | which devices are joined by which links |
# | planner | 自动并行 | software that chooses the dimensions |
# | token, embedding | 词元、嵌入 | a piece of text, and the vector that stands for it |
# | attention, head | 注意力、注意力头 | how tokens look at each other, and one of several parallel looks |
# | logits, loss | 原始分数、损失 | scores before the softmax, and what training lowers |
# | autoregressive | 自回归 | each new token is fed back as input |
# | prompt, prefill | 提示词、预填充 | the given tokens, and processing them all at once |
# | decode | 解码 | producing one token after another |
# | KV cache | 键值缓存 | keys and values of past tokens, kept for later ones |
# | grouped-query attention, GQA | 分组查询注意力 | several query heads share one key-value head |
# | continuous batching | 连续批处理 | requests join and leave the batch at every step |
# | paged cache | 分页缓存 | a cache made of blocks, so that no space is lost |
# | TTFT, TPOT | 首词元时间、每词元时间 | the wait for the first token, and for each later one |
# | throughput | 吞吐 | tokens per second, all requests together |
# | online softmax | 在线 softmax | softmax over blocks, corrected as they arrive |
# | ring attention | 环形注意力 | key-value blocks travel round a ring of ranks |
# | mixture of experts, router | 混合专家、路由器 | many networks; the one that picks a few for a token |
# | load balance | 负载均衡 | equal work for every expert |
# | quantisation | 量化 | fewer bits for each number |
#
# **Next**: [02 · Collectives](02_collectives.ipynb).
