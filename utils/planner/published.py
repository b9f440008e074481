"""Measured training runs and tables of papers, as data: what this package is held to.

Each run names its source and whether it was used to choose efficiency parameters; all others are predictions. The
sizes of micro-batches, chunks and the kind of DDP in table 1 of arXiv 2104.04473 are those of Megatron-LM's scripts for
that paper (examples/sc21/run_table_1.sh and CONFIG.sh: fp16); the schedule in its table 2 is not stated and taken as
1F1B, for ZeRO-3 full recomputation is taken.

Traps. ZeRO's table 1 rounds its 7.5B columns and truncates the others. Equation 8 of arXiv 2205.05198 adds three times
the FLOPs that its text derives for selective recomputation. (p-1)/m is the bubble over the ideal time, (p-1)/(m+p-1)
over the total.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from utils.cost import AlphaBeta
from utils.planner.flops import model_flops
from utils.planner.model import Model
from utils.planner.spec import Cluster, Plan, Workload

PTDP, KORTHIKANTI = "arXiv 2104.04473", "arXiv 2205.05198"


def selene(gpus: int) -> Cluster:
    """NVIDIA's Selene: nodes of 8 A100 80 GB, NVLink at 300 GB/s one way, one 200 Gb/s adapter a GPU.

    Peaks are of data sheets; the alphas are of the usual size and were not fitted.
    """
    return Cluster("Selene", gpus, 8, 312e12, 80e9, 2.039e12, AlphaBeta(3e-6, 1 / 300e9), AlphaBeta(6e-6, 1 / 25e9))


def h100_roce(gpus: int) -> Cluster:
    """The machine of Llama 3: nodes of 8 H100 80 GB, NVLink at 450 GB/s one way, RoCE at 400 Gb/s a GPU."""
    return Cluster("H100 RoCE", gpus, 8, 989e12, 80e9, 3.35e12, AlphaBeta(3e-6, 1 / 450e9), AlphaBeta(6e-6, 1 / 50e9),
                   "H100")  # fmt: skip


def gpt(name: str, layers: int, hidden: int, heads: int, positions: int = 2048) -> Model:
    """A GPT of both papers: vocabulary 51200, sequences of 2048 tokens."""
    return Model(name, layers, hidden, heads, vocabulary=51200, positions=positions)


@dataclass(frozen=True)
class Run:
    """A measured run: what ran, where it is printed, and what was measured, FLOP/s a GPU or seconds a step.

    chose: whether it was used to choose efficiency parameters. tp_overlap, dp_overlap: what its software hid. machine
    makes the cluster; counted: the model whose model FLOPs the paper divides by the time, None for `equation_3`.
    """

    source: str
    model: Model
    workload: Workload
    plan: Plan
    measured: float
    unit: str = "FLOP/s"
    chose: bool = False
    tp_overlap: bool = False
    dp_overlap: bool = False
    machine: Callable[[int], Cluster] = selene
    counted: Model | None = None

    @property
    def cluster(self) -> Cluster:
        """The machine that ran it, as many GPUs of it as it used."""
        return self.machine(self.plan.gpus)

    @property
    def flops(self) -> float:
        """FLOPs of a step as its paper counts them: model FLOPs of `counted`, else equation 3 of arXiv 2104.04473."""
        return model_flops(self.counted, self.workload) if self.counted else equation_3(self.model, self.workload)


def equation_2(model: Model, seq: int) -> float:
    """Parameters of a GPT: 12 l h^2 (1 + 13/(12h) + (V + s)/(12 l h)), arXiv 2104.04473.

    >>> round(equation_2(gpt("1T", 128, 25600, 160), 2048) / 1e9, 1)
    1008.0
    """
    layers, h = model.layers, model.hidden
    return 12 * layers * h**2 * (1 + 13 / (12 * h) + (model.vocabulary + seq) / (12 * layers * h))


def equation_3(model: Model, workload: Workload) -> float:
    """FLOPs of a step with full recomputation: 96 B s l h^2 (1 + s/(6h) + V/(16 l h)), arXiv 2104.04473."""
    layers, h, s = model.layers, model.hidden, workload.seq
    return 96 * workload.tokens * layers * h**2 * (1 + s / (6 * h) + model.vocabulary / (16 * layers * h))


def equation_8(model: Model, workload: Workload) -> float:
    """Hardware FLOPs with selective recomputation as arXiv 2205.05198 prints them: model FLOPs and 12 B L s^2 h."""
    return model_flops(model, workload) + 12 * workload.tokens * workload.seq * model.layers * model.hidden


# ZeRO, arXiv 1910.02054, table 1: GB a GPU for (7.5B, 128B, 1T) parameters, each at stages 1, 2, 3.
ZERO_PARAMETERS = (7.5e9, 128e9, 1e12)
ZERO_TABLE_1 = {
    1: (120, 120, 120, 2048, 2048, 2048, 16000, 16000, 16000),
    4: (52.5, 41.3, 30, 896, 704, 512, 7000, 5500, 4000),
    16: (35.6, 21.6, 7.5, 608, 368, 128, 4750, 2875, 1000),
    64: (31.4, 16.6, 1.88, 536, 284, 32, 4187, 2218, 250),
    256: (30.4, 15.4, 0.47, 518, 263, 8, 4046, 2054, 62.5),
    1024: (30.1, 15.1, 0.12, 513, 257, 2, 4011, 2013, 15.6),
}

# arXiv 2104.04473, table 1: 10^9 parameters, heads, h, l, t, p, GPUs, batch, TFLOP/s a GPU, percent of peak, PFLOP/s;
# then micro-batch, chunks and whether gradients were reduced beside the backward pass.
PTDP_TABLE_1 = (
    (1.7, 24, 2304, 24, 1, 1, 32, 512, 137, 44, 4.4, 16, 1, True),
    (3.6, 32, 3072, 30, 2, 1, 64, 512, 138, 44, 8.8, 16, 1, True),
    (7.5, 32, 4096, 36, 4, 1, 128, 512, 142, 46, 18.2, 16, 1, True),
    (18.4, 48, 6144, 40, 8, 1, 256, 1024, 135, 43, 34.6, 8, 1, True),
    (39.1, 64, 8192, 48, 8, 2, 512, 1536, 138, 44, 70.8, 4, 1, False),
    (76.1, 80, 10240, 60, 8, 4, 1024, 1792, 140, 45, 143.8, 2, 3, False),
    (145.6, 96, 12288, 80, 8, 8, 1536, 2304, 148, 47, 227.1, 2, 2, False),
    (310.1, 128, 16384, 96, 8, 16, 1920, 2160, 155, 50, 297.4, 1, 2, False),
    (529.6, 128, 20480, 105, 8, 35, 2520, 2520, 163, 52, 410.2, 1, 3, False),
    (1008.0, 160, 25600, 128, 8, 64, 3072, 3072, 163, 52, 502.0, 1, 1, False),
)

# arXiv 2104.04473, table 2: model, batch, GPUs, micro-batch, TFLOP/s a GPU, days for 300 billion tokens. The first six
# are ZeRO-3 of DeepSpeed without model parallelism, the others tp 8 and pp 12 or 35.
GPT3, MT_NLG = gpt("174.6B", 96, 12288, 96), gpt("529.6B", 105, 20480, 128)
PTDP_TABLE_2_ZERO = (
    (GPT3, 1536, 384, 4, 144, 90),
    (GPT3, 1536, 768, 2, 88, 74),
    (GPT3, 1536, 1536, 1, 44, 74),
    (MT_NLG, 2560, 640, 4, 138, 169),
    (MT_NLG, 2240, 1120, 2, 98, 137),
    (MT_NLG, 2240, 2240, 1, 48, 140),
)
PTDP_TABLE_2 = (
    (GPT3, 1536, 384, 12, 153, 84),
    (GPT3, 1536, 768, 12, 149, 43),
    (GPT3, 1536, 1536, 12, 141, 23),
    (MT_NLG, 2240, 560, 35, 171, 156),
    (MT_NLG, 2240, 1120, 35, 167, 80),
    (MT_NLG, 2240, 2240, 35, 159, 42),
)

# arXiv 2205.05198, tables 3 and 5: model, pp, GPUs, global batch, micro-batch, chunks; then seconds a step with full
# recomputation and with selective recomputation and sequence parallelism, gain in percent, MFU and HFU in percent.
KORTHIKANTI_TABLE_5 = (
    (gpt("22B", 48, 6144, 64), 1, 8, 4, 4, 1, 1.42, 1.10, 29.0, 41.5, 43.7),
    (gpt("175B", 96, 12288, 96), 8, 64, 64, 1, 3, 18.13, 13.75, 31.8, 51.4, 52.8),
    (gpt("530B", 105, 20480, 128), 35, 280, 280, 1, 3, 49.05, 37.83, 29.7, 56.0, 57.0),
    (gpt("1T", 128, 25600, 160), 64, 512, 512, 1, 1, 94.42, 71.49, 32.1, 56.3, 57.0),
)

# The same, computed from its table 2 with t = 8, in MiB a layer: none, tp, tp and sp, tp and selective, all, full.
KORTHIKANTI_MIB = {
    "22B": (6752, 1264, 844, 624, 204, 96),
    "175B": (2736, 552, 342, 312, 102, 48),
    "530B": (3920, 840, 490, 520, 170, 80),
    "1T": (4900, 1050, 612.5, 650, 212.5, 100),
}

# The same, table 4: a layer of the 22B model in milliseconds: checkpoint, sequence parallel, forward, backward.
KORTHIKANTI_TABLE_4 = (
    ("none", False, 7.7, 11.9),
    ("none", True, 7.2, 11.8),
    ("full", False, 7.7, 19.5),
    ("selective", False, 7.7, 13.2),
    ("selective", True, 7.2, 13.1),
)

# The same, section 6.3: the 530B model with 8 replicas, in which nothing hides the gradients: seconds a step, MFU.
KORTHIKANTI_DP_8 = (39.15, 54.2)

# Llama 3 405B on H100, arXiv 2407.21783, table 4 without its row of long sequences: GPUs, dp, TFLOP/s a GPU, MFU in
# percent; tp 8, pp 16, 2048 sequences of 8192 tokens, no recomputation. The number of chunks is not printed. It has
# 126 layers, its first and last stage one less than the others: timed as 128.
LLAMA3_TABLE_4 = ((8192, 64, 430, 43), (16384, 128, 400, 41))
LLAMA3_405B = Model("Llama 3 405B", 126, 16384, 128, kv_heads=8, ffn=53248, vocabulary=128256, gated=True, tied=False,
                    biases=False)  # fmt: skip

# Bytes a token of the KV cache in 2-byte precision: name, layers, KV heads, head size, bytes. The first is printed in
# the vLLM paper (arXiv 2309.06180, section 3); 2 L n_kv d 2 bytes gives the others.
KV_BYTES = (
    ("OPT-13B", 40, 40, 128, 819_200),
    ("Llama-2-7B", 32, 32, 128, 524_288),
    ("Llama-3-8B", 32, 8, 128, 131_072),
    ("Llama-3-70B", 80, 8, 128, 327_680),
    ("Llama-3.1-405B", 126, 8, 128, 516_096),
    ("Qwen3-4B", 36, 8, 128, 147_456),
)

# Chinchilla, arXiv 2203.15556, table 3: parameters, FLOPs, tokens.
CHINCHILLA_TABLE_3 = (
    (400e6, 1.92e19, 8.0e9),
    (1e9, 1.21e20, 20.2e9),
    (10e9, 1.23e22, 205.1e9),
    (67e9, 5.76e23, 1.5e12),
    (175e9, 3.85e24, 3.7e12),
    (280e9, 9.90e24, 5.9e12),
    (520e9, 3.43e25, 11.0e12),
    (1e12, 1.27e26, 21.2e12),
    (10e12, 1.30e28, 216.2e12),
)

# Ultra-Scale Playbook: parameters, GB of weights, gradients and optimizer without and with gradients in fp32 beside.
PLAYBOOK_GB = ((1e9, 16, 20), (7e9, 112, 140), (70e9, 1120, 1400), (405e9, 6480, 8100))


def ptdp_table_1() -> list[Run]:
    """The ten runs of table 1 of arXiv 2104.04473; all of them chose parameters, each is also predicted without it."""
    runs = []
    for size, heads, h, layers, t, p, gpus, batch, tflops, _, _, micro, chunks, overlap in PTDP_TABLE_1:
        plan = Plan(gpus // (t * p), t, p, schedule="interleaved" if chunks > 1 else "1f1b", chunks=chunks)
        work = Workload(batch, micro, precision="fp16", checkpoint="full")
        runs.append(Run(PTDP + " table 1", gpt(f"{size}B", layers, h, heads), work, plan, tflops * 1e12, chose=True,
                        dp_overlap=overlap))  # fmt: skip
    return runs


def ptdp_table_2() -> list[Run]:
    """Its table 2: ZeRO-3, of which the run on 1536 GPUs chose `between`, then the runs with model parallelism."""
    runs = []
    for model, batch, gpus, micro, tflops, _ in PTDP_TABLE_2_ZERO:
        work = Workload(batch, micro, precision="fp16", checkpoint="full")
        runs.append(Run(PTDP + " table 2", model, work, Plan(gpus, zero=3), tflops * 1e12, chose=gpus in (384, 1536),
                        dp_overlap=True))  # fmt: skip
    for model, batch, gpus, p, tflops, _ in PTDP_TABLE_2:
        work = Workload(batch, 1, precision="fp16", checkpoint="full")
        runs.append(Run(PTDP + " table 2", model, work, Plan(gpus // (8 * p), 8, p), tflops * 1e12))
    return runs


def llama3_table_4(chunks: int) -> list[Run]:
    """Llama 3's runs with a number of chunks that is not printed; `measured` counts model FLOPs of 126 layers."""
    runs = []
    for gpus, dp, tflops, _ in LLAMA3_TABLE_4:
        work = Workload(2048, 1, 8192, flash_attention=True, dropout=False, gradient_bytes=4)
        plan = Plan(dp, 8, gpus // (8 * dp), zero=1, sequence_parallel=True, schedule="interleaved", chunks=chunks)
        runs.append(Run("arXiv 2407.21783 table 4", replace(LLAMA3_405B, layers=128), work, plan, tflops * 1e12,
                        tp_overlap=True, dp_overlap=True, machine=h100_roce, counted=LLAMA3_405B))  # fmt: skip
    return runs


def korthikanti_table_5() -> list[Run]:
    """Table 5 of arXiv 2205.05198, for each model full recomputation, then selective with sequence parallelism."""
    runs = []
    for model, p, _, batch, micro, chunks, full, present, *_ in KORTHIKANTI_TABLE_5:
        plan = Plan(1, 8, p, schedule="interleaved" if chunks > 1 else "1f1b", chunks=chunks)
        work = Workload(batch, micro, checkpoint="full", gradient_bytes=4)
        run = Run(KORTHIKANTI + " table 5", model, work, plan, full, "s", tp_overlap=True)
        better = {"workload": replace(work, checkpoint="selective"), "plan": replace(plan, sequence_parallel=True)}
        runs += [run, replace(run, **better, measured=present)]
    return runs
