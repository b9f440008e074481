# ---
# jupyter:
#   kernelspec:
#     name: python3
# ---

# %% [markdown]
# # A lab to be attacked
#
# A sum over ranks by messages, and a question.

# %% shared="imports"
import torch
import torch.distributed as dist

from utils import check, launch


def start(rank, numel, salt):
    return (torch.arange(numel, dtype=torch.float32) * (rank + 1) + 31 * salt) % 97


# %% solution="add_up"
def add_up(x):
    """Replace x by its sum over all ranks; only send and receive, each rank to its right neighbour."""
    ### BEGIN SOLUTION
    p, me = dist.get_world_size(), dist.get_rank()
    on_its_way = x.clone()
    for _ in range(p - 1):
        arriving = torch.empty_like(x)
        sending = dist.isend(on_its_way, (me + 1) % p)
        dist.recv(arriving, (me - 1) % p)
        sending.wait()
        x += arriving
        on_its_way = arriving
    ### END SOLUTION


# %% test="sum_values" points=8
def probe_sum(numel, salt):
    x = start(dist.get_rank(), numel, salt)
    add_up(x)
    return x


run = launch(probe_sum, 5, 1, ranks=2)
assert all(torch.equal(x, start(0, 5, 1) + start(1, 5, 1)) for x in run.values), "that is not the sum"
### BEGIN HIDDEN TESTS
run = launch(probe_sum, 400, 7, ranks=3)
secret_sum = start(0, 400, 7) + start(1, 400, 7) + start(2, 400, 7)
assert all(torch.equal(x, secret_sum) for x in run.values), "at 3 ranks that is not the sum"
### END HIDDEN TESTS

# %% test="sum_traffic" points=6
def probe_traffic(numel):
    x = start(dist.get_rank(), numel, 3)
    add_up(x)
    return float(x.sum())


run = launch(probe_traffic, 1200, ranks=3)
expected = float((start(0, 1200, 3) + start(1, 1200, 3) + start(2, 1200, 3)).sum())
assert run.values == [expected] * 3, "that is not the sum"
check.no_collectives(run.trace)
for me in range(3):
    assert run.trace.peers(me) == {(me + 1) % 3}, f"rank {me} did not send to the right alone"
    assert run.trace.bytes_sent(me) == 2 * 4800, f"rank {me} sent {run.trace.bytes_sent(me)} bytes"

# %% [markdown]
# ## `answer_messages`
#
# How many messages do all p ranks send together?

# %% solution="answer_messages"
def answer_messages(p):
    """The number of messages of all ranks."""
    ### BEGIN SOLUTION
    return p * (p - 1)
    ### END SOLUTION


# %% test="messages_value" points=6
run = launch(lambda: [answer_messages(p) for p in (1, 2, 13)], ranks=None)
### BEGIN HIDDEN TESTS
assert run.value == [0, 2, 156], f"{run.value}: each of p ranks sends p - 1"
### END HIDDEN TESTS
