# kind: wrong
# about: The next stage is always on rank + 1: right until stages are interleaved.
# loses: run_interleaved, run_messages

# %% edit="run_schedule"
# replace
            sending[op, stage, k] = dist.isend(tensor, stage % p, tag=tag(op, stage, k)), tensor
# by
            sending[op, stage, k] = dist.isend(tensor, rank + 1 if op == "F" else rank - 1, tag=tag(op, stage, k)), tensor
