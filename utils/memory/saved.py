"""What autograd keeps: the activations that a forward pass leaves behind for its backward pass.

Seen through `torch.autograd.graph.saved_tensors_hooks`, which gets every tensor that a node of the graph
saves, those of `ctx.save_for_backward` among them. Blind to what a function keeps as a plain attribute
(`ctx.x = x`, a closure): `LiveBytes` sees that too.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.weak import WeakIdKeyDictionary


def saved_bytes(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> int:
    """Bytes that autograd holds for the backward pass after `fn(*args, **kwargs)`.

    Storages are counted once, however many nodes saved them. Parameters (also by way of a view, as in
    `x @ w.t()`) are left out: they are there anyway. An input that was saved counts, as it does in the
    tables of Korthikanti et al. (arXiv 2205.05198, section 4.1).

    Worked example: a linear layer without bias saves its input, 2 x 3 float32, and GELU its own input,
    2 x 5.

    >>> net = torch.nn.Sequential(torch.nn.Linear(3, 5, bias=False), torch.nn.GELU())
    >>> saved_bytes(net, torch.zeros(2, 3))
    64
    """
    met = WeakIdKeyDictionary(ref_type=weakref.ref)
    parameters = WeakIdKeyDictionary(ref_type=weakref.ref)

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        kept = parameters if _is_parameter(tensor) else met
        kept[tensor.untyped_storage()] = None
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        result = fn(*args, **kwargs)  # the graph lives as long as its result
    size = sum(storage.nbytes() for storage in list(met) if storage not in parameters)
    del result
    return size


def _is_parameter(tensor: torch.Tensor) -> bool:
    whole = tensor if tensor._base is None else tensor._base
    return isinstance(whole, torch.nn.Parameter)
