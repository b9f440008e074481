# ---
# jupyter:
#   kernelspec:
#     name: python3
# ---

# %% [markdown]
# # A toy lab
#
# Two tasks, to try the grader on.

# %% shared="imports"
import torch
import torch.distributed as dist

from utils import launch

# %% [markdown]
# ## `pass_on`
#
# Send `x` to the rank on the right and return what comes from the left.

# %% solution="pass_on"
def pass_on(x):
    """Send x to the right, return what the left sent."""
    ### BEGIN SOLUTION
    p, me = dist.get_world_size(), dist.get_rank()
    got = torch.empty_like(x)
    work = [dist.isend(x, (me + 1) % p), dist.irecv(got, (me - 1) % p)]
    for one in work:
        one.wait()
    return got
    ### END SOLUTION


# %% test="pass_on_two" points=5
def probe():
    return pass_on(torch.tensor([dist.get_rank() + 0.5]))


run = launch(probe, ranks=2)
assert [value.item() for value in run.values] == [1.5, 0.5], "the two ranks did not swap their values"
### BEGIN HIDDEN TESTS
secret_run = launch(probe, ranks=3)
assert [value.item() for value in secret_run.values] == [2.5, 0.5, 1.5], "at 3 ranks a value took the wrong way"
### END HIDDEN TESTS

# %% test="pass_on_keeps" points=5
def probe_input():
    mine = torch.tensor([float(dist.get_rank())])
    pass_on(mine)
    return mine


run = launch(probe_input, ranks=2)
assert [value.item() for value in run.values] == [0.0, 1.0], "your function changed its input"

# %% [markdown]
# ## `answer_steps`
#
# How many messages does each of p ranks send in a ring all-reduce?

# %% solution="answer_steps"
def answer_steps(p):
    """The number of messages of one rank."""
    ### BEGIN SOLUTION
    return 2 * (p - 1)
    ### END SOLUTION


# %% test="steps_form" points=4
run = launch(lambda: answer_steps(4), ranks=None)
assert isinstance(run.value, int), f"an int is asked for, not {type(run.value).__name__}"

# %% test="steps_value" points=6
run = launch(lambda: answer_steps(4), ranks=None)
### BEGIN HIDDEN TESTS
assert run.value == 6, f"{run.value} messages: count both halves of the ring"
### END HIDDEN TESTS
