"""Models whose weights are written by hand, so that what every part of them does is known before anything runs.

    circuit = InductionCircuit(previous=Head(0, 1), induction=Head(1, 2))
    model = induction_circuit(circuit)
    model(model.to_tokens("A B C A"))[0, -1, circuit.token("B")]  # circuit.strength; all other logits are 0

`induction_circuit`: a previous-token head and an induction head (Elhage et al. 2021, "A Mathematical Framework for
Transformer Circuits"; Olsson et al. 2022). `one_fact_memory`: one neuron of an FFN recognises a subject at its last
token and writes what is known of it, and one head carries that to the relation (Meng et al. 2022, Geva et al. 2023).

They are models of the family like all others, exact by three choices. Every space of the residual stream
(`Circuit.spaces`) holds at most a single one at each position, so that products are sums of noughts and one number.
Norms have an eps of 2⁶⁰ and a gain of 2³⁰: beside such an eps the mean square is lost to rounding, in float32 and in
float64, and what a norm returns is what it read, bit for bit. Scores are whole quarters times `sharpness`: at its
default the softmax gives exactly 1 to a best key and 0 to all others. No gradient passes such a pattern (what the
norms' derivative adds is some 10⁻²⁰); with a sharpness of 8 or so one does, and patterns are soft.

Positions are learned. Texts begin with the document separator, as `to_tokens` lets them: a head that finds nothing to
read reads the separator, which it does not copy. All other weights are nought: the other heads look everywhere alike,
and they and all other neurons write nothing. Noise on an embedding falls into all spaces, positions too, so what it
does is not known exactly; what another text does is.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from tokenizers import AddedToken, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as Backend
from torch import Tensor

from interp.models.circuits import SEPARATOR, UNKNOWN, Circuit, Head, InductionCircuit, OneFact
from interp.models.config import ModelConfig
from interp.models.tokenizer import Tokenizer
from interp.models.transformer import Transformer

_GAIN = 2.0**30
_SEPARATOR_KEY, _FIRST_KEY = 0.75, -0.25
"""What the separator, and what position 0, whose previous token is itself, add to a key of the induction head."""


def induction_circuit(
    circuit: InductionCircuit | None = None,
    *,
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
) -> Transformer:
    """A model that continues repeated texts, by the two heads of `circuit` alone.

    Behind a token that was read before, the logit of what followed it there is `strength`, less `suppression` if there
    is a suppressor; of several occurrences each gives its share. Behind a new token all logits are 0, in a text that
    begins with the separator; in others all tokens but the first share what one would have.
    """
    circuit = circuit or InductionCircuit()
    model = _blank("induction", circuit, device, dtype)
    spaces, width = circuit.spaces, len(circuit.vocabulary)
    _look_back(_weights_of(model, circuit.previous), circuit, steps=1, into="previous")
    for head, amount in _speakers(circuit, circuit.induction):
        w = _weights_of(model, head)
        _identity(w.q[spaces["token"], :width])
        _identity(w.k[spaces["previous"], :width])
        w.k[circuit.token(SEPARATOR), :width] = _SEPARATOR_KEY
        w.k[spaces["position"].start, :width] = _FIRST_KEY
        _identity(w.v[spaces["token"], :width])
        w.v[circuit.token(SEPARATOR)] = 0
        _identity(w.o[:width, spaces["next"]], amount)
    return model


def one_fact_memory(
    circuit: OneFact | None = None, *, device: torch.device | str | None = None, dtype: torch.dtype | None = None
) -> Transformer:
    """A model that knows one fact, by one neuron of `circuit`.

    Where the last token is the relation and the whole subject stands before it, the answer's logit is `strength`, less
    `suppression` if there is a suppressor; at every relation that of the foil is `prior`; all other logits are 0.
    """
    circuit = circuit or OneFact()
    model = _blank("one-fact", circuit, device, dtype)
    for steps, head in enumerate(circuit.gatherers, 1):
        _look_back(_weights_of(model, head), circuit, steps, into=f"back_{steps}")
    _remember(model, circuit)
    spaces, width = circuit.spaces, len(circuit.vocabulary)
    for head, amount in _speakers(circuit, circuit.extractor):
        w = _weights_of(model, head)
        w.q[spaces["token"], 0] = -1  # all others look away from what the relation looks for
        w.q[circuit.token(circuit.relation), 0] = 1
        w.k[spaces["attribute"], 0] = 1
        _identity(w.v[spaces["attribute"], :width])
        _identity(w.o[:width, spaces["next"]], amount)
    model.W_E[circuit.token(circuit.relation), spaces["next"].start + circuit.token(circuit.foil)] = circuit.prior
    return model


@dataclass(frozen=True)
class _HeadWeights:
    """The matrices of one query head, as views; heads that share a KV head are given the same keys and values."""

    q: Float[Tensor, "d_model d_head"]
    k: Float[Tensor, "d_model d_head"]
    v: Float[Tensor, "d_model d_head"]
    o: Float[Tensor, "d_head d_model"]


def _weights_of(model: Transformer, head: Head) -> _HeadWeights:
    layer, query = head
    shared = query // model.config.queries_per_kv
    return _HeadWeights(model.W_Q[layer, query], model.W_K[layer, shared], model.W_V[layer, shared], model.W_O[head])


def _speakers(circuit: Circuit, speaker: Head) -> list[tuple[Head, float]]:
    """The heads that move the answer's logit, and by how much."""
    suppressors = [] if circuit.suppressor is None else [(circuit.suppressor, -circuit.suppression)]
    return [(speaker, circuit.strength), *suppressors]


def _look_back(w: _HeadWeights, circuit: Circuit, steps: int, into: str) -> None:
    """Copy the identity of the token so many positions back; where there is none, of the position itself."""
    spaces, width = circuit.spaces, len(circuit.vocabulary)
    positions = torch.arange(circuit.n_ctx)
    wanted = torch.where(positions < steps, positions, positions - steps)
    w.q[spaces["position"].start + positions, wanted] = 1
    _identity(w.k[spaces["position"], : circuit.n_ctx])
    _identity(w.v[spaces["token"], :width])
    _identity(w.o[:width, spaces[into]])


def _remember(model: Transformer, circuit: OneFact) -> None:
    """The key: the last token of the subject, and those before it as they were gathered. The value: the answer."""
    weights, spaces = model.weights(), circuit.spaces
    layer, neuron = circuit.neuron
    mlp = f"blocks.{layer}.mlp."
    for steps, word in enumerate(reversed(circuit.subject)):
        space = spaces[f"back_{steps}" if steps else "token"]
        weights[mlp + "W_in"][space.start + circuit.token(word), neuron] = 1
    weights[mlp + "b_in"][neuron] = 1 - len(circuit.subject)  # all of them must be there
    weights[mlp + "W_out"][neuron, spaces["attribute"].start + circuit.token(circuit.answer)] = 1


def _blank(name: str, circuit: Circuit, device: torch.device | str | None, dtype: torch.dtype | None) -> Transformer:
    """A model that reads and says tokens, whose norms change nothing, and whose layers do nothing."""
    provenance = {"model": f"constructed/{name}", "source": "weights written by hand", "weights_sha256": None}
    config, spaces = _config(circuit), circuit.spaces
    with torch.inference_mode(False):  # tensors made in inference mode could never take part in a gradient
        model = Transformer(config, tokenizer=_tokenizer(circuit), device=device, dtype=dtype, provenance=provenance)
        weights = model.weights()
        for weight_name, weight in weights.items():
            weight.fill_(_GAIN if weight_name.endswith(".w") else 0)
        _identity(weights["embed.W_E"][:, spaces["token"]])
        _identity(weights["pos_embed.W_pos"][:, spaces["position"]])
        _identity(weights["unembed.W_U"][spaces["next"]])
    return model


def _config(circuit: Circuit) -> ModelConfig:
    """No rotary positions, no gate, no tied embeddings; heads wide enough for the largest space."""
    last, width = circuit.spaces["next"], len(circuit.vocabulary)
    return ModelConfig(
        n_layers=circuit.n_layers, d_model=last.stop, n_heads=circuit.n_heads, n_kv_heads=circuit.n_kv_heads,
        d_head=max(circuit.n_ctx, width), d_mlp=circuit.d_mlp, d_vocab=width, n_ctx=circuit.n_ctx, norm_eps=_GAIN**2,
        activation="relu", gated=False, mlp_bias=True, rotary=None, learned_positions=True,
        score_scale=circuit.sharpness, tied_embeddings=False,
    )  # fmt: skip


def _tokenizer(circuit: Circuit) -> Tokenizer:
    """One token a word, with the space before it."""
    names = [name if name in (SEPARATOR, UNKNOWN) else f"▁{name}" for name in circuit.vocabulary]
    backend = Backend(models.WordLevel({name: index for index, name in enumerate(names)}, unk_token=UNKNOWN))
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.decoder = decoders.Metaspace()
    backend.add_special_tokens([AddedToken(name, normalized=False) for name in (SEPARATOR, UNKNOWN)])
    return Tokenizer(backend, {"bos": SEPARATOR, "eos": SEPARATOR, "unk": UNKNOWN})


def _identity(block: Float[Tensor, "size size"], amount: float = 1.0) -> None:
    block.fill_diagonal_(amount)
