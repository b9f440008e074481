# %% [markdown]
# # Distributed training and inference of large language models
#
# You build every mechanism yourself, in PyTorch, on ranks that start from a notebook cell: first the
# messages, then the algorithms, then whole training and serving systems. No GPU is needed.
#
# ## The way through
#
# | | read and run | then do |
# |---|---|---|
# | 00 | [Start here](00_start_here.ipynb): ranks from a cell, timelines, hangs, glossary (中英对照) | |
# | 01 | [One training step](01_one_training_step.ipynb): who stores, computes, sends what | |
# | 02 | [Collectives](02_collectives.ipynb): send, receive, ring, tree | |
# | 03 | [Cost model](03_cost_model.ipynb): latency and bandwidth | [lab 01] |
# | 04 | [Data parallel](04_data_parallel.ipynb): buckets, overlap, accumulation | [lab 02] |
# | 05 | [Training memory](05_training_memory.ipynb): the ledger, mixed precision, checkpointing | [lab 03] |
# | 06 | [ZeRO and FSDP](06_zero_fsdp.ipynb): shards of states, gradients, parameters | [lab 04] |
# | 07 | [Pipeline](07_pipeline.ipynb): schedules and bubbles | [lab 05] |
# | 08 | [Tensor parallel](08_tensor_parallel.ipynb): columns, rows, heads, vocabulary | [lab 06] |
# | 09 | [Mesh and planner](09_mesh_and_planner.ipynb): all of them at once | [lab 07] |
# | 10 | [Transformer FLOPs](10_transformer_flops.ipynb): every product counted | |
# | 11 | [Inference](11_inference.ipynb): prefill, decode, the KV cache, sampling | [lab 08] |
# | 12 | [Serving](12_serving.ipynb): continuous batching, pages, TTFT and TPOT | [lab 09] |
# | 13 | [Long context](13_long_context.ipynb): online softmax, blocks, ring attention | [lab 10] |
# | 14 | [Mixture of experts](14_moe.ipynb): routers, capacity, balance, experts on ranks | [lab 11] |
# | 15 | [End to end](15_end_to_end.ipynb): fewer bits, a real model on three ranks, served | [lab 12] |
#
# [lab 01]: ../labs/lab01_allreduce/lab01_allreduce.ipynb
# [lab 02]: ../labs/lab02_data_parallel/lab02_data_parallel.ipynb
# [lab 03]: ../labs/lab03_memory/lab03_memory.ipynb
# [lab 04]: ../labs/lab04_zero/lab04_zero.ipynb
# [lab 05]: ../labs/lab05_pipeline/lab05_pipeline.ipynb
# [lab 06]: ../labs/lab06_tensor_parallel/lab06_tensor_parallel.ipynb
# [lab 07]: ../labs/lab07_mesh/lab07_mesh.ipynb
# [lab 08]: ../labs/lab08_kv_cache/lab08_kv_cache.ipynb
# [lab 09]: ../labs/lab09_serving/lab09_serving.ipynb
# [lab 10]: ../labs/lab10_online_softmax/lab10_online_softmax.ipynb
# [lab 11]: ../labs/lab11_moe/lab11_moe.ipynb
# [lab 12]: ../labs/lab12_end_to_end/lab12_end_to_end.ipynb
#
# A notebook shows the simple case, worked out. A lab asks for the general one, and its test cells check
# *how* you did it as well as *what* came out: values, bytes sent, memory, order.
#
# ## Where you are

# %%
from utils.progress import my_progress

my_progress()

# %% [markdown]
# Blank, begun, written (every task has code), checked (every test cell ran without an error when you last
# saved).
#
# ## A lab, step by step
#
# 1. Open it. Read a task's specification; write the cell that says `YOUR CODE HERE`.
# 2. Run the test cells below it. A failed test says what it saw: read the sentence before you change the
#    code.
# 3. Check the whole lab in a fresh kernel, from a terminal in the course folder: `python -m utils.selfcheck
#    labs/lab01_allreduce/lab01_allreduce.ipynb`
# 4. Save, and hand in the `.ipynb` file; on a hub, press *Submit* in *Nbgrader > Assignment List*. The marker
#    runs your tests and some that you cannot see.
#
# ## In one line
#
# Once anything of `utils` is imported, a cell that begins with `%%ranks 4` runs on four ranks at once:

# %%
import torch
import torch.distributed as dist

# %%
# %%ranks 4
x = torch.tensor([dist.get_rank()])
dist.all_reduce(x)
print(f"rank {dist.get_rank()}: 0 + 1 + 2 + 3 = {x.item()}")
