"""How many numbers a model of some shape consists of, from its configuration alone.

Nothing is allocated, so a model of any size is counted at once. Numbers are counted as they are stored: where the
unembedding is tied to the embedding, the matrix is counted once, as embedding.
"""

from dataclasses import asdict, dataclass

from interp.models.config import ModelConfig, MoEConfig


@dataclass(frozen=True)
class Parameters:
    """Numbers stored, by component. Experts count with their router and the shared expert; biases with their matrix.

    `active` in place of all experts has those that one token goes through. Embeddings count whole in both, as is usual
    where a model is said to have "3B active parameters", although a token reads one row of them.
    """

    embedding: int
    positions: int
    attention: int
    ffn: int
    experts: int
    norms: int
    unembedding: int
    active_experts: int

    @property
    def stored(self) -> dict[str, int]:
        """Numbers stored, by component; those that the model does not have are 0."""
        return {name: count for name, count in asdict(self).items() if name != "active_experts"}

    @property
    def active(self) -> dict[str, int]:
        """Numbers that a token is computed with, by component."""
        return {**self.stored, "experts": self.active_experts}

    @property
    def total(self) -> int:
        """All numbers stored."""
        return sum(self.stored.values())

    @property
    def total_active(self) -> int:
        """All numbers that a token is computed with."""
        return sum(self.active.values())


def parameters(config: ModelConfig) -> Parameters:
    """What the weights of a model of this shape hold."""
    sparse = sum(config.layer(layer).moe for layer in range(config.n_layers))
    table = config.d_vocab * config.d_model
    stored, active = (0, 0) if config.moe is None else _experts(config, config.moe)
    return Parameters(
        embedding=table,
        positions=config.axis_sizes["position"] * config.d_model if config.learned_positions else 0,
        attention=config.n_layers * _attention(config),
        ffn=(config.n_layers - sparse) * _ffn(config, config.d_mlp),
        experts=sparse * stored,
        norms=_norms(config),
        unembedding=(0 if config.tied_embeddings else table) + config.d_vocab * config.unembed_bias,
        active_experts=sparse * active,
    )


def layer_numbers(config: ModelConfig, layer: int, tokens: int) -> int:
    """How many stored numbers of a layer are read for so many tokens at once: of experts those that they choose.

    Which they choose is not known before; taken is what is to be expected where every choice is as likely.
    """
    norms = (4 if config.norms == "sandwich" else 2) * config.d_model * (2 if config.norm == "layer" else 1)
    moe = config.moe if config.layer(layer).moe else None
    if moe is None:
        return _attention(config) + norms + _ffn(config, config.d_mlp)
    everything, _ = _experts(config, moe)
    idle = moe.n_experts * (1 - moe.top_k / moe.n_experts) ** tokens
    return _attention(config) + norms + everything - round(idle) * 3 * moe.d_expert * config.d_model


def _attention(config: ModelConfig) -> int:
    """Matrices, biases and the norms of queries and keys, of one layer."""
    queries, groups = config.n_heads * config.d_head, config.n_kv_heads * config.d_head
    rows = queries + 2 * groups
    gains = {"none": 0, "head": 2 * config.d_head, "width": queries + groups}[config.qk_norm]
    biases = rows * config.qkv_bias + config.d_model * config.o_bias
    return (rows + queries) * config.d_model + biases + gains


def _ffn(config: ModelConfig, width: int) -> int:
    """Matrices and biases of one feed-forward network."""
    keys = 1 + config.gated
    return (keys + 1) * width * config.d_model + (keys * width + config.d_model) * config.mlp_bias


def _experts(config: ModelConfig, moe: MoEConfig) -> tuple[int, int]:
    """One layer's router, experts and shared expert: all, and what one token goes through."""
    one = 3 * moe.d_expert * config.d_model
    always = moe.n_experts * config.d_model
    if moe.d_shared is not None:
        always += _ffn(config, moe.d_shared) + config.d_model * moe.shared_gate
    return always + moe.n_experts * one, always + moe.top_k * one


def _norms(config: ModelConfig) -> int:
    """Gains, and biases where norms have them, around the sublayers and at both ends."""
    a_layer = 4 if config.norms == "sandwich" else 2
    count = a_layer * config.n_layers + config.final_norm + config.embed_norm
    return count * config.d_model * (2 if config.norm == "layer" else 1)
