# kind: right
# about: torch's all-to-all that has a backward pass.

# %% solution="exchange"
import torch.distributed.nn.functional as collectives


def exchange(rows, send, recv, group=None):
    out = rows.new_empty(sum(recv), *rows.shape[1:])
    return collectives.all_to_all_single(out, rows.contiguous(), recv, send, group or dist.group.WORLD)
