"""Every equation of the registry holds, on tiny models and on the real one; weights are views; words and tokens."""

import copy

import pytest
import torch
from tiny import BASE, CONFIGS, LLAMA_CONFIGS, random_tokens, tiny

from interp.cache import ActivationCache
from interp.errors import UsageError
from interp.models.ffn import activate
from interp.models.positions import rotation
from interp.models.transformer import Transformer


def close(actual: torch.Tensor, expected: torch.Tensor) -> None:
    """Within 1e-5 of the largest finite value."""
    finite = expected.isfinite()
    assert torch.equal(actual.isfinite(), finite)
    torch.testing.assert_close(
        actual[finite], expected[finite], rtol=0, atol=1e-5 * float(expected[finite].abs().max())
    )


def check_layer(model: Transformer, cache: ActivationCache, layer: int) -> None:
    """The equations of one layer, each from recorded inputs and published weights alone."""
    c, w = model.config, model.weights()

    def weight(name: str) -> torch.Tensor:
        return w[f"blocks.{layer}.{name}"]

    def bias(name: str) -> torch.Tensor | float:
        return w.get(f"blocks.{layer}.{name}", 0.0)

    def at(short: str) -> torch.Tensor:
        return cache[short, layer]

    for norm, source in (("ln1", "resid_pre"), ("ln2", "resid_mid")):
        close(at(f"{norm}.scale"), (at(source).square().mean(-1, keepdim=True) + c.norm_eps).sqrt())
        close(at(f"{norm}.normalized"), at(source) / at(f"{norm}.scale") * weight(f"{norm}.w"))
    for letter in "qkv":
        product = torch.einsum("bpm,hmd->bphd", at("ln1.normalized"), weight(f"attn.W_{letter.upper()}"))
        close(at(letter), product + bias(f"attn.b_{letter.upper()}"))
    for letter, heads in (("q", c.n_heads), ("k", c.n_kv_heads), ("v", c.n_kv_heads)):
        close(at(f"{letter}_input"), at("resid_pre")[:, :, None].expand(-1, -1, heads, -1))
    turn = rotation(c.rotary, c.d_head, torch.arange(at("q").shape[1], device=model.device)[None])
    close(at("rot_q"), turn(at("q")))
    close(at("rot_k"), turn(at("k")))
    shared = torch.arange(c.n_heads) // c.queries_per_kv
    scores = torch.einsum("bqhd,bkhd->bhqk", at("rot_q"), at("rot_k")[:, :, shared]) / c.d_head**0.5
    length = scores.shape[-1]
    close(
        at("attn_scores"),
        scores.masked_fill(torch.ones(length, length, device=scores.device).triu(1).bool(), -torch.inf),
    )
    close(at("pattern"), at("attn_scores").softmax(-1))
    close(at("z"), torch.einsum("bhqk,bkhd->bqhd", at("pattern"), at("v")[:, :, shared]))
    close(at("result"), torch.einsum("bphd,hdm->bphm", at("z"), weight("attn.W_O")))
    close(at("attn.out"), at("result").sum(2) + bias("attn.b_O"))
    assert torch.equal(at("attn_out"), at("attn.out"))
    close(at("resid_mid"), at("resid_pre") + at("attn_out"))
    assert torch.equal(at("mlp_in"), at("resid_mid"))
    close(at("pre"), at("ln2.normalized") @ weight("mlp.W_gate") + bias("mlp.b_gate"))
    close(at("pre_linear"), at("ln2.normalized") @ weight("mlp.W_in") + bias("mlp.b_in"))
    close(at("post"), activate(c.activation, at("pre")) * at("pre_linear"))
    close(at("mlp.out"), at("post") @ weight("mlp.W_out") + bias("mlp.b_out"))
    assert torch.equal(at("mlp_out"), at("mlp.out"))
    close(at("resid_post"), at("resid_mid") + at("mlp_out"))
    if layer + 1 < c.n_layers:
        assert torch.equal(cache["resid_pre", layer + 1], at("resid_post"))


def check_ends(model: Transformer, tokens: torch.Tensor, logits: torch.Tensor, cache: ActivationCache) -> None:
    assert torch.equal(cache["embed"], model.W_E[tokens])
    assert torch.equal(cache["resid_pre", 0], cache["embed"])
    final = cache["resid_post", -1]
    close(cache["ln_final.normalized"], final / cache["ln_final.scale"] * model.weights()["ln_final.w"])
    close(logits, cache["ln_final.normalized"] @ model.W_U)
    assert torch.equal(cache["unembed.out"], logits)
    close(model.unembed_residual(final), logits)


@pytest.mark.parametrize("name", LLAMA_CONFIGS)
def test_every_equation_holds_on_tiny_models(name: str, device: str) -> None:
    model = tiny(CONFIGS[name]).to(device)
    tokens = random_tokens(model.config, 2, 9).to(device)
    logits, cache = model.run_with_cache(tokens, "*")
    for layer in range(model.config.n_layers):
        check_layer(model, cache, layer)
    check_ends(model, tokens, logits, cache)


def test_every_equation_holds_on_the_real_model(smollm2: Transformer) -> None:
    tokens = smollm2.to_tokens("The Eiffel Tower is located in the city of")
    logits, cache = smollm2.run_with_cache(tokens, "*")
    for layer in range(smollm2.config.n_layers):
        check_layer(smollm2, cache, layer)
    check_ends(smollm2, tokens, logits, cache)


def test_scores_depend_on_relative_positions_only() -> None:
    """The same tokens further right, behind padding that is not read, give the same scores."""
    q, k = torch.randn(1, 4, 1, 10), torch.randn(1, 4, 1, 10)
    found = []
    for shift in (0, 57):
        turn = rotation(BASE.rotary, 10, torch.arange(4)[None] + shift)
        found.append(torch.einsum("bphd,bshd->bhps", turn(q), turn(k)))
    torch.testing.assert_close(found[0], found[1], rtol=0, atol=1e-4)


def test_grouped_queries_equal_an_expanded_multi_head_copy() -> None:
    grouped, multi = tiny(CONFIGS["grouped_query"]), tiny(CONFIGS["multi_head"])
    shared = torch.arange(BASE.n_heads) // BASE.queries_per_kv
    for name, weight in multi.weights().items():
        source = grouped.weights()[name]
        weight.copy_(source[shared] if name.endswith(("W_K", "W_V")) else source)
    tokens = random_tokens(BASE, 2, 8)
    close(multi(tokens), grouped(tokens))


@pytest.mark.parametrize("name", ["grouped_query", "biases"])
def test_stacked_weights_are_views_of_what_the_layers_use(name: str) -> None:
    model = tiny(CONFIGS[name])
    pairs = {"W_Q": "attn.W_Q", "W_K": "attn.W_K", "W_V": "attn.W_V", "W_O": "attn.W_O"}
    pairs |= {"W_gate": "mlp.W_gate", "W_in": "mlp.W_in", "W_out": "mlp.W_out"}
    if model.config.o_bias:
        pairs |= {"b_O": "attn.b_O", "b_out": "mlp.b_out"}
    for copy_of in (model, copy.deepcopy(model), tiny(CONFIGS[name]).to(torch.float64)):
        for stacked, single in pairs.items():
            for layer in range(3):
                part = getattr(copy_of, stacked)[layer]
                assert torch.equal(part, copy_of.weights()[f"blocks.{layer}.{single}"])
                assert part.data_ptr() == copy_of.weights()[f"blocks.{layer}.{single}"].data_ptr()
    before = model(random_tokens(BASE, 1, 4))
    model.W_Q[1].zero_()
    assert not torch.equal(model(random_tokens(BASE, 1, 4)), before), "writing to a view changes the model"


def test_weights_cover_every_parameter_once() -> None:
    model = tiny(CONFIGS["biases"])
    assert sum(weight.numel() for weight in model.weights().values()) == model.n_parameters
    assert model.n_parameters == sum(parameter.numel() for parameter in model.parameters())
    assert not any(parameter.requires_grad for parameter in model.parameters())
    assert not model.training


def test_provenance_tells_the_dtype_and_device_of_now() -> None:
    assert tiny().provenance["dtype"] == "float32"
    assert tiny().to(torch.bfloat16).provenance["dtype"] == "bfloat16"


@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.int32])
def test_tokens_may_be_any_whole_numbers(dtype: torch.dtype) -> None:
    tokens = random_tokens(BASE, 2, 4)
    assert torch.equal(tiny()(tokens.to(dtype)), tiny()(tokens))


def test_words_become_tokens_and_back(smollm2: Transformer) -> None:
    text = "The Louvre is in"
    tokens = smollm2.to_tokens(text)
    assert tokens[0, 0] == smollm2.tokenizer.doc_separator_id == 0
    assert torch.equal(smollm2.to_tokens(text, prefix="none"), tokens[:, 1:])
    assert smollm2.to_string(tokens[:, 1:]) == text
    assert "".join(smollm2.to_str_tokens(tokens[:, 1:])) == text
    assert smollm2.to_str_tokens(text) == smollm2.to_str_tokens(tokens)
    assert smollm2.to_string(torch.tensor([smollm2.to_single_token(" Paris")])) == " Paris"


def test_notebooks_show_where_tokens_begin(smollm2: Transformer) -> None:
    shown = smollm2.to_str_tokens("a <b>\n")._repr_html_()
    assert "·&lt;" in shown
    assert "↵" in shown
    assert 'title="position 0"' in shown


def test_texts_that_cannot_be_read_are_refused(smollm2: Transformer) -> None:
    with pytest.raises(UsageError, match=r"context holds 8192; shorten"):
        smollm2.to_tokens("a b c d " * 4000)
    with pytest.raises(UsageError):
        smollm2.to_tokens("")
    with pytest.raises(UsageError, match="no text"):
        smollm2.to_tokens([])
    with pytest.raises(UsageError, match="to_batch"):
        smollm2.to_tokens(["one", "one two three"])
    with pytest.raises(UsageError, match="A text or a list of texts"):
        smollm2.to_tokens(5)
    assert smollm2.to_string([504, 260]) == smollm2.to_string(torch.tensor([504, 260]))
    with pytest.raises(UsageError, match="One sequence"):
        smollm2.to_str_tokens(smollm2.to_tokens(["one", "two"]))
    with pytest.raises(UsageError, match="without a tokenizer"):
        tiny().to_tokens("text")


def test_logits_on_a_device_are_those_of_the_cpu(smollm2: Transformer, device: str) -> None:
    """Within 1e-3 on the real model, with TF32 off."""
    torch.backends.cuda.matmul.allow_tf32 = False
    tokens = smollm2.to_tokens("The Louvre is located in the city of")
    there = copy.deepcopy(smollm2).to(device)
    assert (there(tokens).cpu() - smollm2(tokens)).abs().max() < 1e-3


@pytest.mark.skipif(not torch.cuda.is_available(), reason="asks a question about accelerators")
def test_a_forward_pass_never_waits_for_the_accelerator() -> None:
    model = tiny(device="cuda")
    tokens, mask = random_tokens(BASE, 2, 9).cuda(), torch.ones(2, 9, dtype=torch.bool, device="cuda")
    torch.cuda.set_sync_debug_mode("error")
    try:
        logits = [model(tokens), model(tokens, mask), model.run_with_cache(tokens, "*")[0]]
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert all(found.isfinite().all() for found in logits)
