"""Bytes of living tensors: each storage from its birth to its end, views counted once.

A dispatch mode sees every operator that torch runs, those of the backward pass and of optimizers among them.
A storage that an operator brings into the world is followed through a weak reference, so following keeps
nothing alive; its size is read anew, so that `untyped_storage().resize_(0)` counts as freed.

Blind to: arrays of numpy until they become tensors, work space inside a kernel, memory that C code holds
outside tensors, and what the allocator keeps in reserve. As evidence it belongs beside the peak of resident
bytes (`run.peak_bytes`), which sees all of these and much else.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakIdKeyDictionary

# The new storage is the argument itself: the way in for torch.tensor([...]) and torch.from_numpy(...).
_FRESH_INPUT = (torch.ops.aten.lift_fresh.default,)
_PLAIN = (torch.Tensor, torch.nn.Parameter)


class LiveBytes(TorchDispatchMode):
    """Follow the bytes of tensors inside a `with` block.

    Args:
        start: tensors that are counted from the beginning, such as `model.parameters()`, or `alive()` for all
            that there are. Without it the count starts at 0 and holds what is born inside the block.

    Works on any thread of a backward pass, inside ranks, and below DTensor, DDP and FSDP2 (what a rank holds
    itself is counted). Costs some tens of microseconds an operator.

    Attributes:
        marks: name -> (bytes alive at that mark, peak since the mark before), filled by `mark`.
        curve: bytes alive after each operator that brought a new storage; ready to plot.

    Worked example: 4 bytes an element, a view is no new memory, freed is freed.

    >>> with LiveBytes() as live:
    ...     x = torch.zeros(100)
    ...     y = x.view(10, 10)
    ...     z = x + 1
    ...     live.mark("both")
    ...     del z
    >>> live.marks, live.now(), live.peak()
    ({'both': (800, 800)}, 400, 800)
    """

    def __init__(self, start: Iterable[torch.Tensor] = ()) -> None:
        super().__init__()
        self.marks: dict[str, tuple[int, int]] = {}
        self.curve: list[int] = []
        self._storages = WeakIdKeyDictionary(ref_type=weakref.ref)  # storage -> its size when last met
        self._unknown = WeakIdKeyDictionary(ref_type=weakref.ref)
        for storage in _storages(list(start)):
            self._storages[storage] = storage.nbytes()
        self._peak = self._since_mark = self.now()

    def now(self) -> int:
        """Bytes alive at this moment."""
        return sum(storage.nbytes() for storage in list(self._storages))

    def peak(self) -> int:
        """Most bytes alive at once since the beginning, or since `reset_peak`."""
        return self._rise(self.now())

    def reset_peak(self) -> None:
        """Let the peak begin anew at what is alive now."""
        self._peak = self._since_mark = self.now()

    def mark(self, name: str) -> None:
        """Write down under `name` what is alive now and the peak since the mark before.

        >>> live.marks["forward"]                                # doctest: +SKIP
        (81920, 90112)
        """
        now = self.now()
        self._rise(now)
        self.marks[name] = (now, self._since_mark)
        self._since_mark = now

    def unknown(self) -> int:
        """Living bytes that operators worked on, but that were neither given at the start nor born inside.

        Other than 0 means that something escaped the count: made before the block, or not by an operator of
        torch.
        """
        return sum(storage.nbytes() for storage in list(self._unknown))

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # nothing is compiled here, and skipping would load all of torch._dynamo: a second a rank

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if any(kind not in _PLAIN for kind in types):
            return NotImplemented  # DTensor and its kind go first; their plain tensors then come by here
        kwargs = kwargs or {}
        given = list(_storages(tree_leaves((args, kwargs))))
        result = func(*args, **kwargs)
        self._meet(func, given, list(_storages(tree_leaves(result))))
        return result

    def _meet(self, func: Any, given: list, returned: list) -> None:
        old = set(map(id, given)) if func not in _FRESH_INPUT else set()
        changed = False
        for storage in returned:
            if storage not in self._storages and id(storage) not in old:
                self._unknown.pop(storage, None)
                changed = True
                self._storages[storage] = storage.nbytes()
        for storage in given + returned:
            size = self._storages.get(storage)
            if size is None:
                self._unknown[storage] = None
            elif size != storage.nbytes():
                self._storages[storage] = storage.nbytes()
                changed = True
        if changed:
            self.curve.append(self._rise(self.now(), peak=False))

    def _rise(self, now: int, peak: bool = True) -> int:
        self._peak = max(self._peak, now)
        self._since_mark = max(self._since_mark, now)
        return self._peak if peak else now


def alive() -> list[torch.Tensor]:
    """All tensors that Python can reach now, for `LiveBytes(alive())`; takes some tens of milliseconds.

    Tensors that only autograd holds (saved for a backward pass still to come) have no Python object and are
    not among them.
    """
    return [thing for thing in gc.get_objects() if issubclass(type(thing), torch.Tensor)]


def nbytes(tensors: Iterable[torch.Tensor]) -> int:
    """Bytes of the storages behind these tensors, each storage once, views and tied weights too.

    >>> x = torch.zeros(10)
    >>> nbytes([x, x[:3], torch.zeros(2, dtype=torch.bfloat16)])
    44
    """
    return sum(storage.nbytes() for storage in {id(s): s for s in _storages(list(tensors))}.values())


def _storages(leaves: list) -> Iterator[torch.UntypedStorage]:
    """The storages behind the tensors among `leaves`; of a DTensor, those of its local tensor."""
    for leaf in leaves:
        if not isinstance(leaf, torch.Tensor):
            continue
        if hasattr(leaf, "__tensor_flatten__"):
            names, _ = leaf.__tensor_flatten__()
            yield from _storages([getattr(leaf, name) for name in names])
            continue
        try:
            yield leaf.untyped_storage()
        except (NotImplementedError, RuntimeError):  # sparse tensors and other kinds without one
            continue
