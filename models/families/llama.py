"""Llama as Hugging Face publishes it (`LlamaForCausalLM`): SmolLM2, Llama 2 and 3, TinyLlama and their relatives."""

from collections.abc import Mapping

from interp.errors import LoadError
from interp.models.config import Activation, ModelConfig, RotaryConfig
from interp.models.families.family import Family, Row
from interp.models.families.fields import Fields
from interp.models.sources.checkpoint import Checkpoint

_BLOCK, _OURS = "model.layers.{layer}.", "blocks.{layer}."

ROWS = (
    Row("model.embed_tokens.weight", "embed.W_E", "d_vocab d_model -> d_vocab d_model"),
    Row(_BLOCK + "input_layernorm.weight", _OURS + "ln1.w", "d_model -> d_model"),
    Row(_BLOCK + "self_attn.q_proj.weight", _OURS + "attn.W_Q", "(head d_head) d_model -> head d_model d_head"),
    Row(_BLOCK + "self_attn.k_proj.weight", _OURS + "attn.W_K", "(kv_head d_head) d_model -> kv_head d_model d_head"),
    Row(_BLOCK + "self_attn.v_proj.weight", _OURS + "attn.W_V", "(kv_head d_head) d_model -> kv_head d_model d_head"),
    Row(_BLOCK + "self_attn.o_proj.weight", _OURS + "attn.W_O", "d_model (head d_head) -> head d_head d_model"),
    Row(_BLOCK + "self_attn.q_proj.bias", _OURS + "attn.b_Q", "(head d_head) -> head d_head", "qkv_bias"),
    Row(_BLOCK + "self_attn.k_proj.bias", _OURS + "attn.b_K", "(kv_head d_head) -> kv_head d_head", "qkv_bias"),
    Row(_BLOCK + "self_attn.v_proj.bias", _OURS + "attn.b_V", "(kv_head d_head) -> kv_head d_head", "qkv_bias"),
    Row(_BLOCK + "self_attn.o_proj.bias", _OURS + "attn.b_O", "d_model -> d_model", "o_bias"),
    Row(_BLOCK + "post_attention_layernorm.weight", _OURS + "ln2.w", "d_model -> d_model"),
    Row(_BLOCK + "mlp.gate_proj.weight", _OURS + "mlp.W_gate", "d_mlp d_model -> d_model d_mlp"),
    Row(_BLOCK + "mlp.up_proj.weight", _OURS + "mlp.W_in", "d_mlp d_model -> d_model d_mlp"),
    Row(_BLOCK + "mlp.down_proj.weight", _OURS + "mlp.W_out", "d_model d_mlp -> d_mlp d_model"),
    Row(_BLOCK + "mlp.gate_proj.bias", _OURS + "mlp.b_gate", "d_mlp -> d_mlp", "mlp_bias"),
    Row(_BLOCK + "mlp.up_proj.bias", _OURS + "mlp.b_in", "d_mlp -> d_mlp", "mlp_bias"),
    Row(_BLOCK + "mlp.down_proj.bias", _OURS + "mlp.b_out", "d_model -> d_model", "mlp_bias"),
    Row("model.norm.weight", "ln_final.w", "d_model -> d_model"),
    Row("lm_head.weight", "unembed.W_U", "d_vocab d_model -> d_model d_vocab", "untied"),
)

ACTIVATIONS: Mapping[str, Activation] = {
    "silu": "silu",
    "swish": "silu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
}

# Fields that leave the forward pass alone: names, token ids, training, generation and bookkeeping.
HARMLESS = (
    *(
        "_name_or_path",
        "_model_name_or_path",
        "architectures",
        "transformers_version",
        "transformers.js_config",
        "is_llama_config",
    ),
    *(
        "dtype",
        "torch_dtype",
        "use_cache",
        "initializer_range",
        "attention_dropout",
        "pretraining_tp",
        "tokenizer_class",
    ),
    *("bos_token_id", "eos_token_id", "pad_token_id", "unk_token_id", "sep_token_id", "decoder_start_token_id"),
    *("output_attentions", "output_hidden_states", "output_scores", "return_dict", "return_dict_in_generate"),
    *("_attn_implementation", "_attn_implementation_autoset", "_attn_implementation_internal", "_commit_hash"),
    *("chunk_size_feed_forward", "id2label", "label2id", "problem_type", "finetuning_task", "task_specific_params"),
    *("torchscript", "use_bfloat16", "tf_legacy_loss", "is_decoder", "tie_encoder_decoder", "prefix"),
    *("max_length", "min_length", "do_sample", "early_stopping", "num_beams", "num_beam_groups", "diversity_penalty"),
    *("temperature", "top_k", "top_p", "typical_p", "repetition_penalty", "length_penalty", "no_repeat_ngram_size"),
    *("encoder_no_repeat_ngram_size", "bad_words_ids", "num_return_sequences", "remove_invalid_values"),
    *("forced_bos_token_id", "forced_eos_token_id", "exponential_decay_length_penalty"),
    *("suppress_tokens", "begin_suppress_tokens"),
)


def read_config(checkpoint: Checkpoint) -> ModelConfig:
    """The configuration in `config.json`, with the defaults that `transformers` gives to fields of older files."""
    fields = Fields(checkpoint.fields, f"The configuration of {checkpoint.source}")
    _check_model_type(fields)
    n_heads, d_model = fields.integer("num_attention_heads"), fields.integer("hidden_size")
    for key, value in (("rope_interleaved", False), ("is_encoder_decoder", False), ("add_cross_attention", False)):
        fields.must_be(key, value)
    fields.must_be("pruned_heads", {})
    attention_bias = fields.boolean("attention_bias", False)
    config = ModelConfig(
        n_layers=fields.integer("num_hidden_layers"),
        d_model=d_model,
        n_heads=n_heads,
        n_kv_heads=fields.integer("num_key_value_heads", n_heads),
        d_head=fields.integer("head_dim") if "head_dim" in fields else even_share(d_model, n_heads, fields.source),
        d_mlp=fields.integer("intermediate_size"),
        d_vocab=fields.integer("vocab_size"),
        n_ctx=fields.integer("max_position_embeddings", 2048),
        norm_eps=fields.number("rms_norm_eps", 1e-6),
        activation=_activation(fields),
        rotary=_rotary(fields),
        qkv_bias=attention_bias,
        o_bias=attention_bias,
        mlp_bias=fields.boolean("mlp_bias", False),
        tied_embeddings=fields.boolean("tie_word_embeddings", False),
    )
    fields.refuse_others(HARMLESS)
    return config


def _check_model_type(fields: Fields) -> None:
    """The second name of the architecture, which `transformers` goes by: the two must agree."""
    stated = fields.word("model_type", "llama")
    if stated != "llama":
        raise LoadError(
            f"{fields.source} contradicts itself: its architecture is LlamaForCausalLM, whose model_type is 'llama', "
            f"but model_type is {stated!r}. Correct whichever is wrong in a copy of the configuration."
        )


def even_share(d_model: int, n_heads: int, source: str) -> int:
    """The head width where none is stated: the model's width divided among the heads."""
    if n_heads < 1 or d_model % n_heads:
        raise LoadError(f"{source}: a width of {d_model} cannot be shared evenly by {n_heads} heads.")
    return d_model // n_heads


def _activation(fields: Fields) -> Activation:
    stated = fields.word("hidden_act", "silu")
    if stated not in ACTIVATIONS:
        raise LoadError(f"{fields.source}: hidden_act is {stated!r}; known are {', '.join(ACTIVATIONS)}.")
    return ACTIVATIONS[stated]


def _rotary(fields: Fields) -> RotaryConfig:
    """Rotary settings: `rope_parameters` since transformers 5, `rope_theta` and `rope_scaling` before."""
    new, old = fields.table("rope_parameters"), fields.table("rope_scaling")
    outer = {"rope_theta": fields.number("rope_theta")} if "rope_theta" in fields else {}
    stated: dict[str, object] = {}
    for source in (new, old, outer):
        for key, value in source.items():
            name = "rope_type" if key == "type" else key
            if stated.setdefault(name, value) != value:
                raise LoadError(f"{fields.source} contradicts itself: {name} is both {stated[name]!r} and {value!r}.")
    inner = Fields(stated, f"{fields.source} (rotary positions)")
    inner.must_be("partial_rotary_factor", 1.0)
    theta, kind = inner.number("rope_theta", 10_000.0), inner.word("rope_type", "default")
    match kind:
        case "default":
            rotary = RotaryConfig(theta=theta)
        case "linear":
            rotary = RotaryConfig(theta=theta, scaling="linear", factor=inner.number("factor"))
        case "llama3":
            rotary = RotaryConfig(
                theta=theta,
                scaling="llama3",
                factor=inner.number("factor"),
                low_freq_factor=inner.number("low_freq_factor"),
                high_freq_factor=inner.number("high_freq_factor"),
                original_context=inner.integer("original_max_position_embeddings"),
            )
        case _:
            raise LoadError(f"{inner.source}: rope_type is {kind!r}; known are default, linear and llama3.")
    inner.refuse_others(())
    return rotary


FAMILY = Family(
    layout="hf",
    architectures=("LlamaForCausalLM",),
    rows=ROWS,
    config=read_config,
    copies=(("lm_head.weight", "model.embed_tokens.weight"),),
    ignored=("model.layers.*.self_attn.rotary_emb.inv_freq", "model.rotary_emb.inv_freq"),
)
