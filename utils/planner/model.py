"""The shape of a model and its exact number of parameters, whole and active.

Held to: equation 2 of Narayanan et al. 2021 (arXiv 2104.04473), P = 12 l h^2 (1 + 13/(12h) + (V + s)/(12 l h)), to
which the last norm adds 2h; and to models that torch and transformers build. Left out: layers of different shapes,
attention with latent keys (MLA), norms of queries and keys, encoders.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property


def require_whole(owner: object, *names: str, least: int = 1) -> None:
    """ValueError unless these fields of owner are whole numbers of at least `least`."""
    for name in names:
        value = getattr(owner, name)
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise ValueError(f"{name} is {value!r}; it must be a whole number of at least {least}")


def require_one_of(owner: object, name: str, choices: tuple) -> None:
    """ValueError unless this field of owner is one of the choices."""
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
        require_whole(self, "layers", "hidden", "heads", "vocabulary")
        if self.head_dim is None and self.hidden % self.heads:
            raise ValueError(f"hidden = {self.hidden} does not divide into heads = {self.heads} heads of equal size")
        defaults = {"kv_heads": self.heads, "ffn": 4 * self.hidden, "head_dim": self.hidden // self.heads}
        for name, value in {**defaults, "expert_ffn": self.ffn or 4 * self.hidden}.items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, value)
        require_whole(self, "kv_heads", "ffn", "head_dim", "expert_ffn")
        require_whole(self, "positions", "experts", "top_k", "shared_experts", "dense_layers", least=0)
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
