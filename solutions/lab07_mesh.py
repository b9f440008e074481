# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Lab 07: Many dimensions
#
# **20 points.** Data, pipeline and tensor parallelism at once, on one *mesh* of ranks: you find out who
# talks to whom, put the gradients together along the right axes, clip them, update them with optimizer
# state that is spread over the replicas, and save the model so that a machine of another shape can go on.
# Eight ranks then train exactly as one process does. At the end you search for the best shape of a large
# machine.
#
# | part | what you write | points |
# |---|---|---|
# | 1 | coordinates, groups, process groups | 4 |
# | 2 | which gradient is added up over which axis; the norm of all of them | 6 |
# | 3 | ZeRO-1 over dp; the training step | 4 |
# | 4 | save, and load at another layout | 2 |
# | 5 | the search for a split | 2 |
# | 6 | questions | 2 |
#
# *You should have read* notebook 09. *Time:* about four hours. *Machine:* any; no GPU is needed.

# %% [markdown]
# ## How this lab works
#
# - Write your code in the cells that raise `NotImplementedError`. The test cells below them are locked. Run
#   them as often as you like. Grading runs them with further layouts and up to eight ranks.
# - The tests look at **values** (those of one process on the whole batch), **traffic** (how many bytes along
#   which axis) and **memory**.
# - What labs 04 to 06 built is given here as `utils.mesh`, so that this lab does not hang on those: a stage
#   of a Transformer whose layers are cut over ranks, and a pipeline that runs micro-batches through the
#   stages.
# - **You may call** anything in `torch` and `torch.distributed`, except what does this lab by itself: in
#   part 1 `init_device_mesh` (your groups are held to it), in part 3 `ZeroRedundancyOptimizer` and FSDP, in
#   part 4 `torch.distributed.checkpoint`.
#
# **Conventions.** A *mesh* (设备网格) gives every *rank* (进程编号) a coordinate along each *axis*. We use three
# axes, always in this order: **dp** (数据并行), **pp** (流水线并行), **tp** (张量并行). A *layout* is their three
# sizes, such as (2, 2, 2); the world size is their product. Ranks are numbered *row-major*: the last axis
# counts fastest, so that the ranks of a tp group are neighbours and can share a machine. The *group along an
# axis* (通信组) is the set of ranks that differ only there. `axis` is of the mesh, `dim` of a tensor.

# %% shared="imports"
import dataclasses
import gc
import math
import zlib
from dataclasses import dataclass
from functools import partial
from itertools import product

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

from utils import check, launch
from utils.checks import meshes
from utils.memory import LiveBytes
from utils.mesh import AXES, Mesh, ShardedStage, bytes_per_axis, run_gpipe, shard_of
from utils.models import Transformer, TransformerConfig, batches, train

TIED = TransformerConfig(hidden=8, layers=2, heads=2, kv_heads=1, ffn=16, max_len=8)  # k_proj, v_proj partial at tp=2
UNTIED = dataclasses.replace(TIED, tied=False, kv_heads=2, gated=True)
DEEP = dataclasses.replace(TIED, layers=3, vocab_size=32)


def whole_model(config: TransformerConfig, dtype: torch.dtype = torch.float64) -> Transformer:
    """The whole model, with the same weights wherever it is made, and no parameter 0 or equal to another."""
    torch.manual_seed(3)
    model = Transformer(config).to(dtype)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.add_((0.02 * draw(parameter.shape, name)).to(dtype))
    return model


def draw(shape, *key) -> torch.Tensor:
    """Whole numbers from -4 to 5 as float64, which depend on the key: (name, step, rank, ...)."""
    generator = torch.Generator().manual_seed(zlib.crc32(repr(key).encode()))
    return torch.randint(-4, 6, tuple(shape), generator=generator).double()


def mine(full: torch.Tensor, placement, mesh: Mesh) -> torch.Tensor:
    """What this rank holds of a whole tensor, with memory of its own."""
    return shard_of(full, placement.dim, mesh.coordinate("tp"), mesh.size("tp")).clone()


def world(layout) -> int:
    """The number of ranks of a layout."""
    return math.prod(layout)


# %% [markdown]
# # Part 1. Who is where
#
# ## coordinates and rank_of
#
# `coordinates(rank, shape)` returns the coordinates of a rank as a tuple, for a mesh of **any** number of
# axes; `rank_of(coords, shape)` is the way back. Row-major: the last axis counts fastest.
#
# $$rank = (\dots(c_0\, n_1 + c_1)\, n_2 + \dots)\, n_{k} + c_{k}$$
#
# *Example*, shape (2, 3, 4): rank 17 is 1 * 12 + 1 * 4 + 1, so its coordinates are (1, 1, 1). Rank 4 is
# (0, 1, 0).
#
# *Size:* about 5 lines each.

# %% solution="coordinates"
def coordinates(rank: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    ### BEGIN SOLUTION
    coords = []
    for size in reversed(shape):
        rank, coord = divmod(rank, size)
        coords.append(coord)
    return tuple(reversed(coords))
    ### END SOLUTION


# %% solution="rank_of"
def rank_of(coords: tuple[int, ...], shape: tuple[int, ...]) -> int:
    ### BEGIN SOLUTION
    rank = 0
    for coord, size in zip(coords, shape, strict=True):
        rank = rank * size + coord
    return rank
    ### END SOLUTION


# %% test="coordinates_values" points=1
def probe_coordinates(shapes):
    results = []
    for shape in shapes:
        there = [coordinates(rank, shape) for rank in range(world(shape))]
        back = [rank_of(coords, shape) for coords in product(*map(range, shape))]
        results.append({"there": there, "back": back})
    return results


def verdict_coordinates(shapes):
    run = launch(probe_coordinates, shapes, ranks=None, timeout=10)
    for got, shape in zip(run.value, shapes, strict=True):
        wanted = torch.cartesian_prod(*[torch.arange(n) for n in shape]).reshape(world(shape), -1).tolist()
        columns = torch.arange(world(shape)).reshape(shape[::-1]).permute(*reversed(range(len(shape))))
        for rank, want in enumerate(wanted):
            coords = got["there"][rank]
            where = f"coordinates({rank}, {shape})"
            assert isinstance(coords, (tuple, list)), f"{where} is {coords!r}; a tuple is wanted."
            if list(coords) != want:
                flipped = [int(i) for i in (columns == rank).nonzero()[0]]
                hint = ": here the first axis counts fastest" if list(coords) == flipped else ""
                raise AssertionError(f"{where} is {tuple(coords)}, wanted {tuple(want)}{hint}.")
            back = got["back"][rank]
            assert back == rank, f"rank_of({tuple(want)}, {shape}) is {back!r}, wanted {rank}."


verdict_coordinates([(2, 3, 4), (2, 2)])
### BEGIN HIDDEN TESTS
verdict_coordinates([(5,), (1, 1, 1), (3, 1, 2), (2, 3, 2, 4), (8, 2, 4)])
### END HIDDEN TESTS

# %% [markdown]
# ## axis_groups
#
# `axis_groups(shape)` returns, for each axis, the list of all groups along it. A group is the list of the
# ranks that differ only in their coordinate on that axis, in the order of that coordinate. Pure lists, no
# process groups yet. Any number of axes; the order of the groups in a list is yours.
#
# *Example*, shape (2, 3), ranks 0 1 2 / 3 4 5: `[[[0, 3], [1, 4], [2, 5]], [[0, 1, 2], [3, 4, 5]]]`.
#
# *Target:* an axis of size n has world/n groups of n ranks; every rank is in exactly one of them. *Size:*
# about 8 lines.

# %% solution="axis_groups"
def axis_groups(shape: tuple[int, ...]) -> list[list[list[int]]]:
    ### BEGIN SOLUTION
    result = []
    for axis, size in enumerate(shape):
        groups = []
        for coords in product(*(range(n) if k != axis else (0,) for k, n in enumerate(shape))):
            line = [coords[:axis] + (place,) + coords[axis + 1 :] for place in range(size)]
            groups.append([rank_of(c, shape) for c in line])
        result.append(groups)
    return result
    ### END SOLUTION


# %% test="axis_groups_values" points=1
def probe_axis_groups(shapes):
    return [axis_groups(shape) for shape in shapes]


def device_mesh_groups(shape):  # runs on ranks of its own, with torch's DeviceMesh
    from torch.distributed.device_mesh import init_device_mesh

    names = tuple("abcd"[: len(shape)])
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=names)
    return [dist.get_process_group_ranks(mesh.get_group(name)) for name in names]


def verdict_axis_groups(shapes):
    run = launch(probe_axis_groups, shapes, ranks=None, timeout=10)
    for got, shape in zip(run.value, shapes, strict=True):
        oracle = check.reference(device_mesh_groups, shape, ranks=world(shape)).values
        where = f"axis_groups({shape})"
        assert isinstance(got, list) and len(got) == len(shape), f"{where}: a list of {len(shape)} lists is wanted."
        for axis, groups in enumerate(got):
            wanted = sorted({tuple(of_rank[axis]) for of_rank in oracle})
            seen = sorted(tuple(group) for group in groups)
            other = next((k for k in range(len(shape)) if seen == sorted({tuple(r[k]) for r in oracle})), None)
            hint = f" These are the groups along axis {other}." if other is not None else ""
            assert seen == wanted, f"{where}: axis {axis} has the groups {seen}, wanted {wanted}.{hint}"


verdict_axis_groups([(2, 3)])
### BEGIN HIDDEN TESTS
verdict_axis_groups([(2, 1, 3), (1,), (2, 2, 2), (1, 4, 1)])
### END HIDDEN TESTS

# %% [markdown]
# ## make_groups
#
# `make_groups(shape)` runs on every rank of the world and returns a list: for each axis the **process group**
# of *this* rank along it, made with `dist.new_group(ranks)`. An axis of size 1 has groups of one rank.
#
# `new_group` is a collective of the whole world: **every** rank calls it for **every** group, also for
# groups that it is no member of, and in the **same order**. gloo often forgives when only members call it;
# nccl hangs, about one time in four.
#
# *Target:* the journal of every rank shows the same list of groups. *Size:* about 9 lines.

# %% solution="make_groups"
def make_groups(shape: tuple[int, ...]) -> list[dist.ProcessGroup]:
    ### BEGIN SOLUTION
    rank, result = dist.get_rank(), []
    for groups in axis_groups(shape):
        for ranks in groups:
            group = dist.new_group(ranks)
            if rank in ranks:
                result.append(group)
    return result
    ### END SOLUTION


# %% test="make_groups_sums" points=1
def probe_make_groups(shapes):
    results = []
    for shape in shapes:
        sums, members = [], []
        for group in make_groups(shape):
            x = torch.tensor([10 ** dist.get_rank(), 1])
            dist.all_reduce(x, group=group)
            sums.append(x)
            members.append(dist.get_process_group_ranks(group))
        results.append({"sums": sums, "members": members})
    return results


def verdict_make_groups(shapes):
    ranks = world(shapes[0])
    run = launch(probe_make_groups, shapes, ranks=ranks, timeout=20)
    for case, shape in enumerate(shapes):
        numbered = torch.arange(ranks).reshape(shape)
        for rank, value in enumerate(run.values):
            got, where = value[case], f"make_groups({shape}), rank {rank}"
            assert len(got["sums"]) == len(shape), f"{where}: {len(got['sums'])} groups, wanted {len(shape)}."
            for axis in range(len(shape)):
                lines = numbered.movedim(axis, -1).reshape(-1, shape[axis]).tolist()
                line = next(line for line in lines if rank in line)
                members = got["members"][axis]
                assert sorted(members) == line, f"{where}, axis {axis}: the group is {members}, wanted {line}."
                want = torch.tensor([sum(10**r for r in line), len(line)])
                check.ranks_hold([got["sums"][axis]], [want], f"{where}, axis {axis}: sum of 10^rank")


verdict_make_groups([(2, 2)])
### BEGIN HIDDEN TESTS
verdict_make_groups([(1, 1, 1)])
verdict_make_groups([(3,), (1, 3, 1)])
verdict_make_groups([(3, 1, 2)])
### END HIDDEN TESTS

# %% test="make_groups_order" points=1
def probe_order(shape):
    return len(make_groups(shape))


def verdict_order(shape):
    run = launch(probe_order, shape, ranks=world(shape), timeout=20)
    numbered = torch.arange(world(shape)).reshape(shape)
    lines = [numbered.movedim(axis, -1).reshape(-1, n).tolist() for axis, n in enumerate(shape)]
    meshes.groups_made(run.trace, [line for axis in lines for line in axis], f"make_groups({shape})")


verdict_order((2, 2))
### BEGIN HIDDEN TESTS
verdict_order((4, 1, 1))
verdict_order((2, 2, 2))
### END HIDDEN TESTS

# %% [markdown]
# # Part 2. Gradients on a mesh
#
# From here on the mesh and the model are given:
#
# - `mesh = Mesh(dp, pp, tp)`: `mesh.size("tp")`, `mesh.coordinate("tp")` (this rank's place, 0 first),
#   `mesh.group("tp")` (its process group), `mesh.ranks("tp")` (the group's *global* ranks, in order).
# - `stage = ShardedStage(model, mesh)`: this rank's part of a Transformer, an `nn.Module`. Its parameters
#   keep the names that they have in the whole model. `stage.first` and `stage.last` say which end of the
#   pipeline it is.
# - `stage.placements[name]`, one for each parameter, says how it lies on the mesh:
#
# | `.kind` | along tp each rank holds | its gradient after the backward pass |
# |---|---|---|
# | `"sharded"` | one of tp equal pieces along `.dim` | the whole gradient of its piece |
# | `"replicated"` | all of it | the whole gradient, equal on all tp ranks |
# | `"partial"` | all of it | only this rank's share; the shares add up |
#
# `.tied` is True where the first and the last stage each hold a copy: the embedding, which is also the output
# matrix (with pp = 1 there is one copy, and `.tied` is False). Each end has the gradient of its own use; the
# gradient is their sum. `.shape` is the shape of the whole parameter.
#
# Why partial? Each tp rank runs its own attention heads. With fewer key and value heads than ranks (GQA), all
# ranks hold `k_proj` and `v_proj` whole, but a rank's gradient comes only from the heads that it ran.

# %% shared="gradients"
def after_backward(name, placement, d, t, end, salt):
    """What a backward pass would leave for replica d, tp rank t and end of the pipeline, as a whole tensor."""
    share = t if placement.kind == "partial" else 0
    return draw(placement.shape, name, salt, d, share, end if placement.tied else 0)


def put_gradients(stage, mesh, salt):
    """Give every parameter such a gradient."""
    d, t, end = mesh.coordinate("dp"), mesh.coordinate("tp"), int(not stage.first)
    for name, parameter in stage.named_parameters():
        placement = stage.placements[name]
        parameter.grad = mine(after_backward(name, placement, d, t, end, salt), placement, mesh)


def gradients_wanted(config, layout, salts):  # runs on ranks of its own: sums of plain tensors, no messages
    mesh = Mesh(*layout)
    stage, results = ShardedStage(whole_model(config), mesh), []
    dp, _, tp = layout
    for salt in salts:
        wanted, unsummed, kinds = {}, {}, {}
        for name, placement in stage.placements.items():
            shares = range(tp) if placement.kind == "partial" else [mesh.coordinate("tp")]
            ends = (0, 1) if placement.tied else [0]
            makes = partial(after_backward, name, placement, salt=salt)
            total = sum(makes(d, t, end) for d in range(dp) for t in shares for end in ends) / dp
            own_end = int(not stage.first)
            lonely = sum(makes(d, mesh.coordinate("tp"), own_end) for d in range(dp)) / dp
            wanted[name], unsummed[name] = mine(total, placement, mesh), mine(lonely, placement, mesh)
            kinds[name] = "tied" if placement.tied else placement.kind
        results.append({"wanted": wanted, "unsummed": unsummed, "kinds": kinds})
    return results


# %% [markdown]
# ## sync_gradients
#
# `sync_gradients(stage, mesh)` runs after the backward passes of a step and brings every `parameter.grad`
# to the gradient of the **mean loss over all replicas**, in place (or as a new tensor in `.grad`):
#
# - along **dp** every gradient is averaged: summed over the group, divided by its size; not by the world
#   size;
# - along **tp** only partial gradients are summed;
# - along **pp** only tied ones are: first and last stage end up with the same sum. The stages between hold no
#   copy. They may stay out (send and receive between the two ends), or join an all-reduce with zeros.
#
# *Example*, layout (2, 2, 1), a tied weight; first stages have g0 = 1 and g1 = 3 (replicas 0 and 1), last
# stages h0 = 10 and h1 = 30: everywhere (1 + 3)/2 + (10 + 30)/2 = 22.
#
# *Target:* a rank sends each gradient once along dp, 2(p-1)/p of its bytes; along tp only partial ones,
# along pp only tied ones. Nothing over the whole world. *Size:* about 16 lines.

# %% solution="sync_gradients"
def sync_gradients(stage: ShardedStage, mesh: Mesh) -> None:
    ### BEGIN SOLUTION
    parameters = dict(stage.named_parameters())
    for name, parameter in parameters.items():
        placement, grad = stage.placements[name], parameter.grad
        if placement.kind == "partial":
            dist.all_reduce(grad, group=mesh.group("tp"))
        if placement.tied:
            other = mesh.ranks("pp")[-1 if stage.first else 0]
            theirs = torch.empty_like(grad)
            works = [dist.isend(grad, other), dist.irecv(theirs, other)]
            for work in works:
                work.wait()
            grad += theirs
    flat = torch.cat([parameter.grad.reshape(-1) for parameter in parameters.values()])  # one message, not twenty
    dist.all_reduce(flat, group=mesh.group("dp"))
    pieces = (flat / mesh.size("dp")).split([parameter.numel() for parameter in parameters.values()])
    for parameter, piece in zip(parameters.values(), pieces, strict=True):
        parameter.grad.copy_(piece.view_as(parameter))
    ### END SOLUTION


# %% shared="sync"
def verdict_sync(probe, config, layout, kinds, salts=(0, 1)):
    """Hold the gradients of parameters of these kinds, on every rank, to the sums made here; returns the run."""
    ranks, (dp, _, tp) = world(layout), layout
    run = launch(probe, config, layout, salts, ranks=ranks, timeout=20)
    oracle = check.reference(gradients_wanted, config, layout, salts, ranks=ranks)
    by_world = {f"divided by the world size {ranks}; the mean is over the {dp} replicas of dp": dp / ranks}
    by_tp = {f"divided by the {tp} ranks of tp; their shares add up": 1 / tp}
    by_ends = {"divided by 2; the gradients of both ends add up": 1 / 2}
    first = {"partial": by_tp, "tied": by_ends}  # where two causes leave the same factor, the likelier one is named
    others = {
        f"summed over the {dp} replicas of dp but never divided": dp,
        f"summed over the {tp} ranks of tp, which each had the whole gradient already": tp,
        f"divided by the {dp} replicas twice": 1 / dp,
        "it was added twice": 2,
    }
    alone = {"partial": "only this tp rank's share: partial gradients are summed over tp",
             "tied": "only the gradient of this end's own use: both ends need the sum of both"}  # fmt: skip
    for rank, (got, of_rank) in enumerate(zip(run.values, oracle.values, strict=True)):
        for call, one in enumerate(of_rank):
            where = f"sync_gradients, layout {layout}, rank {rank}" + (f", call {call + 1}" if call else "")
            for kind in kinds:
                names = [name for name, its in one["kinds"].items() if its == kind]
                wanted = {name: one["wanted"][name] for name in names}
                likes = {alone[kind]: one["unsummed"]} if kind in alone else {}
                suspects = first.get(kind, {}) | by_world | others
                held = {name: got[call].get(name) for name in names}
                check.agree(held, wanted, f"{where}, {kind} gradients", suspects=suspects, resembles=likes)
    return run


# %% test="sync_dp" points=1
def probe_sync_dp(config, layout, salts):
    mesh = Mesh(*layout)
    stage, results = ShardedStage(whole_model(config), mesh), []
    for salt in salts:
        put_gradients(stage, mesh, salt)
        sync_gradients(stage, mesh)
        results.append({name: p.grad for name, p in stage.named_parameters()})
    return results


verdict_sync(probe_sync_dp, UNTIED, (2, 1, 1), ["replicated", "partial"])
### BEGIN HIDDEN TESTS
verdict_sync(probe_sync_dp, UNTIED, (1, 1, 1), ["replicated"])
verdict_sync(probe_sync_dp, TIED, (3, 1, 1), ["replicated"])
verdict_sync(probe_sync_dp, UNTIED, (2, 1, 2), ["sharded"])
### END HIDDEN TESTS

# %% test="sync_tp" points=1
def probe_sync_tp(config, layout, salts):
    mesh = Mesh(*layout)
    stage, results = ShardedStage(whole_model(config), mesh), []
    for salt in salts:
        put_gradients(stage, mesh, salt)
        sync_gradients(stage, mesh)
        results.append({name: p.grad for name, p in stage.named_parameters()})
    return results


verdict_sync(probe_sync_tp, TIED, (1, 1, 2), ["replicated", "partial", "sharded"])
### BEGIN HIDDEN TESTS
verdict_sync(probe_sync_tp, TIED, (2, 1, 2), ["replicated", "partial", "sharded"])
### END HIDDEN TESTS

# %% test="sync_tied" points=1
def probe_sync_tied(config, layout, salts):
    mesh = Mesh(*layout)
    stage, results = ShardedStage(whole_model(config), mesh), []
    for salt in salts:
        put_gradients(stage, mesh, salt)
        sync_gradients(stage, mesh)
        results.append({name: p.grad for name, p in stage.named_parameters()})
    return results


verdict_sync(probe_sync_tied, TIED, (1, 2, 1), ["tied"])
### BEGIN HIDDEN TESTS
verdict_sync(probe_sync_tied, DEEP, (1, 3, 1), ["tied"])
verdict_sync(probe_sync_tied, TIED, (2, 2, 1), ["tied"])
verdict_sync(probe_sync_tied, TIED, (1, 2, 2), ["tied"])
### END HIDDEN TESTS

# %% test="sync_traffic" points=1
def probe_sync_traffic(config, layout, salts):
    mesh = Mesh(*layout)
    stage, results = ShardedStage(whole_model(config), mesh), []
    for salt in salts:
        put_gradients(stage, mesh, salt)
        sync_gradients(stage, mesh)
        results.append({name: p.grad for name, p in stage.named_parameters()})
    return results


def verdict_sync_traffic(config, layout, kinds):
    run = verdict_sync(probe_sync_traffic, config, layout, kinds, salts=(5,))
    sizes = []
    for (one,) in check.reference(gradients_wanted, config, layout, (5,), ranks=world(layout)).values:
        sizes.append(dict.fromkeys(("sharded", "replicated", "partial", "tied"), 0))
        for name, tensor in one["wanted"].items():
            sizes[-1][one["kinds"][name]] += tensor.numel() * tensor.element_size()
    size = sizes[0]
    ring = {axis: 2 * (n - 1) / n for axis, n in zip(AXES, layout, strict=True)}
    slack = 256  # a count or a flag may travel too
    most = {
        "dp": (ring["dp"] * sum(size.values()) + slack, "2(p-1)/p of the gradients' bytes"),
        "tp": (ring["tp"] * size["partial"] + slack, "only partial gradients travel along tp"),
        "pp": (max(1, ring["pp"]) * size["tied"] + slack, "only tied gradients travel along pp"),
        "world": (slack, "each gradient has its axes; the whole world is none"),
    }
    meshes.axis_bytes(bytes_per_axis(run.trace, 0, layout), most, f"sync_gradients, layout {layout}")
    for rank, size in enumerate(sizes):
        needs = {"dp": (sum(size.values()), "the other replicas' gradients"),
                 "tp": (size["partial"], "the other shares of partial gradients"),
                 "pp": (size["tied"], "the other end's tied gradient")}  # fmt: skip
        needs = {axis: need for (axis, need), n in zip(needs.items(), layout, strict=True) if n > 1}
        got = bytes_per_axis(run.trace, rank, layout, "received")
        meshes.axis_needs(got, needs, f"sync_gradients, layout {layout}, rank {rank}")


verdict_sync_traffic(TIED, (2, 1, 2), ["replicated", "partial"])
### BEGIN HIDDEN TESTS
verdict_sync_traffic(TIED, (3, 1, 1), ["replicated"])
verdict_sync_traffic(TIED, (1, 2, 2), ["tied"])
verdict_sync_traffic(TIED, (2, 2, 1), ["tied", "replicated"])
### END HIDDEN TESTS

# %% [markdown]
# ## mesh_norm
#
# `mesh_norm(stage, mesh)` returns, as a float, the 2-norm of the **whole model's** gradient: the square
# root of the sum of the squares of all its elements, on every rank the same number. It runs after
# `sync_gradients`, so replicas have equal gradients, and so have tp ranks where a parameter is not sharded,
# and the two ends where it is tied. Every element counts **once**:
#
# - along tp: sharded pieces are different elements, all count; replicated and partial parameters count once;
# - along pp: stages hold different parameters; a tied one counts once;
# - along dp: nothing is new, all replicas are equal.
#
# *Example*, layout (1, 1, 2): a replicated gradient [2] on both ranks, a sharded one with [1] on rank 0 and
# [2] on rank 1: sqrt(4 + 1 + 4) = 3 on both (counting the replicated one twice gives 3.606).
#
# *Target:* what travels is a number or a few, not the gradients. *Size:* about 9 lines. The gradients stay as
# they are.

# %% solution="mesh_norm"
def mesh_norm(stage: ShardedStage, mesh: Mesh) -> float:
    ### BEGIN SOLUTION
    total = torch.zeros((), dtype=torch.float64)
    for name, parameter in stage.named_parameters():
        placement = stage.placements[name]
        copy_along_tp = placement.kind != "sharded" and mesh.coordinate("tp") > 0
        copy_along_pp = placement.tied and not stage.first
        if not (copy_along_tp or copy_along_pp):
            total += parameter.grad.double().square().sum()
    for axis in ("tp", "pp"):
        dist.all_reduce(total, group=mesh.group(axis))
    return total.sqrt().item()
    ### END SOLUTION


# %% shared="norms"
def put_synced(stage, mesh, salt):
    """Gradients as they are after sync_gradients: pieces of one whole gradient."""
    for name, parameter in stage.named_parameters():
        placement = stage.placements[name]
        parameter.grad = mine(draw(placement.shape, name, salt), placement, mesh)


def squares_by_kind(config, layout, salt):  # runs on ranks of its own: what each rank holds, no messages
    mesh = Mesh(*layout)
    stage = ShardedStage(whole_model(config), mesh)
    put_synced(stage, mesh, salt)
    squares = {"sharded": 0.0, "copied": 0.0, "tied": 0.0}
    for name, parameter in stage.named_parameters():
        placement = stage.placements[name]
        kind = "tied" if placement.tied else "sharded" if placement.kind == "sharded" else "copied"
        squares[kind] += parameter.grad.square().sum().item()
    return squares


def verdict_norm(probe, config, layout, salt):
    """Hold the norm on every rank to torch's on the whole model's gradient."""
    dp, pp, tp = layout
    run = launch(probe, config, layout, salt, ranks=world(layout), timeout=20)
    whole = [draw(p.shape, name, salt) for name, p in whole_model(config).named_parameters()]
    want = torch.nn.utils.get_total_norm(whole).item()
    held = check.reference(squares_by_kind, config, layout, salt, ranks=world(layout)).values[: pp * tp]
    sharded, copied = (sum(rank[kind] for rank in held) for kind in ("sharded", "copied"))
    tied = held[0]["tied"]
    mistakes = {
        "a norm of rank 0's part alone": sum(held[0].values()),
        f"what is not sharded was counted once for each of the {tp} tp ranks": sharded + copied + tied * tp,
        "the tied weight was counted on both ends": sharded + copied / tp + 2 * tied,
        f"what is not sharded was counted {tp} times, the tied weight on both ends": sharded + copied + 2 * tied * tp,
        f"all {dp} replicas were counted": dp * want**2,
        "the tied weight was not counted at all": sharded + copied / tp,
        "pieces of other tp ranks are missing": sum(r["sharded"] + r["copied"] for r in held[::tp]) + tied,
        "this is the square of the norm": want**4,
    }
    alternatives = {text: math.sqrt(value) for text, value in mistakes.items()}
    for call in (0, 1):
        where = f"mesh_norm, layout {layout}" + (", second call" if call else "")
        meshes.ranks_agree_on([value[call] for value in run.values], want, where, alternatives, rtol=1e-9)
    for rank in range(world(layout)):
        sent, came = (moved(rank) / 2 for moved in (run.trace.bytes_sent, run.trace.bytes_received))
        where = f"mesh_norm, layout {layout}: the values are right, but rank {rank}"
        assert sent <= 2048, f"{where} sent {sent:.0f} bytes a call: sums of squares are enough, gradients stay."
        assert came >= 4 or pp * tp == 1, f"{where} heard nothing from the ranks that hold the other parameters."


# %% test="mesh_norm_tp" points=1
def probe_norm_tp(config, layout, salt):
    mesh = Mesh(*layout)
    stage = ShardedStage(whole_model(config), mesh)
    put_synced(stage, mesh, salt)
    return [mesh_norm(stage, mesh), mesh_norm(stage, mesh)]


verdict_norm(probe_norm_tp, UNTIED, (1, 1, 2), 0)
### BEGIN HIDDEN TESTS
verdict_norm(probe_norm_tp, UNTIED, (1, 1, 1), 1)
verdict_norm(probe_norm_tp, TIED, (2, 1, 2), 2)
verdict_norm(probe_norm_tp, UNTIED, (3, 1, 1), 3)
### END HIDDEN TESTS

# %% test="mesh_norm_pp" points=1
def probe_norm_pp(config, layout, salt):
    mesh = Mesh(*layout)
    stage = ShardedStage(whole_model(config), mesh)
    put_synced(stage, mesh, salt)
    return [mesh_norm(stage, mesh), mesh_norm(stage, mesh)]


verdict_norm(probe_norm_pp, TIED, (1, 2, 1), 0)
### BEGIN HIDDEN TESTS
verdict_norm(probe_norm_pp, DEEP, (1, 3, 1), 1)
verdict_norm(probe_norm_pp, TIED, (1, 2, 2), 2)
verdict_norm(probe_norm_pp, TIED, (2, 2, 1), 3)
### END HIDDEN TESTS

# %% [markdown]
# # Part 3. The step
#
# ## ZeroOne
#
# ZeRO-1 (Rajbhandari et al. 2020): every replica has the same parameters and, after `sync_gradients`, the
# same gradients, so it is enough that each keeps the Adam state of 1/dp of the elements, updates these, and
# sends the new values to the others. The replicas of a rank are its **dp group**, not the world: the other
# tp ranks and stages hold other parameters.
#
# Write the class `ZeroOne(parameters, group, lr, eps=1e-8)`:
#
# - `parameters`: dictionary name -> parameter, this rank's, in one order on all ranks of `group`; `group`:
#   the dp group. The update is that of `torch.optim.Adam(lr=lr, eps=eps)` (Kingma and Ba 2015): with m and
#   v from 0 and t counted from 1, m ← 0.9 m + 0.1 g, v ← 0.999 v + 0.001 g², then w ← w - lr · m̂ / (√v̂ +
#   eps), where m̂ = m / (1 - 0.9^t) and v̂ = v / (1 - 0.999^t). m is called `exp_avg`, v `exp_avg_sq`. Write it
#   out, or use `torch.optim.Adam` on your shard (its first use on a rank loads torch's compiler: a second or
#   two).
# - `step()` updates the parameters in place from their `.grad`. Gradients are not scaled again.
# - `state()` returns a dictionary with the state of all of `parameters`, **whole along dp**, on every rank:
#   `"NAME/exp_avg"` and `"NAME/exp_avg_sq"`, shaped like this rank's parameter, and `"step"`, the number of
#   steps so far as a tensor without dimensions. It is called after at least one step.
# - `load_state(state)` takes such a dictionary and goes on from there; also right after construction.
#
# Cut by **element**, not by tensor: lay all parameters one behind the other as one flat vector of n
# elements, pad it to a multiple of dp, and give each rank an equal piece.
#
# *Example*, dp = 2, sizes 3 and 4, n = 7, padded 8: rank 0 owns the first parameter and one element of the
# second; rank 1 the other three and one of padding.
#
# *Target:* a rank keeps the two moments of ceil(n/dp) elements, and besides them at most one copy of the
# parameters; in a step it gets the new values of the other elements from the ranks that own them. *Size:* about
# 35 lines in all.

# %% solution="zero_one"
class ZeroOne:
    """Adam whose state is spread over the dp group."""

    ### BEGIN SOLUTION
    def __init__(self, parameters, group, lr, eps=1e-8):
        self.parameters, self.group = dict(parameters), group
        self.rank, self.count = dist.get_rank(group), dist.get_world_size(group)
        self.numel = sum(p.numel() for p in self.parameters.values())
        self.size = -(-self.numel // self.count)
        flat = self.flatten({name: p.detach() for name, p in self.parameters.items()})
        self.shard, self.lr, self.eps, self.steps = self.piece(flat).clone(), lr, eps, 0
        self.moments = {key: torch.zeros_like(self.shard) for key in ("exp_avg", "exp_avg_sq")}

    def flatten(self, tensors):
        flat = torch.cat([tensors[name].reshape(-1) for name in self.parameters])
        return F.pad(flat, (0, self.size * self.count - self.numel))

    def piece(self, flat):
        return flat[self.rank * self.size : (self.rank + 1) * self.size]

    def gathered(self, shard):
        """By name, whole tensors from everybody's piece."""
        flat = shard.new_empty(self.size * self.count)
        dist.all_gather_single(flat, shard, group=self.group)
        pieces = flat[: self.numel].split([p.numel() for p in self.parameters.values()])
        return {name: piece.view_as(p) for (name, p), piece in zip(self.parameters.items(), pieces, strict=True)}

    def step(self):
        grad = self.piece(self.flatten({name: p.grad for name, p in self.parameters.items()}))
        mean, square = self.moments["exp_avg"], self.moments["exp_avg_sq"]
        mean.lerp_(grad, 1 - 0.9)
        square.mul_(0.999).addcmul_(grad, grad, value=1 - 0.999)
        self.steps += 1
        root = (square / (1 - 0.999**self.steps)).sqrt() + self.eps
        self.shard.addcdiv_(mean, root, value=-self.lr / (1 - 0.9**self.steps))
        for name, value in self.gathered(self.shard).items():
            self.parameters[name].data.copy_(value)

    def state(self):
        whole = {key: self.gathered(moment) for key, moment in self.moments.items()}
        state = {f"{name}/{key}": whole[key][name].clone() for name in self.parameters for key in whole}
        return {**state, "step": torch.tensor(float(self.steps))}

    def load_state(self, state):
        self.shard.copy_(self.piece(self.flatten({n: p.detach() for n, p in self.parameters.items()})))
        self.steps = int(state["step"])
        for key, moment in self.moments.items():
            moment.copy_(self.piece(self.flatten({name: state[f"{name}/{key}"] for name in self.parameters})))

    ### END SOLUTION


# %% shared="optimizer"
SHAPES = {"a": (3, 5), "b": (7,), "c": (3,), "d": (2, 3)}  # 31 elements: no group divides them
LR, EPS = 0.05, 0.1  # an eps of this size lets a wrong factor in the gradients show, which Adam would hide


def own_parameters(t, shapes=SHAPES):
    """The parameters of tp rank t: other ones on each, the same on all replicas."""
    return {name: nn.Parameter(draw(shape, name, "start", t)) for name, shape in shapes.items()}


def give_gradients(parameters, step, t):
    """What sync_gradients would have left in step number `step`."""
    for name, parameter in parameters.items():
        parameter.grad = draw(parameter.shape, name, step, t)


def adam_alone(t, steps, factor=1.0):
    """The parameters after each step of torch's Adam in one process."""
    parameters = own_parameters(t)
    adam, after = torch.optim.Adam(parameters.values(), lr=LR, eps=EPS), []
    for step in range(steps):
        give_gradients(parameters, step, t)
        for parameter in parameters.values():
            parameter.grad *= factor
        adam.step()
        after.append({name: p.detach().clone() for name, p in parameters.items()})
    return after


def mixed(dp, tp):
    """What comes of cutting up the parameters over the whole world, piece k from rank k, after one step."""
    flats = [torch.cat([x.reshape(-1) for x in adam_alone(t, 1)[0].values()]) for t in range(tp)]
    size = math.ceil(len(flats[0]) / (dp * tp))
    whole = torch.cat([flats[k % tp][k * size : (k + 1) * size] for k in range(dp * tp)])
    pieces = whole.split([math.prod(shape) for shape in SHAPES.values()])
    return {name: piece.reshape(shape) for (name, shape), piece in zip(SHAPES.items(), pieces, strict=True)}


# %% test="zero_one_values" points=1
def probe_zero_one(layout, steps):
    mesh, after = Mesh(*layout), []
    t = mesh.coordinate("tp")
    parameters = own_parameters(t)
    optimizer = ZeroOne(parameters, mesh.group("dp"), lr=LR, eps=EPS)
    for step in range(steps):
        give_gradients(parameters, step, t)
        optimizer.step()
        after.append({name: p.detach().clone() for name, p in parameters.items()})
    return after


def verdict_zero_one(layout, steps=2):
    dp, _, tp = layout
    run = launch(probe_zero_one, layout, steps, ranks=world(layout), timeout=20)
    wanted = [adam_alone(t, steps) for t in range(tp)]
    for rank, got in enumerate(run.values):
        t = rank % tp
        for step in range(steps):
            where = f"ZeroOne, layout {layout}, rank {rank}, parameters after step {step + 1}"
            try:
                check.agree(got[step], wanted[t][step], where, rtol=1e-9, atol=1e-9)
            except check.CheckFailed:  # wrong: only now is it worth the time to find out what it looks like
                likes = {} if step else first_step_mistakes(t, dp, tp)
                check.agree(got[step], wanted[t][step], where, resembles=likes, rtol=1e-9, atol=1e-9)


def first_step_mistakes(t, dp, tp):
    """sentence -> the parameters of tp rank t that this mistake leaves after one step."""
    before = {name: p.detach() for name, p in own_parameters(t).items()}
    likes = {"as it was before the step: new values do not reach every rank, or nothing is updated": before}
    for factor, text in ((dp, "multiplied by dp"), (1 / dp, "divided by dp once more")):
        if dp > 1:
            likes[f"what gradients {text} would give"] = adam_alone(t, 1, factor)[0]
    for other in range(tp):
        if other != t:
            likes[f"what belongs to tp rank {other}"] = adam_alone(other, 1)[0]
    if tp > 1:
        likes["put together from pieces of all ranks: the replicas are the dp group, not the world"] = mixed(dp, tp)
    return likes


verdict_zero_one((2, 1, 1))
### BEGIN HIDDEN TESTS
verdict_zero_one((1, 1, 1))
verdict_zero_one((3, 1, 1))
verdict_zero_one((2, 1, 2), steps=4)
### END HIDDEN TESTS

# %% test="zero_one_memory" points=1
def probe_zero_one_memory(layout):
    mesh = Mesh(*layout)
    t = mesh.coordinate("tp")
    parameters = own_parameters(t, {"w": (60, 20), "v": (401,)})
    give_gradients(parameters, 0, t)
    with LiveBytes() as live:
        optimizer = ZeroOne(parameters, mesh.group("dp"), lr=LR, eps=EPS)
        for _ in range(2):
            optimizer.step()
        gc.collect()
        kept = live.now()
    return {"kept": kept, "numel": sum(p.numel() for p in parameters.values()), "alive": optimizer is not None}


def verdict_zero_one_memory(layout):
    dp, numel = layout[0], 1601
    run = launch(probe_zero_one_memory, layout, ranks=world(layout), timeout=20)
    moments, copy = 2 * math.ceil(numel / dp), numel + math.ceil(numel / dp)
    for rank, got in enumerate(run.values):
        elements = got["kept"] / 8
        assert elements >= 0.9 * moments, (
            f"ZeroOne, layout {layout}: rank {rank} keeps {elements:.0f} elements after two steps; the two moments of "
            f"its {math.ceil(numel / dp)} are already {moments}. Is this Adam?"
        )
        whole = ": this is the state of all elements, not of 1/dp of them" if elements >= 2 * numel else ""
        assert elements <= moments + copy + 64, (
            f"ZeroOne, layout {layout}: rank {rank} keeps {elements / numel:.2f} values for each of {numel} elements "
            f"between steps{whole}; two moments of 1/{dp} and one copy are {(moments + copy) / numel:.2f}."
        )
        need = {"dp": (2 * 8 * (numel - math.ceil(numel / dp)), "new values of what others own, in two steps")}
        received = bytes_per_axis(run.trace, rank, layout, "received")
        meshes.axis_needs(received, need, f"ZeroOne, layout {layout}, rank {rank}")


verdict_zero_one_memory((4, 1, 1))
### BEGIN HIDDEN TESTS
verdict_zero_one_memory((6, 1, 1))
### END HIDDEN TESTS

# %% [markdown]
# ## mesh_step
#
# `mesh_step(stage, mesh, optimizer, tokens, targets, micro_batches, max_norm=None)` does one training step
# and returns the loss, a float, on **every** rank.
#
# - `tokens`, `targets` [B,S]: the **whole** batch, the same on all ranks. Replica d works on rows d*B/dp to
#   (d+1)*B/dp - 1, in `micro_batches` equal micro-batches, in order. B divides by dp * micro_batches, and
#   every target counts, so that means of means are the mean.
# - The loss is the mean cross-entropy over the whole batch before the update; the update is the one that
#   one process makes from the gradient of that loss. Start from no gradients.
# - Then clip, when `max_norm` is given: multiply all gradients by `min(1, max_norm / (norm + 1e-6))`, with
#   the norm of the whole model. Then `optimizer.step()`. The optimizer (any with `step()`) holds this
#   rank's parameters.
# - `run_gpipe(stage, mesh, micro_batches, loss_of)` runs a list of token tensors [b,S] through the
#   pipeline, forward and backward, and adds to the gradients. `loss_of(k, logits)` is called on the last
#   stage and returns the loss of micro-batch k, from which the backward pass starts **as it is**. It
#   returns the list of these losses on the last stage, and `[]` elsewhere.
#
# *Example*, dp = 2, two micro-batches, losses 4 and 2 on replica 0, 6 and 4 on replica 1: the loss is 4 on
# all ranks.
#
# The tests also look at what came from other ranks: activations and their gradients along pp, sums along tp and
# dp. A step that one rank could do alone is not what is wanted. *Size:* about 18 lines.

# %% solution="mesh_step"
def mesh_step(stage, mesh, optimizer, tokens, targets, micro_batches, max_norm=None) -> float:
    ### BEGIN SOLUTION
    d, dp = mesh.coordinate("dp"), mesh.size("dp")
    parts = tokens.chunk(dp)[d].chunk(micro_batches)
    wanted = targets.chunk(dp)[d].chunk(micro_batches)
    for parameter in stage.parameters():
        parameter.grad = None

    def loss_of(k, logits):
        return F.cross_entropy(logits.flatten(0, 1), wanted[k].flatten()) / micro_batches

    loss = torch.tensor(sum(run_gpipe(stage, mesh, parts, loss_of)), dtype=torch.float64)
    sync_gradients(stage, mesh)
    if max_norm is not None:
        factor = min(1.0, max_norm / (mesh_norm(stage, mesh) + 1e-6))
        for parameter in stage.parameters():
            parameter.grad *= factor
    optimizer.step()
    for axis in ("pp", "dp"):  # other stages bring 0
        dist.all_reduce(loss, group=mesh.group(axis))
    return loss.item() / dp
    ### END SOLUTION


# %% shared="training"
def text(steps, rows=12, length=8):
    """The first batches of the text, as a list of tokens and targets."""
    return list(batches(rows, length, steps, seed=1))


def on_mesh(step, config, layout, data, micro_batches, max_norm, optimizer, dtype=torch.float64):
    """Train with `step` on this rank; the losses, and what the optimizer kept of its parameters."""
    mesh = Mesh(*layout)
    stage = ShardedStage(whole_model(config, dtype), mesh)
    chosen = optimizer(stage, mesh)
    losses = [step(stage, mesh, chosen, tokens, targets, micro_batches, max_norm) for tokens, targets in data]
    return {"losses": losses, "after": getattr(chosen, "after", None)}


class PlainSGD:
    """w -= 0.5 grad; keeps the parameters after each step."""

    def __init__(self, stage, mesh):
        self.parameters, self.after = dict(stage.named_parameters()), []

    def step(self):
        for parameter in self.parameters.values():
            parameter.data -= 0.5 * parameter.grad
        self.after.append({name: p.detach().clone() for name, p in self.parameters.items()})


def one_process(config, data, max_norm=None, *, sgd=False, factor=1.0, dtype=torch.float64):
    """The oracle: one process on the whole batch. Its losses and its parameters, whole, after the last step."""
    model = whole_model(config, dtype)
    parameters = list(model.parameters())
    optimizer = torch.optim.SGD(parameters, lr=0.5) if sgd else torch.optim.Adam(parameters, lr=LR, eps=EPS)
    for parameter in parameters if factor != 1 else []:
        parameter.register_hook(lambda grad: grad * factor)
    losses = train(model, data, optimizer, max_norm=max_norm)
    return losses, {name: p.detach() for name, p in model.named_parameters()}


def cut_up(config, layout, wholes):  # runs on ranks of its own: what each rank holds of each set of whole tensors
    mesh = Mesh(*layout)
    placements = ShardedStage(whole_model(config), mesh).placements
    return [{name: mine(whole[name], its, mesh) for name, its in placements.items()} for whole in wholes]


def hold_step_traffic(trace, config, layout, steps, itemsize, where, rows=12, length=8):
    """Each rank got from others what it cannot do without, in `steps` steps on batches of text()."""
    dp, pp, tp = layout
    crossing = rows // dp * length * config.hidden * itemsize * steps
    for rank in range(world(layout)):
        stage = rank // tp % pp
        needs = {
            "pp": (crossing * ((stage > 0) + (stage < pp - 1)), "activations from one side, gradients from the other"),
            "tp": (2 * (config.layers // pp) * crossing * (tp > 1), "the other shares of what its blocks compute"),
            "dp": (config.num_parameters() // (2 * pp * tp) * itemsize * steps * (dp > 1), "gradients of the replicas"),
        }
        meshes.axis_needs(bytes_per_axis(trace, rank, layout, "received"), needs, f"{where}, rank {rank}")


def factor_suspects(layout, micro_batches):
    """sentence -> the factor that a mistake leaves on every gradient."""
    dp, pp, tp = layout
    by_world = f"divided by the world size {world(layout)}, not by dp = {dp}"
    if dp == pp * tp:
        by_world = f"divided by {dp} once too often: by the world size {world(layout)} in place of dp, or by dp twice"
    return {
        f"summed over the {micro_batches} micro-batches: each loss must be divided by their number": micro_batches,
        f"divided by the {micro_batches} micro-batches twice": 1 / micro_batches,
        f"summed over the {dp} replicas of dp, never divided": dp,
        by_world: 1 / (pp * tp),
        f"neither divided by the {micro_batches} micro-batches nor by the {dp} replicas": micro_batches * dp,
        f"divided by the {dp} replicas twice": 1 / dp,
        "every gradient is there twice: were those of the step before cleared?": 2,
    }


# %% test="mesh_step_gradients" points=1
def probe_step_gradients(config, layout, data, micro_batches):
    return on_mesh(mesh_step, config, layout, data, micro_batches, None, PlainSGD)


def verdict_step_gradients(config, layout, micro_batches):
    data, ranks = text(2), world(layout)
    where = f"mesh_step, layout {layout}, {micro_batches} micro-batches, SGD"
    run = launch(probe_step_gradients, config, layout, data, micro_batches, ranks=ranks, timeout=20)
    start = {name: p.detach() for name, p in whole_model(config).named_parameters()}
    wholes = [start, *(one_process(config, data[:steps], sgd=True)[1] for steps in (1, 2))]
    cuts = check.reference(cut_up, config, layout, wholes, ranks=ranks).values
    for step in (0, 1):
        for rank, value in enumerate(run.values):
            assert len(value["after"]) == 2, f"{where}: optimizer.step() ran {len(value['after'])} times in two steps."
            begun, wanted, got = cuts[rank][0], cuts[rank][step + 1], value["after"][step]
            moved, want = ({name: (begun[name] - x[name]) / 0.5 for name in x} for x in (got, wanted))
            what = f"{where}, rank {rank}, " + ("gradient used in step 2" if step else "gradient used in step 1")
            check.agree(moved, want, what, suspects=factor_suspects(layout, micro_batches), rtol=1e-7, atol=1e-9)
    losses = one_process(config, data, sgd=True)[0]
    meshes.losses([value["losses"] for value in run.values], losses, where, rtol=1e-9)
    hold_step_traffic(run.trace, config, layout, 2, 8, where)


verdict_step_gradients(TIED, (2, 2, 1), 3)
### BEGIN HIDDEN TESTS
verdict_step_gradients(TIED, (1, 1, 1), 4)
verdict_step_gradients(UNTIED, (3, 1, 1), 1)
verdict_step_gradients(TIED, (1, 2, 2), 3)
### END HIDDEN TESTS

# %% test="mesh_step_losses" points=1
def probe_step_losses(config, layout, data, micro_batches, max_norm, dtype):
    def zero_one(stage, mesh):
        return ZeroOne(dict(stage.named_parameters()), mesh.group("dp"), lr=LR, eps=EPS)

    return on_mesh(mesh_step, config, layout, data, micro_batches, max_norm, zero_one, dtype)["losses"]


def verdict_step_losses(config, layout, micro_batches, max_norm, steps, dtype=torch.float64, rtol=1e-9):
    data = text(steps)
    options = (config, layout, data, micro_batches, max_norm, dtype)
    run = launch(probe_step_losses, *options, ranks=world(layout), timeout=20)
    wanted = one_process(config, data, max_norm, dtype=dtype)[0]
    where = f"mesh_step, layout {layout}, {dtype}, max_norm {max_norm}"
    meshes.losses(run.values, wanted, where, rtol, lambda: mistaken(config, layout, data[:3], micro_batches, max_norm))
    hold_step_traffic(run.trace, config, layout, steps, dtype.itemsize, where)


def mistaken(config, layout, data, micro_batches, max_norm):
    """sentence -> the losses of one process that makes this mistake."""
    right = one_process(config, data, max_norm)[0]
    found = {"The gradients were not clipped.": one_process(config, data)[0]}
    for text, factor in factor_suspects(layout, micro_batches).items():
        found[f"Gradients: {text}."] = one_process(config, data, max_norm, factor=factor)[0]
    return {text: losses for text, losses in found.items() if losses != right}


verdict_step_losses(TIED, (2, 1, 2), 2, 0.6, steps=4)
### BEGIN HIDDEN TESTS
norms = one_process(TIED, text(8), max_norm=0.6)[0]
assert norms != one_process(TIED, text(8))[0]  # the limit is reached, or nothing was tested
verdict_step_losses(TIED, (2, 2, 2), 2, 0.6, steps=8)
verdict_step_losses(UNTIED, (2, 2, 1), 2, None, steps=6, dtype=torch.float32, rtol=1e-4)
### END HIDDEN TESTS

# %% [markdown]
# # Part 4. Another machine tomorrow
#
# ## save and load
#
# A job that ran on layout (2, 2, 2) should go on at (1, 4, 1) when half of the machine is gone. So what is
# saved must not know the layout: **whole tensors by name**.
#
# `save(stage, optimizer, mesh)` runs on all ranks and returns a dictionary: what *this* rank would write to
# its file; `{}` where it writes nothing. All of them together hold each of these **exactly once**:
#
# - `NAME` for every parameter of the whole model, whole; `NAME/exp_avg` and `NAME/exp_avg_sq`, in the shape
#   of the whole parameter; and `"step"`.
#
# `load(stage, optimizer, mesh, saved)` gets all of it in one dictionary and puts this rank's parts into
# `stage` (in place) and `optimizer` (a fresh `ZeroOne`), for **this** mesh, which may have another layout.
#
# *Example*, layout (2, 1, 2), a `down.weight` of shape [8, 16] cut along dim 1: four ranks hold [8, 8]
# each, two different ones; one rank writes [8, 16].
#
# *Target:* a shard travels along tp only, nothing over the whole world. *Size:* about 16 and 8 lines.

# %% solution="save"
def save(stage: ShardedStage, optimizer, mesh: Mesh) -> dict[str, torch.Tensor]:
    ### BEGIN SOLUTION
    state = optimizer.state()  # every rank of the dp group joins
    held = {name: parameter.detach() for name, parameter in stage.named_parameters()}
    written = {}
    for name, tensor in {**held, **state}.items():
        if name == "step":
            continue
        placement = stage.placements[name.split("/")[0]]
        if placement.kind == "sharded":
            pieces = [torch.empty_like(tensor) for _ in mesh.ranks("tp")]
            dist.all_gather(pieces, tensor.contiguous(), group=mesh.group("tp"))
            tensor = torch.cat(pieces, placement.dim)
        if not (placement.tied and not stage.first):
            written[name] = tensor.clone()
    if stage.first:
        written["step"] = state["step"]
    return written if mesh.coordinate("dp") == mesh.coordinate("tp") == 0 else {}
    ### END SOLUTION


# %% solution="load"
def load(stage: ShardedStage, optimizer, mesh: Mesh, saved: dict[str, torch.Tensor]) -> None:
    ### BEGIN SOLUTION
    def part(key, name):
        return shard_of(saved[key], stage.placements[name].dim, mesh.coordinate("tp"), mesh.size("tp"))

    state = {"step": saved["step"]}
    for name, parameter in stage.named_parameters():
        parameter.data.copy_(part(name, name))
        for key in (f"{name}/exp_avg", f"{name}/exp_avg_sq"):
            state[key] = part(key, name)
    optimizer.load_state(state)
    ### END SOLUTION


# %% shared="saving"
def stepped(config, salts, saved=None):
    """The oracle: torch's Adam in one process, after a step with the gradients of each salt; all by name."""
    model = whole_model(config)
    adam = torch.optim.Adam(model.parameters(), lr=LR, eps=EPS)
    for salt in salts:
        for name, parameter in model.named_parameters():
            parameter.grad = draw(parameter.shape, name, salt)
        adam.step()
    result = {"step": torch.tensor(float(len(salts)))}
    for name, parameter in model.named_parameters():
        result[name] = parameter.detach().clone()
        for key in ("exp_avg", "exp_avg_sq"):
            result[f"{name}/{key}"] = adam.state[parameter][key].clone()
    return result


def zero_one_for(kind, config, mesh):
    """A stage and an optimizer of class `kind` for its parameters."""
    stage = ShardedStage(whole_model(config), mesh)
    return stage, kind(dict(stage.named_parameters()), mesh.group("dp"), lr=LR, eps=EPS)


# %% test="save_once" points=1
def probe_save(config, layout, salts):
    mesh = Mesh(*layout)
    stage, optimizer = zero_one_for(ZeroOne, config, mesh)
    for salt in salts:
        put_synced(stage, mesh, salt)
        optimizer.step()
    return save(stage, optimizer, mesh)


def verdict_save(config, layout, salts=(0, 1)):
    run = launch(probe_save, config, layout, salts, ranks=world(layout), timeout=20)
    parts = [
        {name: x.double() if name == "step" and isinstance(x, torch.Tensor) else x for name, x in part.items()}
        if isinstance(part, dict) else part for part in run.values
    ]  # fmt: skip
    wanted = stepped(config, salts)
    wanted["step"] = wanted["step"].double()
    meshes.written_once(parts, wanted, f"save, layout {layout}", rtol=1e-9)
    for rank in range(world(layout)):
        most = dict.fromkeys(("world", "other"), (256, "shards come together along tp, optimizer state along dp"))
        meshes.axis_bytes(bytes_per_axis(run.trace, rank, layout), most, f"save, layout {layout}", rank)


verdict_save(TIED, (2, 1, 2))
### BEGIN HIDDEN TESTS
verdict_save(TIED, (1, 1, 1))
verdict_save(TIED, (1, 2, 2))
verdict_save(DEEP, (1, 3, 1), salts=(4,))
### END HIDDEN TESTS

# %% test="load_continues" points=1
def probe_load(config, layout, saved, salts):
    mesh = Mesh(*layout)
    stage, optimizer = zero_one_for(ZeroOne, config, mesh)
    load(stage, optimizer, mesh, saved)
    loaded = {name: p.detach().clone() for name, p in stage.named_parameters()}
    for salt in salts:
        put_synced(stage, mesh, salt)
        optimizer.step()
    return {"loaded": loaded, "after": {name: p.detach() for name, p in stage.named_parameters()}}


def forgetful(config, before, after):
    """What Adam gives that has the saved parameters and starts with no state."""
    model = whole_model(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(before[name])
    adam = torch.optim.Adam(model.parameters(), lr=LR, eps=EPS)
    for salt in after:
        for name, parameter in model.named_parameters():
            parameter.grad = draw(parameter.shape, name, salt)
        adam.step()
    return {name: p.detach() for name, p in model.named_parameters()}


def verdict_load(config, layout, before=(0, 1), after=(2, 3)):
    saved, ranks = stepped(config, before), world(layout)
    run = launch(probe_load, config, layout, saved, after, ranks=ranks, timeout=20)
    start = {name: p.detach() for name, p in whole_model(config).named_parameters()}
    wholes = [saved, stepped(config, before + after), forgetful(config, saved, after), start]
    wholes = [{name: whole[name] for name in start} for whole in wholes]
    by_rank = check.reference(cut_up, config, layout, wholes, ranks=ranks).values
    for rank, (got, cuts) in enumerate(zip(run.values, by_rank, strict=True)):
        where = f"load, layout {layout}, rank {rank}, parameters"
        unread = {"what the fresh model had: nothing was loaded": cuts[3]}
        check.agree(got["loaded"], cuts[0], f"{where} right after", resembles=unread, rtol=1e-9, atol=1e-9)
        lost = {"what a new Adam would give: the saved moments or the step count are not used": cuts[2],
                "as it was loaded: the optimizer does not work on the loaded values": cuts[0]}  # fmt: skip
        what = f"{where} {len(after)} steps later"
        check.agree(got["after"], cuts[1], what, resembles=lost, rtol=1e-9, atol=1e-9)


verdict_load(TIED, (1, 2, 1))
### BEGIN HIDDEN TESTS
verdict_load(TIED, (1, 1, 1))
verdict_load(TIED, (2, 1, 2))
verdict_load(UNTIED, (1, 2, 2))
### END HIDDEN TESTS

# %% [markdown]
# The next cell is not graded. It trains five steps on one layout, puts what all ranks would write into one
# dictionary, and goes on for five steps at another layout. *Before you run it:* what would you see if
# `load` forgot the moments of Adam?

# %%
def train_and_save(layout, data, saved=None):
    mesh = Mesh(*layout)
    stage, optimizer = zero_one_for(ZeroOne, TIED, mesh)
    if saved is not None:
        load(stage, optimizer, mesh, saved)
    losses = [mesh_step(stage, mesh, optimizer, tokens, targets, 2, 0.6) for tokens, targets in data]
    return {"losses": losses, "written": save(stage, optimizer, mesh)}


def move_house(first, second):
    data = text(10)
    begun = launch(train_and_save, first, data[:5], ranks=world(first)).values
    saved = {name: x for rank in begun for name, x in rank["written"].items()}
    ended = launch(train_and_save, second, data[5:], saved, ranks=world(second)).values
    alone = one_process(TIED, data, max_norm=0.6)[0]
    for step, (got, want) in enumerate(zip(begun[0]["losses"] + ended[0]["losses"], alone, strict=True)):
        layout = first if step < 5 else second
        print(f"step {step + 1:2} on {layout}: {got:.10f}   one process: {want:.10f}   off by {abs(got - want):.0e}")


move_house((2, 2, 1), (1, 1, 2))

# %% [markdown]
# # Part 5. Which shape?
#
# ## best_split
#
# 64 GPUs can be split in many ways, and few of them are good. `best_split(job, memory, seconds)` returns
# the **cheapest legal** `Split(dp, pp, tp, micro_batches)`, or `None` where there is none. `memory(split)`
# is the bytes that one GPU needs, `seconds(split)` the time of a step; both are functions that you call. A
# split is legal when
#
# 1. dp * pp * tp is `job.gpus`: all are used;
# 2. tp divides `job.gpus_per_node`: a tensor-parallel group stays inside one node (节点), on its fast links;
# 3. tp divides `job.heads`, `job.kv_heads` and `job.ffn`;
# 4. pp divides `job.layers`;
# 5. dp * micro_batches divides `job.batch`;
# 6. `memory(split)` is at most `job.memory_limit`.
#
# Any of the cheapest, where several cost the same. The costs may be anything: do not count on "more tp is
# slower", or on the best value of one axis being best together with the others. Look at all of them; there
# are a few hundred.
#
# *Example*: 2 GPUs in one node, 2 layers, 1 head, batch 2: legal are (dp 2, pp 1, tp 1, 1 micro-batch) and
# (dp 1, pp 2, tp 1) with 1 or 2 micro-batches, and nothing else (tp = 2 does not divide 1 head).
#
# *Size:* about 14 lines.

# %% shared="split"
@dataclass(frozen=True)
class Split:
    """A layout and the number of micro-batches that each replica works through."""

    dp: int
    pp: int
    tp: int
    micro_batches: int


@dataclass(frozen=True)
class Job:
    """A model, a batch and a machine. memory_limit in bytes a GPU."""

    gpus: int
    gpus_per_node: int
    layers: int
    heads: int
    kv_heads: int
    ffn: int
    batch: int
    memory_limit: float
    hidden: int = 4096
    seq: int = 4096
    parameters: float = 7e9


def model_memory(job: Job, split: Split) -> float:
    """Bytes a GPU needs: 2 + 2 for bf16 weights and gradients, 12/dp for Adam's fp32 state under ZeRO-1, for each of
    its parameters; and under 1F1B the activations of up to pp micro-batches, 34 bytes for each of S b H a layer."""
    state = job.parameters / (split.pp * split.tp) * (4 + 12 / split.dp)
    rows = job.batch / (split.dp * split.micro_batches) * min(split.pp, split.micro_batches)
    return state + 34 * job.seq * rows * job.hidden * job.layers / (split.pp * split.tp)


def model_seconds(job: Job, split: Split, flops: float = 400e12, node: float = 300e9, net: float = 25e9) -> float:
    """Seconds of a step: 6 N FLOPs a token at `flops` a GPU, stretched by the bubble (p-1)/m, four all-reduces a layer
    and micro-batch along tp at `node` bytes/s, messages along pp and one all-reduce along dp at `net` bytes/s."""
    work = 6 * job.parameters * job.batch * job.seq / (job.gpus * flops)
    activation = 2 * job.batch / split.dp * job.seq * job.hidden  # bytes of a replica's rows, bf16
    tp = 4 * job.layers / split.pp * 2 * (split.tp - 1) / split.tp * activation / node
    pp = (2 * activation / split.tp / net) if split.pp > 1 else 0.0
    dp = 2 * (split.dp - 1) / split.dp * 2 * job.parameters / (split.pp * split.tp) / net
    return (work + tp) * (1 + (split.pp - 1) / split.micro_batches) + pp + dp


def bumpy(seed: int, split: Split) -> float:
    """A number from 0 to 999 without any pattern in it."""
    return float(zlib.crc32(repr((seed, *dataclasses.astuple(split))).encode()) % 1000)


# %% solution="best_split"
def best_split(job: Job, memory, seconds) -> Split | None:
    ### BEGIN SOLUTION
    legal = []
    for tp, pp in product(range(1, job.gpus_per_node + 1), range(1, job.layers + 1)):
        if job.gpus % (tp * pp) or job.layers % pp:
            continue
        if any(n % tp for n in (job.gpus_per_node, job.heads, job.kv_heads, job.ffn)):
            continue
        dp = job.gpus // (tp * pp)
        splits = [Split(dp, pp, tp, m) for m in range(1, job.batch // dp + 1) if job.batch % (dp * m) == 0]
        legal += [split for split in splits if memory(split) <= job.memory_limit]
    return min(legal, key=seconds, default=None)
    ### END SOLUTION


# %% shared="splits"
def why_illegal(job, memory, numbers):
    """In words, which rule a split breaks; None for a legal one."""
    split = Split(*numbers)
    dp, pp, tp, m = numbers
    if dp * pp * tp != job.gpus:
        return f"{dp} * {pp} * {tp} = {dp * pp * tp}, and there are {job.gpus} GPUs."
    if job.gpus_per_node % tp:
        return f"tp = {tp} does not divide the {job.gpus_per_node} GPUs of a node."
    for name in ("heads", "kv_heads", "ffn"):
        if getattr(job, name) % tp:
            return f"tp = {tp} does not divide {name} = {getattr(job, name)}."
    if job.layers % pp:
        return f"pp = {pp} does not divide the {job.layers} layers."
    if job.batch % (dp * m):
        return f"dp * micro_batches = {dp * m} does not divide the batch of {job.batch}."
    if memory(split) > job.memory_limit:
        return f"it needs {memory(split):g} bytes, and a GPU has {job.memory_limit:g}."
    return None


def verdict_splits(probe, cases):
    """Hold the found split of each (job, seeds of its costs or None for the model's) to a look at all of them."""
    found = launch(probe, cases, ranks=None, timeout=20).value
    for got, (job, seeds) in zip(found, cases, strict=True):
        memory, seconds = costs(job, seeds)
        divisors, batches_of = (
            [n for n in range(1, number + 1) if number % n == 0] for number in (job.gpus, job.batch)
        )
        pairs = [(dp, pp, job.gpus // dp // pp) for dp in divisors for pp in divisors if job.gpus % (dp * pp) == 0]
        numbers = [(*layout, m) for layout in pairs for m in batches_of]
        legal = {n: seconds(Split(*n)) for n in numbers if why_illegal(job, memory, n) is None}
        if got is not None:
            assert all(hasattr(got, axis) for axis in ("dp", "pp", "tp", "micro_batches")), (
                f"best_split returned {type(got).__name__}; a Split, or None, is wanted."
            )
            got = (got.dp, got.pp, got.tp, got.micro_batches)
        kind = "costs of the model" if seeds is None else "costs without a pattern"
        where = f"best_split ({job.gpus} GPUs, {job.layers} layers, {job.heads} heads, batch {job.batch}, {kind})"
        meshes.split_found(got, legal, partial(why_illegal, job, memory), where)


def costs(job, seeds):
    """The two functions that best_split is called with."""
    if seeds is None:
        return partial(model_memory, job), partial(model_seconds, job)
    return partial(bumpy, seeds[0]), partial(bumpy, seeds[1])


# %% test="best_split_legal" points=1
def probe_split_legal(cases):
    return [best_split(job, *costs(job, seeds)) for job, seeds in cases]


roomy = Job(gpus=8, gpus_per_node=4, layers=6, heads=4, kv_heads=2, ffn=12, batch=16, memory_limit=1000)
verdict_splits(probe_split_legal, [(roomy, (1, 2)), (dataclasses.replace(roomy, memory_limit=300), (3, 4))])
### BEGIN HIDDEN TESTS
jobs = [
    dataclasses.replace(roomy, memory_limit=-1),  # nothing fits
    dataclasses.replace(roomy, gpus=12, batch=24, layers=4, memory_limit=500),
    dataclasses.replace(roomy, gpus=12, gpus_per_node=6, heads=6, kv_heads=6, batch=36, memory_limit=700),
    dataclasses.replace(roomy, ffn=13, heads=8, kv_heads=8, memory_limit=900),
    dataclasses.replace(roomy, gpus_per_node=2, heads=8, kv_heads=8, ffn=16),  # tp = 4 would divide all but the node
    dataclasses.replace(roomy, gpus=1, batch=1),
    dataclasses.replace(roomy, gpus=7, batch=14, layers=5, memory_limit=600),  # only dp = 7 is possible
]
verdict_splits(probe_split_legal, [(job, (seed, 50 + seed)) for job in jobs for seed in range(5)])
### END HIDDEN TESTS

# %% test="best_split_cheapest" points=1
def probe_split_cheapest(cases):
    return [best_split(job, *costs(job, seeds)) for job, seeds in cases]


seven = Job(gpus=64, gpus_per_node=8, layers=32, heads=32, kv_heads=8, ffn=11008, batch=256, memory_limit=80e9)
verdict_splits(probe_split_cheapest, [(seven, None)])
### BEGIN HIDDEN TESTS
gpt3 = {"layers": 96, "heads": 96, "kv_heads": 96, "ffn": 49152, "hidden": 12288, "seq": 2048, "parameters": 175e9}
large = dataclasses.replace(seven, gpus=1536, batch=1536, **gpt3)
for seed in range(4):
    free = dataclasses.replace(seven, memory_limit=1000)
    verdict_splits(probe_split_cheapest, [(free, (seed, 9 + seed))])
verdict_splits(probe_split_cheapest, [(dataclasses.replace(seven, memory_limit=16e9), None), (large, None)])
### END HIDDEN TESTS

# %% [markdown]
# ## Measure it
#
# Not graded. One step of yours on 2 x 2 x 2 ranks: how many bytes does rank 0 send along each axis? *Before
# you run it* put the three axes in order, for this small model and for a large one: along dp a rank sends
# its gradients once, along pp the activations of its rows, [rows, S, H], along tp four times that for each
# of its layers, each 2(p-1)/p times.

# %%
def one_step_traffic(data, rows_of):
    mesh = Mesh(2, 2, 2)
    stage, optimizer = zero_one_for(ZeroOne, TIED, mesh)
    (tokens, targets), = data
    mesh_step(stage, mesh, optimizer, tokens[:rows_of], targets[:rows_of], 2)
    return sum(p.numel() for p in stage.parameters())


def plot_traffic():
    import matplotlib.pyplot as plt

    sizes, data = [4, 8, 12], text(1)
    measured = {axis: [] for axis in AXES}
    for rows in sizes:
        run = launch(one_step_traffic, data, rows, ranks=8)
        for axis, moved in bytes_per_axis(run.trace, 0, (2, 2, 2)).items():
            measured.setdefault(axis, []).append(moved)
    held = run.values[0]
    predicted = {"dp": [8 * held * 1.5] * 3, "pp": [8 * (rows / 2) * 8 * TIED.hidden for rows in sizes]}
    predicted["tp"] = [4 * moved for moved in predicted["pp"]]
    figure, ax = plt.subplots(figsize=(6, 3.5))
    for axis, color in zip(AXES, ("tab:blue", "tab:orange", "tab:green"), strict=True):
        ax.plot(sizes, measured[axis], "o", color=color, label=f"{axis}, measured")
        ax.plot(sizes, predicted[axis], "--", color=color, label=f"{axis}, predicted")
    ax.set(xlabel="rows in the batch", ylabel="bytes sent by rank 0", yscale="log", title="One step on 2 x 2 x 2 ranks")
    ax.legend(fontsize=8)
    plt.show()


plot_traffic()

# %% [markdown]
# The dots of dp lie on their line (1.5 times the gradients: an all-reduce, 1, and the all-gather of the new
# values, 1/2) and do not depend on the batch. Those of pp and tp grow with it, and lie above their lines by
# what `sync_gradients` sends there: the tied embedding along pp, k_proj and v_proj along tp. In a large
# model the vocabulary is a small part of all that; here it is most of the model.

# %% [markdown]
# # Part 6. Questions
#
# The visible tests show only whether your answer has the right form.
#
# ## question_sizes
#
# Return a dictionary of whole numbers.
#
# A cluster of 64 GPUs is split into TP = 4, PP = 2, DP = 8.
#
# 1. How many tensor-parallel groups (`"tp_groups"`), pipelines (`"pp_groups"`) and data-parallel groups
#    (`"dp_groups"`) are there?
#
# GPT-3 with 175 * 10^9 parameters was trained with TP = 8 inside each node, PP = 8 and DP = 60.
#
# 2. How many GPUs (`"gpus"`), and how many nodes of 8 (`"nodes"`)?
# 3. How many data-parallel groups (`"gpt3_dp_groups"`)? How many parameters does one GPU hold, if they
#    divide evenly (`"gpt3_parameters"`)?
# 4. With this lab's numbering (dp, pp, tp; tp fastest), which ranks are next to rank 1000 in its pipeline:
#    the one before (`"before"`) and the one after (`"after"`)?

# %% solution="question_sizes"
def question_sizes() -> dict[str, int]:
    ### BEGIN SOLUTION
    return {
        "tp_groups": 16,
        "pp_groups": 32,
        "dp_groups": 8,
        "gpus": 3840,
        "nodes": 480,
        "gpt3_dp_groups": 64,
        "gpt3_parameters": 2734375000,
        "before": 992,
        "after": 1008,
    }
    ### END SOLUTION


# %% test="question_sizes_values" points=1
answer = check.answer(launch(lambda: question_sizes(), ranks=None, timeout=10).value, "question_sizes")
for key in ("tp_groups", "pp_groups", "dp_groups", "gpus", "nodes", "gpt3_dp_groups", "gpt3_parameters"):
    check.has_number(answer, key, "question_sizes")
for key in ("before", "after"):
    check.has_number(answer, key, "question_sizes")
### BEGIN HIDDEN TESTS
small, gpt = torch.arange(64).reshape(8, 2, 4), torch.arange(60 * 8 * 8).reshape(60, 8, 8)
dp, pp, tp = (int(i) for i in (gpt == 1000).nonzero()[0])
wanted = {"tp_groups": small[:, :, 0].numel(), "pp_groups": small[:, 0].numel(), "dp_groups": small[0].numel()}
wanted |= {"gpus": gpt.numel(), "nodes": gpt.numel() // 8, "gpt3_dp_groups": gpt[0].numel()}
wanted |= {"gpt3_parameters": 175 * 10**9 // gpt[0].numel()}
wanted |= {"before": int(gpt[dp, pp - 1, tp]), "after": int(gpt[dp, pp + 1, tp])}
check.answers_agree(answer, wanted, "question_sizes")
### END HIDDEN TESTS

# %% [markdown]
# ## question_axes
#
# Return a dictionary with one letter, as a string, for each key.
#
# `"dp"`, `"tp"`, `"pp"`, `"zero"`: what travels along this axis in a training step, and when?
#
# - A: activations forward and their gradients backward, from a stage to its neighbour, for each micro-batch.
# - B: all-reduces inside every layer, forward and backward: of partial sums after the row-parallel product,
#   and of the input's gradient before the column-parallel one.
# - C: the gradients of the parameters, once a step, from the backward pass until the update.
# - D: parameters gathered before they are used, gradients reduced and scattered afterwards.
#
# `"inside"`: which axis belongs inside a node, on its fastest links?
#
# - A: dp, since gradients are the largest tensors.
# - B: pp, since every stage waits for its neighbour.
# - C: tp, since every layer waits for its all-reduces, many times in a step.
# - D: it does not matter; the number of bytes is the same.
#
# `"new_group"`: rank 5 is in no group of axis tp that contains rank 0. When the groups are made, rank 5
#
# - A: must not call `new_group` for rank 0's group, or it would join it.
# - B: calls `new_group` for rank 0's group too, in the same order as all ranks.
# - C: calls it for that group only if the backend is gloo.
#
# `"large_buckets"`, `"small_buckets"`: gradients are sent in buckets (梯度桶) while the backward pass goes on.
# What goes wrong when buckets are very large; when they are very small?
#
# - A: the latency of every message is paid too often.
# - B: a bucket is full only late, so its all-reduce starts late, and there is nothing left to hide it behind.
# - C: the gradients become wrong.
#
# `"hidden"`: a step computes 60 ms of backward, and its all-reduces take 40 ms, in buckets; the first
# bucket is full after 10 ms. Computation and communication do not slow each other down. How long at best
# from the start of the backward pass to the last all-reduce, if a last bucket of 4 ms is full only when the
# backward pass ends?
#
# - A: 100 ms; B: 64 ms; C: 60 ms; D: 50 ms.
#
# `"automatic"`: what does automatic parallelism (自动并行), such as Alpa, search over?
#
# - A: learning rates and batch sizes that converge fastest.
# - B: how operators are cut, where stages begin, which devices they get, how many micro-batches: for the
#   least time that fits into memory.
# - C: the fastest kernel for each operator on one GPU.

# %% solution="question_axes"
def question_axes() -> dict[str, str]:
    ### BEGIN SOLUTION
    return {
        "dp": "C",
        "tp": "B",
        "pp": "A",
        "zero": "D",
        "inside": "C",
        "new_group": "B",
        "large_buckets": "B",
        "small_buckets": "A",
        "hidden": "B",
        "automatic": "B",
    }
    ### END SOLUTION


# %% test="question_axes_letters" points=1
answer = check.answer(launch(lambda: question_axes(), ranks=None, timeout=10).value, "question_axes")
for key in ("dp", "tp", "pp", "zero", "inside", "hidden"):
    check.has_letter(answer, key, "ABCD", "question_axes")
for key in ("new_group", "large_buckets", "small_buckets", "automatic"):
    check.has_letter(answer, key, "ABC", "question_axes")
### BEGIN HIDDEN TESTS
wanted = {"dp": "C", "tp": "B", "pp": "A", "zero": "D", "inside": "C", "new_group": "B"}
wanted |= {"large_buckets": "B", "small_buckets": "A", "hidden": "B", "automatic": "B"}
check.answers_agree(answer, wanted, "question_axes")
### END HIDDEN TESTS

# %% [markdown]
# ## What to take away
#
# - Every parameter has a placement on each axis; what must be done with its gradient follows from it:
#   averaged along dp, summed where ranks hold shares, left alone where ranks hold copies of the whole.
# - A norm, a loss, a file: each element counts once. Whoever knows the placements knows who counts.
# - Groups are made by everybody, in one order; inside a group a rank has another number than in the world.
# - The shape of a machine is a search: the rules are short, the costs decide, and memory says no.
