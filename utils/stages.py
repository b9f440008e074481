"""Stages of a pipeline: a Transformer cut by depth, and a log of what each stage did, when, and what it still holds.

The first stage has the embeddings, the last the final norm and the output matrix (GPipe, Huang et al. 2019, arXiv
1811.06965, section 2). Parameters keep the names that they have in the whole model. Left out: moving data between
ranks and the order of work, which is what a pipeline is about.

Shapes: b rows of a micro-batch, S sequence, H hidden, V vocabulary.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter

import torch
from torch import nn

from utils.models import Transformer


class Stage(nn.Module):
    """Some consecutive blocks of a Transformer.

    forward: [b,S,H] to [b,S,H]; the first stage takes token numbers [b,S], the last returns logits [b,S,V]. The
    parameters are those of `model`, not copies.

    >>> from utils.models import TransformerConfig
    >>> stage = Stage(Transformer(TransformerConfig(hidden=8, heads=2)), [0], first=True, last=False)
    >>> stage(torch.zeros(3, 5, dtype=torch.long)).shape
    torch.Size([3, 5, 8])
    """

    def __init__(self, model: Transformer, blocks: Sequence[int], *, first: bool, last: bool) -> None:
        super().__init__()
        self.blocks = nn.ModuleDict({str(k): model.blocks[k] for k in blocks})
        self.embedding = model.embedding if first else None
        self.positions = model.positions if first else None
        self.norm = model.norm if last else None
        self.head = model.head if last else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.embedding is not None:
            x = self.embedding(x) + self.positions(torch.arange(x.shape[1], device=x.device))
        for block in self.blocks.values():
            x = block(x)
        return x if self.head is None else self.head(self.norm(x))


def cut_model(model: Transformer, bounds: Sequence[int]) -> list[Stage]:
    """Cut a model between blocks: stage s gets blocks bounds[s] to bounds[s+1] - 1.

    bounds begins with 0, ends with the number of blocks and never falls, else ValueError. An empty stage is allowed.

    >>> from utils.models import TransformerConfig
    >>> stages = cut_model(Transformer(TransformerConfig(layers=3)), [0, 1, 3])
    >>> [list(stage.blocks) for stage in stages]
    [['0'], ['1', '2']]
    """
    bounds = list(bounds)
    if len(bounds) < 2 or bounds[0] != 0 or bounds[-1] != len(model.blocks) or sorted(bounds) != bounds:
        raise ValueError(f"bounds = {bounds}; they go from 0 up to the {len(model.blocks)} blocks of the model")
    count = len(bounds) - 1
    return [
        Stage(model, range(bounds[s], bounds[s + 1]), first=s == 0, last=s == count - 1) for s in range(count)
    ]


@dataclass
class Ran:
    """One forward or backward of a stage: `call` counts its forwards, times are of time.perf_counter."""

    op: str
    stage: int
    call: int
    start: float
    end: float | None = None


class StageLog:
    """Stands around the stages of one rank and writes down what they do.

    Attributes:
        ran: one `Ran` for each forward and backward, in order. A backward ends when the gradient of the stage's
            input is there, or, for a first stage, when its output's backward was begun (its end is left None).
        most_held: the most forwards whose activations were alive at once, just after a forward.

    Worked example: two forwards, then their backwards.

    >>> log = StageLog()
    >>> stage = log.around(nn.Linear(2, 2), 0)
    >>> outputs = [stage(torch.ones(1, 2, requires_grad=True)) for _ in range(2)]
    >>> for output in outputs:
    ...     output.sum().backward()
    >>> [f"{ran.op}{ran.call}" for ran in log.ran], log.most_held, log.held()
    (['F0', 'F1', 'B0', 'B1'], 2, 2)
    >>> del outputs, output
    >>> log.held()
    0
    """

    def __init__(self) -> None:
        self.ran: list[Ran] = []
        self.most_held = 0
        self._alive: list[tuple[weakref.ref, weakref.ref]] = []

    def around(self, module: nn.Module, stage: int) -> nn.Module:
        """A module that does what `module` does, is called stage number `stage`, and writes into this log."""
        return _Logged(module, stage, self)

    def actions(self) -> list[tuple[str, int, int]]:
        """What ran as (op, stage, call): for schedules that go through micro-batches in order, their actions."""
        return [(ran.op, ran.stage, ran.call) for ran in self.ran]

    def held(self) -> int:
        """How many forwards have left something alive: their output, or what autograd saved for their backward."""
        self._alive = [pair for pair in self._alive if any(ref() is not None for ref in pair)]
        return len(self._alive)

    def forward_done(self, ran: Ran, saved: torch.Tensor, output: torch.Tensor) -> None:
        """Called by a logged stage at the end of a forward."""
        ran.end = perf_counter()
        self._alive.append((weakref.ref(saved.untyped_storage()), weakref.ref(output.untyped_storage())))
        self.most_held = max(self.most_held, self.held())


class _Logged(nn.Module):
    def __init__(self, module: nn.Module, stage: int, log: StageLog) -> None:
        super().__init__()
        self.module, self.stage, self.log, self.calls = module, stage, log, 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        call, self.calls = self.calls, self.calls + 1
        ran = Ran("F", self.stage, call, perf_counter())
        self.log.ran.append(ran)
        back = Ran("B", self.stage, call, 0.0)
        if x.requires_grad:
            x = _Entry.apply(x, back)
        output, saved = _Exit.apply(self.module(x), self.log, back)
        self.log.forward_done(ran, saved, output)
        return output


class _Entry(torch.autograd.Function):
    """Where a stage's backward ends."""

    @staticmethod
    def forward(ctx, x, back):
        ctx.back = back
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        ctx.back.end = perf_counter()
        return grad, None


class _Exit(torch.autograd.Function):
    """Where a stage's backward begins; saves a byte of its own, which lives as long as what the stage saved."""

    @staticmethod
    def forward(ctx, y, log, back):
        ctx.log, ctx.back = log, back
        saved = torch.empty(1)
        ctx.save_for_backward(saved)
        ctx.mark_non_differentiable(saved)
        return y.view_as(y), saved

    @staticmethod
    def backward(ctx, grad, _):
        ctx.back.start = perf_counter()
        ctx.log.ran.append(ctx.back)
        return grad, None, None
