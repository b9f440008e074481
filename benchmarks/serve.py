"""How fast the course's engine serves, beside transformers' `generate`: same model file, prompts, float32 and threads.

Both sides run in this process, taken in turns. Prints one JSON object:
    b1_tokens_s, b16_tokens_s          generated tokens a second, one request and 16 at once (best round)
    vs_transformers_b1, _b16           ours over theirs, the median over rounds of one after the other
    continuous_vs_static               64 requests of the recorded lengths: the engine's tokens a second over those of
                                       transformers in batches of 16, each padded and run until its longest has ended
    share_of_bandwidth_limit           time to read as many bytes as the weights have, over that of a batch-1 step
and where a batch-1 step's time goes: step_ms, of which products_ms in products with weights alone.

    python benchmarks/serve.py             # all of it, some minutes
    python benchmarks/serve.py --quick     # fewer rounds and tokens, without the 64 requests
    python benchmarks/serve.py --threads 1 # on a machine whose cores others use: threads that wait for each other crawl
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F

from utils.engine import Engine, Limits, Model, ModelFile, ModelMissing, Tokenizer
from utils.serving import Request, recorded_trace

BATCH = 16


def seconds(call: Callable[[], object]) -> float:
    """How long one call takes."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def in_turns(rounds: int, *calls: Callable[[], object]) -> list[list[float]]:
    """Seconds of each call, one after the other in every round; a first round warms up and does not count."""
    times = [[seconds(call) for call in calls] for _ in range(rounds + 1)][1:]
    return [list(each) for each in zip(*times, strict=True)]


def ratio(theirs: Sequence[float], ours: Sequence[float]) -> float:
    """How many times faster ours is: the median over rounds."""
    return statistics.median(a / b for a, b in zip(theirs, ours, strict=True))


class Both:
    """The two sides, each with the model loaded from the same file."""

    def __init__(self, file: ModelFile) -> None:
        from transformers import AutoModelForCausalLM
        from transformers import logging as quiet

        quiet.set_verbosity_error()
        self.model = Model(file)
        self.theirs = AutoModelForCausalLM.from_pretrained(
            file.path.parent, gguf_file=file.path.name, dtype=torch.float32
        ).eval()
        self.text = Tokenizer(file).encode(source_text())

    def prompt(self, start: int, length: int) -> list[int]:
        """A piece of real text, as tokens."""
        at = start % (len(self.text) - length)
        return self.text[at : at + length]

    def ours_generates(self, prompts: Sequence[list[int]], new: Sequence[int]) -> dict[int, list[int]]:
        """Every prompt gets as many tokens as `new` says, at most 16 at once."""
        room = sum(-(-(len(p) + n) // 16) for p, n in zip(prompts, new, strict=True))
        engine = Engine(self.model, Limits(num_blocks=room, max_running=BATCH))
        asked = [Request(number, prompt, n) for number, (prompt, n) in enumerate(zip(prompts, new, strict=True))]
        return engine.generate(asked)

    @torch.inference_mode()
    def theirs_generates(self, prompts: Sequence[list[int]], new: Sequence[int]) -> dict[int, list[int]]:
        """Batches of 16, padded on the left, each until its longest has ended."""
        outputs: dict[int, list[int]] = {}
        for first in range(0, len(prompts), BATCH):
            batch, longest = prompts[first : first + BATCH], max(new[first : first + BATCH])
            width = max(map(len, batch))
            tokens = torch.tensor([[2] * (width - len(prompt)) + prompt for prompt in batch])
            mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in batch])
            written = self.theirs.generate(
                tokens, attention_mask=mask, max_new_tokens=longest, min_new_tokens=longest, do_sample=False
            )
            for row, many in enumerate(new[first : first + BATCH]):
                outputs[first + row] = written[row, width : width + many].tolist()
        return outputs


def source_text() -> str:
    """Text of the standard library, on every machine."""
    from utils.models import stdlib_bytes

    return bytes(stdlib_bytes(100_000).tolist()).decode("utf-8", "replace")


def decoding(both: Both, batch: int, new: int, rounds: int) -> tuple[float, float]:
    """Tokens a second of ours in its best round, and how many times faster than theirs."""
    prompts, many = [both.prompt(997 * row, 16) for row in range(batch)], [new] * batch
    ours, theirs = in_turns(
        rounds, lambda: both.ours_generates(prompts, many), lambda: both.theirs_generates(prompts, many)
    )
    return batch * new / min(ours), ratio(theirs, ours)


def continuous(both: Both, rounds: int) -> float:
    """64 requests of the recorded trace, lengths in tokens."""
    trace = recorded_trace()[:64]
    prompts = [both.prompt(one.start, one.prompt_len + 24 * one.system) for one in trace]
    new = [one.max_new for one in trace]
    ours, theirs = in_turns(
        rounds, lambda: both.ours_generates(prompts, new), lambda: both.theirs_generates(prompts, new)
    )
    return ratio(theirs, ours)


@torch.inference_mode()
def limits(both: Both, new: int, rounds: int) -> dict[str, float]:
    """A batch-1 step beside plain reading of as many bytes, and beside its products with weights alone."""
    model, prompt = both.model, both.prompt(0, 16)
    inputs = {width: torch.randn(1, width) for width in (model.config.hidden, model.config.ffn)}
    weights = [w for layer in model.layers for w in (layer.qkv, layer.out, layer.gate_up, layer.down)]
    weights.append(model.lm_head)
    block = torch.ones(model.nbytes // 4)

    def products() -> None:
        for weight in weights:
            F.linear(inputs[weight.shape[1]], weight)

    step, read, product = in_turns(
        rounds, lambda: both.ours_generates([prompt], [new]), lambda: [block.sum() for _ in range(4)],
        lambda: [products() for _ in range(4)],
    )  # fmt: skip
    step, read, product = ([t / many for t in times] for times, many in ((step, new), (read, 4), (product, 4)))
    return {
        "share_of_bandwidth_limit": statistics.median(r / s for r, s in zip(read, step, strict=True)),
        "bandwidth_gb_s": model.nbytes / min(read) / 1e9,
        "step_ms": 1e3 * min(step),
        "products_ms": 1e3 * min(product),
    }


def measure(quick: bool, threads: int) -> dict[str, float]:
    """All figures of one run."""
    torch.set_num_threads(threads)
    both = Both(ModelFile())
    rounds, new = (2, 8) if quick else (5, 32)
    b1, b1_ratio = decoding(both, 1, new, rounds)
    b16, b16_ratio = decoding(both, BATCH, new, rounds)
    result = {"b1_tokens_s": b1, "b16_tokens_s": b16, "vs_transformers_b1": b1_ratio, "vs_transformers_b16": b16_ratio}
    if not quick:
        result["continuous_vs_static"] = continuous(both, 2)
    result |= limits(both, new, rounds)
    return {name: round(value, 3) for name, value in result.items()}


def main() -> None:
    """Measure and print."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds and tokens, without the 64 requests")
    parser.add_argument("--threads", type=int, default=cores, help=f"of both sides (default {cores}, the cores)")
    given = parser.parse_args()
    try:
        print(json.dumps(measure(given.quick, given.threads)))
    except ModelMissing as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
