"""What a prediction starts from: a model, a workload, a cluster and a plan, each a frozen object that checks itself.

Conventions, the same in every module of this package. Sizes are in bytes and seconds, FLOPs count a multiply and
an add as 2, GB is 10**9 and GiB 2**30 bytes. State takes 16 bytes a parameter (ZeRO, Rajbhandari et al. 2020,
arXiv 1910.02054, section 3.1): 2 for the parameter, 2 for its gradient, 12 for Adam (master copy, two moments,
fp32 each). Names of axes are torch's; GPUs = dp * tp * pp * cp, and an ep group lies inside dp, as in Megatron-LM.
Ranks are laid out tp first, then cp, dp, pp: neighbours in tp are neighbours in a node.

Left out: models whose layers differ in shape, uneven stages, attention with latent keys (MLA), encoders.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from utils.cost import AlphaBeta

CHECKPOINTS = ("none", "selective", "full")
SCHEDULES = ("gpipe", "1f1b", "interleaved")
PRECISION_BYTES = {"bf16": 2, "fp16": 2, "fp32": 4}


def _whole(owner: object, *names: str, least: int = 1) -> None:
    for name in names:
        value = getattr(owner, name)
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise ValueError(f"{name} is {value!r}; it must be a whole number of at least {least}")


def _one_of(owner: object, name: str, choices: tuple) -> None:
    if getattr(owner, name) not in choices:
        raise ValueError(f"{name} is {getattr(owner, name)!r}; it is one of {', '.join(map(str, choices))}")


@dataclass(frozen=True)
class Model:
    """The shape of a decoder-only Transformer, dense or with experts (MoE, 混合专家).

    ffn: width inside a dense feed-forward, None for 4 hidden; gated: three matrices (gate, up, down) in place of
    two; positions: learned positions, 0 for rotary ones, which are no parameters; tied: the output matrix is the
    embedding; biases: of all linear layers and of the norms (LayerNorm), without them norms are RMSNorm; head_dim:
    None for hidden / heads. experts: routed experts a layer, 0 for a dense model; top_k of them see a token;
    shared_experts see all tokens; expert_ffn: width of one expert, None for ffn; dense_layers: the first so many
    layers have no experts.

    >>> gpt3 = Model("GPT-3 175B", layers=96, hidden=12288, heads=96, vocabulary=51200, positions=2048)
    >>> round(gpt3.parameters / 1e9, 1), gpt3.parameters == gpt3.active_parameters
    (174.6, True)
    """

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int | None = None
    ffn: int | None = None
    vocabulary: int = 51200
    gated: bool = False
    positions: int = 0
    tied: bool = True
    biases: bool = True
    head_dim: int | None = None
    experts: int = 0
    top_k: int = 0
    expert_ffn: int | None = None
    shared_experts: int = 0
    dense_layers: int = 0

    def __post_init__(self) -> None:
        _whole(self, "layers", "hidden", "heads", "vocabulary")
        if self.head_dim is None and self.hidden % self.heads:
            raise ValueError(f"hidden = {self.hidden} does not divide into heads = {self.heads} heads of equal size")
        defaults = {"kv_heads": self.heads, "ffn": 4 * self.hidden, "head_dim": self.hidden // self.heads}
        for name, value in {**defaults, "expert_ffn": self.ffn or 4 * self.hidden}.items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, value)
        _whole(self, "kv_heads", "ffn", "head_dim", "expert_ffn")
        _whole(self, "positions", "experts", "top_k", "shared_experts", "dense_layers", least=0)
        if self.heads % self.kv_heads:
            raise ValueError(f"heads = {self.heads} do not divide into groups over kv_heads = {self.kv_heads}")
        if self.experts and not 1 <= self.top_k <= self.experts:
            raise ValueError(f"top_k = {self.top_k} of experts = {self.experts}: a token goes to 1 to {self.experts}")
        if not self.experts and (self.top_k or self.shared_experts or self.dense_layers):
            sentence = "experts = 0, but top_k, shared_experts or dense_layers is not: set experts, or none of them"
            raise ValueError(sentence)
        if self.dense_layers > self.layers:
            raise ValueError(f"dense_layers = {self.dense_layers} of layers = {self.layers}: there are not so many")

    @property
    def attention_width(self) -> int:
        """The width of all queries of a token, heads * head_dim; for most models `hidden`."""
        return self.heads * self.head_dim

    @property
    def kv_width(self) -> int:
        """The width of all keys of a token, kv_heads * head_dim."""
        return self.kv_heads * self.head_dim

    @property
    def expert_layers(self) -> int:
        """How many layers have experts."""
        return self.layers - self.dense_layers if self.experts else 0

    @cached_property
    def attention_parameters(self) -> int:
        """Of one layer's attention: the matrices of queries, keys, values and output, and their biases."""
        h, q, kv = self.hidden, self.attention_width, self.kv_width
        return 2 * h * q + 2 * h * kv + self.biases * (q + 2 * kv + h)

    @cached_property
    def norm_parameters(self) -> int:
        """Of one norm: hidden, or twice that with biases."""
        return self.hidden * (2 if self.biases else 1)

    def feed_forward_parameters(self, width: int) -> int:
        """Of one feed-forward of this width: two matrices, three when gated, and their biases."""
        inward = 2 if self.gated else 1
        return (inward + 1) * self.hidden * width + self.biases * (inward * width + self.hidden)

    @cached_property
    def expert_parameters(self) -> int:
        """Of one expert; 0 for a dense model."""
        return self.feed_forward_parameters(self.expert_ffn) if self.experts else 0

    @cached_property
    def dense_layer_parameters(self) -> int:
        """Of one layer without experts: attention, feed-forward and two norms."""
        return self.attention_parameters + self.feed_forward_parameters(self.ffn) + 2 * self.norm_parameters

    @cached_property
    def expert_layer_shared_parameters(self) -> int:
        """Of one layer with experts, what every token sees: attention, norms, router and shared experts."""
        always = self.attention_parameters + 2 * self.norm_parameters + self.hidden * self.experts
        return always + self.shared_experts * self.expert_parameters

    @cached_property
    def embedding_parameters(self) -> int:
        """Of the embedding and the learned positions; the output matrix is `output_parameters`."""
        return (self.vocabulary + self.positions) * self.hidden

    @property
    def output_parameters(self) -> int:
        """Of an output matrix of its own; 0 when it is the embedding."""
        return 0 if self.tied else self.vocabulary * self.hidden

    def _with_experts(self, experts: int) -> int:
        layers = (self.layers - self.expert_layers) * self.dense_layer_parameters
        layers += self.expert_layers * (self.expert_layer_shared_parameters + experts * self.expert_parameters)
        return self.embedding_parameters + layers + self.norm_parameters + self.output_parameters

    @cached_property
    def parameters(self) -> int:
        """How many parameters there are, exactly; a tied matrix counts once."""
        return self._with_experts(self.experts)

    @cached_property
    def active_parameters(self) -> int:
        """How many parameters one token meets: of the routed experts only top_k a layer."""
        return self._with_experts(self.top_k)


@dataclass(frozen=True)
class Workload:
    """What one step trains on, and how numbers are kept.

    global_batch, micro_batch: sequences in a step, and in one pass of one replica; seq: tokens a sequence. precision
    bf16, fp16 (both 16 bytes a parameter, the module's convention) or fp32 (4 + 4 + 8 bytes). gradient_bytes: 2 for
    the convention's 16 bytes, 4 for gradients kept in fp32 only (18 bytes a parameter, Megatron-LM), 6 for a
    second copy in fp32 beside them (20 bytes, Ultra-Scale Playbook). checkpoint: activation recomputation (激活重计算)
    none, selective (the core of attention, arXiv 2205.05198) or full (whole layers).

    >>> Workload(global_batch=1536, micro_batch=1, seq=2048).state_bytes
    (2, 2, 12)
    """

    global_batch: int
    micro_batch: int = 1
    seq: int = 2048
    precision: str = "bf16"
    checkpoint: str = "none"
    gradient_bytes: int | None = None

    def __post_init__(self) -> None:
        _whole(self, "global_batch", "micro_batch", "seq")
        _one_of(self, "precision", tuple(PRECISION_BYTES))
        _one_of(self, "checkpoint", CHECKPOINTS)
        if self.gradient_bytes is None:
            object.__setattr__(self, "gradient_bytes", self.value_bytes)
        _one_of(self, "gradient_bytes", (2, 4, 6) if self.value_bytes == 2 else (4,))

    @property
    def value_bytes(self) -> int:
        """Bytes of one parameter or activation in this precision."""
        return PRECISION_BYTES[self.precision]

    @property
    def state_bytes(self) -> tuple[int, int, int]:
        """Bytes a parameter of (parameters, gradients, optimizer)."""
        return self.value_bytes, self.gradient_bytes, 12 if self.value_bytes == 2 else 8

    @property
    def tokens(self) -> int:
        """Tokens in one step."""
        return self.global_batch * self.seq


@dataclass(frozen=True)
class Cluster:
    """A machine: gpus in all, in nodes of gpus_per_node, and two levels of links.

    flops: the peak of one GPU in FLOP/s for the precision in use; memory_bytes of one GPU, memory_bandwidth in
    bytes a second. node: the link of one GPU inside a node, between: its share of the link between nodes, each
    one way. hardware names the kind of machine, by which efficiency parameters are kept.

    >>> dgx = Cluster("2 nodes", 16, 8, 312e12, 80e9, 2.0e12, AlphaBeta(5e-6, 1 / 300e9), AlphaBeta(1e-5, 1 / 25e9))
    >>> dgx.level(8), dgx.level(2, stride=8), dgx.level(1)
    ('node', 'between', 'node')
    """

    name: str
    gpus: int
    gpus_per_node: int
    flops: float
    memory_bytes: float
    memory_bandwidth: float
    node: AlphaBeta
    between: AlphaBeta
    hardware: str = "A100"

    def __post_init__(self) -> None:
        _whole(self, "gpus", "gpus_per_node")
        for name in ("flops", "memory_bytes", "memory_bandwidth"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} is {getattr(self, name)!r}; it must be above 0")
        if self.gpus > self.gpus_per_node and self.gpus % self.gpus_per_node:
            raise ValueError(f"gpus = {self.gpus} do not fill nodes of gpus_per_node = {self.gpus_per_node}")

    def level(self, ranks: int, stride: int = 1) -> str:
        """'node' where a group of `ranks` ranks, `stride` apart, lies inside one node, else 'between'."""
        return "node" if (ranks - 1) * stride < self.gpus_per_node else "between"

    def link(self, level: str) -> AlphaBeta:
        """The link of a level, 'node' or 'between'."""
        return {"node": self.node, "between": self.between}[level]


@dataclass(frozen=True)
class Plan:
    """How a model is spread: the size of each axis, the ZeRO stage, the pipeline's schedule.

    zero: 0 none, 1 optimizer state, 2 and gradients, 3 and parameters, each spread over dp (and cp). chunks: v model
    chunks a rank, above 1 for the interleaved schedule only. ep: expert groups inside dp, which need no GPUs of their
    own.

    >>> Plan(dp=60, tp=8, pp=8).gpus, Plan(dp=60, tp=8, pp=8).model_parallel
    (3840, 64)
    """

    dp: int = 1
    tp: int = 1
    pp: int = 1
    cp: int = 1
    ep: int = 1
    zero: int = 0
    sequence_parallel: bool = False
    schedule: str = "1f1b"
    chunks: int = 1

    def __post_init__(self) -> None:
        _whole(self, "dp", "tp", "pp", "cp", "ep", "chunks")
        _one_of(self, "zero", (0, 1, 2, 3))
        _one_of(self, "schedule", SCHEDULES)
        if (self.schedule == "interleaved") != (self.chunks > 1):
            raise ValueError(f"schedule {self.schedule} with chunks = {self.chunks}: interleaved has 2 or more, else 1")
        if self.schedule == "interleaved" and self.pp == 1:
            raise ValueError("schedule interleaved with pp = 1: there is no pipeline to interleave")
        if self.sequence_parallel and self.tp == 1:
            raise ValueError("sequence_parallel with tp = 1: it shards over the ranks of tp")
        if self.dp % self.ep:
            raise ValueError(f"ep = {self.ep} does not divide dp = {self.dp}: expert groups lie inside dp")

    @property
    def gpus(self) -> int:
        """dp * tp * pp * cp."""
        return self.dp * self.tp * self.pp * self.cp

    @property
    def model_parallel(self) -> int:
        """GPUs that share one copy of the parameters: tp * pp."""
        return self.tp * self.pp

    @property
    def shards(self) -> int:
        """Over how many ranks ZeRO spreads state: dp * cp, all that hold the same parameters."""
        return self.dp * self.cp

    def strides(self) -> dict[str, int]:
        """How far apart in rank two neighbours of a group are, for each axis."""
        inside = {"tp": 1, "cp": self.tp, "ep": self.tp * self.cp, "dp": self.tp * self.cp}
        return {**inside, "pp": self.tp * self.cp * self.dp}

    def micro_batches(self, workload: Workload) -> int:
        """m, the micro-batches of one replica in one step."""
        return workload.global_batch // (self.dp * workload.micro_batch)
