"""Putting the traced process group into torch, in a rank's own process.

Registers the backend "traced", which wraps gloo for CPU tensors or nccl for CUDA ones, and wraps the two public
functions that name or make groups: `get_backend` answers with the inner backend's name, and `new_group`, which every
rank of the world must call in the same order, is journaled as the collective it is (gloo alone lets members-only
creation pass, nccl hangs).
"""

from __future__ import annotations

import functools
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from ..ranks.scheduling import patient_threads
from . import journal as jn
from .group import TracedGroup
from .recorder import Recorder

NAME = "traced"


def inner_backends(inner: str, opts: Any) -> list[tuple[torch.device, Any, Any]]:
    """The real backends of one group: (device, backend type, backend). nccl groups get gloo for CPU tensors too."""
    kind = dist.ProcessGroup.BackendType
    made = []
    if inner == "nccl":
        options = dist.ProcessGroupNCCL.Options()
        options._timeout = opts.timeout
        options.global_ranks_in_group = opts.global_ranks_in_group
        options.group_name = opts.group_id
        store = dist.PrefixStore("nccl/", opts.store)
        nccl = dist.ProcessGroupNCCL(store, opts.group_rank, opts.group_size, options)
        nccl._set_sequence_number_for_group()
        made.append((torch.device("cuda"), kind.NCCL, nccl))
    with patient_threads():
        gloo = dist.ProcessGroupGloo(opts.store, opts.group_rank, opts.group_size, timeout=opts.timeout)
    gloo._set_sequence_number_for_group()
    made.append((torch.device("cpu"), kind.GLOO, gloo))
    if inner == "gloo":
        made.append((torch.device("cuda"), kind.GLOO, gloo))
    return made


def register(inner: str) -> None:
    """Register the backend; the recorder of a rank is given later by `install`."""

    def create(opts: Any, _options: Any) -> TracedGroup:
        ranks = list(opts.global_ranks_in_group) or list(range(opts.group_size))
        plain = dist.ProcessGroup(opts.store, opts.group_rank, opts.group_size)
        group = TracedGroup(plain, opts.group_id, ranks, _recorder())
        group.has_nccl = inner == "nccl"
        kinds = dist.ProcessGroup.BackendType
        backends = inner_backends(inner, opts)
        for one in (plain, group):  # torch asks either for its devices
            for device, kind, backend in backends:
                one._register_backend(device, kind, backend)
            one._set_default_backend(kinds.NCCL if inner == "nccl" else kinds.GLOO)
        return group

    if NAME.upper() not in dist.Backend._plugins:
        dist.Backend.register_backend(NAME, create, extended_api=True, devices=["cpu", "cuda"])
    else:
        dist.Backend._plugins[NAME.upper()] = dist.Backend._BackendPlugin(create, True)


_state: dict[str, Any] = {}


def _recorder() -> Recorder:
    return _state["recorder"]


def install(writer: jn.Writer, inner: str) -> None:
    """Make `init_process_group("traced")` journal into `writer`, with `inner` ("gloo" or "nccl") underneath."""
    _state["recorder"] = Recorder(writer)
    register(inner)
    if "patched" not in _state:
        _state["patched"] = True
        _replace("get_backend", _named_backend(c10d.get_backend))
        _replace("new_group", _journaled_new_group(c10d.new_group))
    _state["inner"] = inner


def _replace(name: str, function: Any) -> None:
    setattr(c10d, name, function)
    setattr(dist, name, function)


def _named_backend(get_backend: Any) -> Any:
    @functools.wraps(get_backend)
    def named(*args: Any, **kwargs: Any) -> Any:
        backend = get_backend(*args, **kwargs)
        return _state["inner"] if backend == NAME else backend

    return named


def _journaled_new_group(new_group: Any) -> Any:
    @functools.wraps(new_group)
    def journaled(ranks: Any = None, *args: Any, **kwargs: Any) -> Any:
        world = dist.group.WORLD
        if kwargs.get("use_local_synchronization") or not isinstance(world, TracedGroup):
            return new_group(ranks, *args, **kwargs)
        if kwargs.get("backend") in ("gloo", "nccl"):
            kwargs["backend"] = NAME
        if not world.introduced:
            world.introduce()
        recorder = world.recorder
        members = "all" if ranks is None else ",".join(str(r) for r in sorted(ranks))
        index = recorder.add("new_group", world.number, None, 0, 0, 0, extra=members)
        before, failed = recorder.begin_wait(index, False), True
        try:
            group = new_group(ranks, *args, **kwargs)
            failed = False
            return group
        finally:
            recorder.end_wait(index, before, failed)

    return journaled
