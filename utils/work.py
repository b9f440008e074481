"""How much work was that? Operators, FLOPs and bytes read by products, counted while code runs.

FLOPs are those of torch's own formulas (torch.utils.flop_counter), and of the CPU's fused attention, which that list
leaves out. Bytes read are those of what goes into a product: weights, activations, cached keys and values. Left out:
everything elementwise, and what a cache of the processor saves.
"""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry, sdpa_flop_count

FUSED_ON_CPU = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
WITH_WEIGHTS = ("mm", "addmm")  # what a linear layer becomes
_NOT_DECOMPOSED = torch.ops.prim.device.default


class Work(TorchDispatchMode):
    """Count what torch runs inside a `with` block, in the backward pass too.

    Attributes:
        operators: name -> how often it ran, e.g. {"mm": 3, "_softmax": 1}.
        flops_by_operator: name -> FLOPs (2mkn for a product [m, k] x [k, n]).
        bytes_read: bytes of all tensors that went into products; an expanded tensor counts as what it holds.

    >>> with Work() as work:
    ...     y = torch.ones(2, 3) @ torch.ones(3, 4)
    >>> work.flops, work.bytes_read, work.operators["mm"]
    (48, 72, 1)
    """

    def __init__(self) -> None:
        super().__init__()
        self.operators: Counter[str] = Counter()
        self.flops_by_operator: Counter[str] = Counter()
        self.bytes_read = 0

    @property
    def flops(self) -> int:
        """FLOPs of all operators."""
        return sum(self.flops_by_operator.values())

    @property
    def weight_flops(self) -> int:
        """FLOPs of products with the weights of linear layers (mm and addmm); attention's own are batched ones."""
        return sum(self.flops_by_operator[name] for name in WITH_WEIGHTS)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # nothing is compiled here, and skipping would load all of torch._dynamo

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs, packet = kwargs or {}, func._overloadpacket
        counted = packet in flop_registry or packet is FUSED_ON_CPU
        if not counted and func is not _NOT_DECOMPOSED:
            with self:  # in inference_mode a linear layer arrives whole
                result = func.decompose(*args, **kwargs)
            if result is not NotImplemented:
                return result
        moment = time.monotonic_ns()
        result = func(*args, **kwargs)
        self.operators[packet.__name__] += 1
        if counted:
            self.bytes_read += sum(_held(part) for part in tree_leaves((args, kwargs)))
            self.count(packet.__name__, _flops(packet, args, kwargs, result), moment)
        return result

    def count(self, name: str, flops: int, moment: int) -> None:
        """Note a product that began at `moment` (ns); who needs more than sums overrides this."""
        self.flops_by_operator[name] += flops


def _flops(packet: Any, args: tuple, kwargs: dict, result: Any) -> int:
    if packet is FUSED_ON_CPU:
        q, k, v = args[:3]
        groups = q.shape[1] // k.shape[1]  # a key head serves so many query heads
        full = [(*x.shape[:1], x.shape[1] * groups, *x.shape[2:]) for x in (k, v)]
        return sdpa_flop_count(q.shape, *full)
    return flop_registry[packet](*args, **kwargs, out_val=result)


def _held(part: object) -> int:
    """Bytes of a tensor's elements; those that an expanded dimension repeats count once."""
    if not isinstance(part, torch.Tensor):
        return 0
    sizes = [size for size, stride in zip(part.shape, part.stride(), strict=True) if stride or size == 0]
    return part.element_size() * torch.Size(sizes).numel()
