# kind: wrong
# about: Calls torch.utils.checkpoint.
# loses: checkpoint_cost
# says: "checkpoint_cost": "checkpoint ran code of torch/utils/checkpoint.py; write it yourself, without"

# %% solution="checkpoint"
from torch.utils.checkpoint import checkpoint as ready_made


def checkpoint(fn, *args):
    return ready_made(fn, *args, use_reentrant=False)
