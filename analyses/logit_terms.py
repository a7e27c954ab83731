"""A logit as a sum of terms, one for every part that wrote to the residual stream.

With the final norm's divisor σ held at the value that it had, what follows the stream is linear, so that the row w of
the unembedding that asks for a token can be pulled back through the norm once, instead of pushing every part forward:

    logit = w · (γ ∘ (h − mean h) / σ + β) + b = Σ over parts p of  u · p  +  w · β + b,    u = centre(γ ∘ w) / σ

(the mean only where the norm takes it off). Likewise through norms on what sublayers return, and through W_O and W_out
to heads, key positions and neurons: a term costs one dot product, and no part is ever formed in the residual stream.

    head     z_h · (W_O^h u)               source   pattern_hk · v_k · (W_O^h u)
    neuron   coefficient_f · (W_out^f · u)   expert   weight_e · (out_e · u)

A neuron of an expert is weighted as its expert is, one of the shared expert by the value of its gate.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor

from interp.analyses.attribution_runs import By, Recorded
from interp.analyses.folded import read_through, wide
from interp.analyses.neurons import DENSE, SHARED, Neuron, ffn_widths, post_point
from interp.analyses.sub_updates import gate_input, has_shared_gate, shared_gate
from interp.models.norm import PlainNorm

Reader = Float[Tensor, "prompt d_model"]
"""For each prompt a vector whose product with a part of the stream is that part's term."""


@dataclass(frozen=True)
class Terms:
    """Terms of one kind and layer (−1: none); `index` counts heads, neurons, experts or key positions, −1 is none.

    `ffn` is the number of the neurons' FFN; `chosen` says whether any prompt of the run chose it, if it is an expert.
    """

    kind: str
    layer: int
    label: str
    index: Sequence[int]
    values: Float[Tensor, "prompt term"]
    ffn: int = DENSE
    chosen: bool = True

    @property
    def labels(self) -> list[str]:
        """What the parts are called."""
        if self.kind == "neuron":
            return [f"neuron {Neuron.of(self.layer, self.ffn, each)}" for each in self.index]
        return [f"{self.label}{'' if each < 0 else each}" for each in self.index]


def logit_terms(run: Recorded, asked: Reader, by: By) -> Iterator[Terms]:
    """The terms of `asked` · normalised stream, `asked` being rows of the unembedding, with every divisor as it was."""
    model, norm = run.model, run.model.ln_final
    reader = asked if norm is None else pulled_back(norm, run.final_scale, asked)
    yield _whole(run, "embed", -1, "embed", "hook_embed", reader)
    if "hook_pos_embed" in model.points():
        yield _whole(run, "pos_embed", -1, "pos_embed", "hook_pos_embed", reader)
    for layer in range(model.config.n_layers):
        yield from _attention(run, layer, reader, by)
        yield from _ffn(run, layer, reader, by)
    if norm is not None:
        yield from _bias("ln_final.b", -1, norm.b, asked)


def pulled_back(norm: PlainNorm, scale: Float[Tensor, "prompt 1"], asked: Reader) -> Reader:
    """The vector u for which u · x = asked · norm(x), but for the norm's bias, while the divisor stays what it was."""
    return read_through(norm, asked.mT).mT / scale


def _attention(run: Recorded, layer: int, reader: Reader, by: By) -> Iterator[Terms]:
    if by not in ("head", "source", "head_source"):
        yield _whole(run, "attn", layer, f"L{layer}.attn", f"blocks.{layer}.hook_attn_out", reader)
        return
    attn = run.model.layers[layer].attn
    inner = _behind(run, layer, "ln1_post", reader)
    asked = torch.einsum("bm,hdm->bhd", inner, wide(attn.W_O))
    if by == "head":
        values = (run.at(f"blocks.{layer}.attn.hook_z") * asked).sum(-1)
        yield _numbered("head", layer, f"L{layer}.H", values)
    else:
        yield from _sources(layer, _by_source(run, layer, asked), whole=by == "source")
    yield from _bias(f"L{layer}.b_O", layer, attn.out_bias, inner)
    yield from _post_bias(run, layer, "ln1_post", reader)


def _by_source(
    run: Recorded, layer: int, asked: Float[Tensor, "prompt head d_head"]
) -> Float[Tensor, "prompt head source"]:
    """What each head brings from each key position."""
    assert run.keys is not None
    v, pattern = wide(run.keys["v", layer]), run.at(f"blocks.{layer}.attn.hook_pattern")
    grouped = rearrange(asked, "b (g r) d -> b g r d", g=v.shape[2])
    said = rearrange(torch.einsum("bkgd,bgrd->bgrk", v, grouped), "b g r k -> b (g r) k")
    return pattern * said


def _sources(layer: int, values: Float[Tensor, "prompt head source"], *, whole: bool) -> Iterator[Terms]:
    if whole:
        yield _numbered("source", layer, f"L{layer}.attn←", values.sum(1))
        return
    for head, each in enumerate(values.unbind(1)):
        yield _numbered("source", layer, f"L{layer}.H{head}←", each)


def _ffn(run: Recorded, layer: int, reader: Reader, by: By) -> Iterator[Terms]:
    mlp, name = run.model.layers[layer].mlp, f"blocks.{layer}.mlp."
    experts = by == "expert" and run.model.config.layer(layer).moe
    if by != "neuron" and not experts:
        yield _whole(run, "mlp", layer, f"L{layer}.mlp", f"blocks.{layer}.hook_mlp_out", reader)
        return
    inner = _behind(run, layer, "ln2_post", reader)
    if experts:
        yield _numbered("expert", layer, f"L{layer}.E", _by_expert(run, layer, inner))
        if f"{name}shared.hook_out" in run.model.points():
            yield _whole(run, "shared", layer, f"L{layer}.shared", f"{name}shared.hook_out", inner)
    else:
        yield from _neurons(run, layer, inner)
        yield from _bias(f"L{layer}.b_out", layer, mlp.weights().get("b_out"), inner)
    yield from _post_bias(run, layer, "ln2_post", reader)


def _by_expert(run: Recorded, layer: int, reader: Reader) -> Float[Tensor, "prompt expert"]:
    """Each expert's output times its mixing weight; nought where it was not chosen."""
    name, moe = f"blocks.{layer}.mlp.hook_expert_", run.model.config.moe
    assert moe is not None
    written = torch.einsum("bsm,bm->bs", run.at(f"{name}out"), reader) * run.at(f"{name}weights")
    chosen = run.cache[f"{name}indices"][:, run.column]
    return written.new_zeros(len(written), moe.n_experts).scatter_add(1, chosen, written)


def _neurons(run: Recorded, layer: int, reader: Reader) -> Iterator[Terms]:
    """Those of every FFN of a layer, whose neurons write with the weight of their expert."""
    weights = run.model.layers[layer].mlp.weights()
    for ffn, width in ffn_widths(run.model.config, layer).items():
        if ffn >= 0:
            amount, chosen = _routed(run, layer, ffn)
            values = amount * (reader @ wide(weights["W_out"][ffn]).mT) if chosen else amount
            yield Terms("neuron", layer, "", range(width), values, ffn, chosen)
            continue
        post, within = run.at(post_point(layer, ffn)), "shared." * (ffn == SHARED)
        gate = _gate(run, layer) if ffn == SHARED else post.new_ones(1, 1)
        values = gate * post * (reader @ wide(weights[f"{within}W_out"]).mT)
        yield Terms("neuron", layer, "", range(width), values, ffn)
        if ffn == SHARED:
            yield from _bias(f"L{layer}.shared.b_out", layer, weights.get("shared.b_out"), gate * reader)


def _routed(run: Recorded, layer: int, expert: int) -> tuple[Float[Tensor, "prompt neuron"], bool]:
    """Coefficients of an expert's neurons times its mixing weight, nought where it was not chosen; was it, ever?"""
    name = f"blocks.{layer}.mlp.hook_expert_"
    here = run.cache[f"{name}indices"][:, run.column] == expert
    weight = run.at(f"{name}weights") * here
    return torch.einsum("bs,bsf->bf", weight, run.at(post_point(layer, expert))), bool(here.any())


def _gate(run: Recorded, layer: int) -> Float[Tensor, "#prompt 1"]:
    """What the shared expert is weighted by."""
    if not has_shared_gate(run.model, layer):
        return run.stream.new_ones(1, 1)
    return shared_gate(run.model, layer, run.at(gate_input(run.model, layer)))


# ----------------------------------------------------------------------------------------------------------- helpers


def _norm_of(run: Recorded, layer: int, name: Literal["ln1_post", "ln2_post"]) -> PlainNorm | None:
    block = run.model.layers[layer]
    return block.ln1_post if name == "ln1_post" else block.ln2_post


def _behind(run: Recorded, layer: int, name: Literal["ln1_post", "ln2_post"], reader: Reader) -> Reader:
    """The reader of what a sublayer computes, before the norm on its output, where there is one."""
    norm = _norm_of(run, layer, name)
    return reader if norm is None else pulled_back(norm, run.at(f"blocks.{layer}.{name}.hook_scale"), reader)


def _post_bias(run: Recorded, layer: int, name: Literal["ln1_post", "ln2_post"], reader: Reader) -> Iterator[Terms]:
    norm = _norm_of(run, layer, name)
    if norm is not None:
        yield from _bias(f"L{layer}.{name}.b", layer, norm.b, reader)


def _bias(label: str, layer: int, bias: Float[Tensor, "d_model"] | None, reader: Reader) -> Iterator[Terms]:
    if bias is not None:
        yield Terms("bias", layer, label, (-1,), (reader @ wide(bias.data))[:, None])


def _whole(run: Recorded, kind: str, layer: int, label: str, point: str, reader: Reader) -> Terms:
    return Terms(kind, layer, label, (-1,), (run.at(point) * reader).sum(-1, keepdim=True))


def _numbered(kind: str, layer: int, label: str, values: Float[Tensor, "prompt term"]) -> Terms:
    return Terms(kind, layer, label, range(values.shape[1]), values)


def joined(terms: Sequence[Terms]) -> Float[Tensor, "prompt part"]:
    """All terms side by side, on the CPU."""
    return torch.cat([each.values.cpu().double() for each in terms], 1)
