"""The figures of published models, as their configuration files state them.

Grouped by architecture and licence; each name has the repository whose config.json was read, and those of its fields
that decide the shape. Fields that are left out have the value that `transformers` gives them in that architecture.
"""

from collections.abc import Mapping

Figures = tuple[str, Mapping[str, object]]
"""The repository and the fields."""


def _llama(
    width: int, ffn: int, layers: int, heads: tuple[int, int], vocabulary: int, context: int, **more: object
) -> dict[str, object]:
    """The words that Llama and its relatives share."""
    return {
        "hidden_size": width,
        "intermediate_size": ffn,
        "num_hidden_layers": layers,
        "num_attention_heads": heads[0],
        "num_key_value_heads": heads[1],
        "vocab_size": vocabulary,
        "max_position_embeddings": context,
        **more,
    }


def _llama3_rope(factor: float) -> dict[str, object]:
    """How Llama 3.1 and 3.2 stretch their positions."""
    return {
        "rope_type": "llama3",
        "factor": factor,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }


def _pythia(width: int, layers: int, heads: int, vocabulary: int = 50_304) -> dict[str, object]:
    sizes = {"hidden_size": width, "intermediate_size": 4 * width, "vocab_size": vocabulary}
    counts = {"num_hidden_layers": layers, "num_attention_heads": heads, "max_position_embeddings": 2048}
    return {**sizes, **counts, "rotary_pct": 0.25, "rotary_emb_base": 10_000}


def _gpt2(width: int, layers: int, heads: int) -> dict[str, object]:
    return {"n_embd": width, "n_layer": layers, "n_head": heads, "n_positions": 1024, "vocab_size": 50_257}


def _opt(width: int, layers: int, heads: int) -> dict[str, object]:
    sizes = {"hidden_size": width, "ffn_dim": 4 * width, "word_embed_proj_dim": width}
    return {**sizes, "num_hidden_layers": layers, "num_attention_heads": heads, "vocab_size": 50_272}


_TIGHT = {"rms_norm_eps": 1e-5}
_TIED = {"tie_word_embeddings": True}
_LLAMA3 = {**_TIGHT, "rope_theta": 500_000.0}
_FAR = {"rope_theta": 1_000_000.0}
_GEMMA3 = {"head_dim": 256, "sliding_window": 512, "rope_theta": 1_000_000.0, "rope_local_base_freq": 10_000.0}

SHAPES: Mapping[tuple[str, str], Mapping[str, Figures]] = {
    ("LlamaForCausalLM", "Llama 2 Community Licence"): {
        "llama-2-7b": ("meta-llama/Llama-2-7b-hf", _llama(4096, 11_008, 32, (32, 32), 32_000, 4096, **_TIGHT)),
        "llama-2-13b": ("meta-llama/Llama-2-13b-hf", _llama(5120, 13_824, 40, (40, 40), 32_000, 4096, **_TIGHT)),
        "llama-2-70b": ("meta-llama/Llama-2-70b-hf", _llama(8192, 28_672, 80, (64, 8), 32_000, 4096, **_TIGHT)),
    },
    ("LlamaForCausalLM", "Llama 3.1 Community Licence"): {
        "llama-3.1-8b": (
            "meta-llama/Llama-3.1-8B",
            _llama(4096, 14_336, 32, (32, 8), 128_256, 131_072, **_LLAMA3, rope_scaling=_llama3_rope(8.0)),
        ),
        "llama-3.1-70b": (
            "meta-llama/Llama-3.1-70B",
            _llama(8192, 28_672, 80, (64, 8), 128_256, 131_072, **_LLAMA3, rope_scaling=_llama3_rope(8.0)),
        ),
    },
    ("LlamaForCausalLM", "Llama 3.2 Community Licence"): {
        "llama-3.2-1b": (
            "meta-llama/Llama-3.2-1B",
            _llama(2048, 8192, 16, (32, 8), 128_256, 131_072, **_LLAMA3, **_TIED, rope_scaling=_llama3_rope(32.0)),
        ),
        "llama-3.2-3b": (
            "meta-llama/Llama-3.2-3B",
            _llama(3072, 8192, 28, (24, 8), 128_256, 131_072, **_LLAMA3, **_TIED, rope_scaling=_llama3_rope(32.0)),
        ),
    },
    ("LlamaForCausalLM", "Apache-2.0"): {
        "tinyllama-1.1b": (
            "TinyLlama/TinyLlama-1.1B-Chat-v1.0",
            _llama(2048, 5632, 22, (32, 4), 32_000, 2048, **_TIGHT),
        ),
        "smollm-135m": (
            "HuggingFaceTB/SmolLM-135M",
            _llama(576, 1536, 30, (9, 3), 49_152, 2048, **_TIGHT, **_TIED),
        ),
        "smollm2-135m": (
            "HuggingFaceTB/SmolLM2-135M",
            _llama(576, 1536, 30, (9, 3), 49_152, 8192, **_TIGHT, **_TIED, rope_theta=100_000.0),
        ),
        "smollm2-360m": (
            "HuggingFaceTB/SmolLM2-360M",
            _llama(960, 2560, 32, (15, 5), 49_152, 8192, **_TIGHT, **_TIED, rope_theta=100_000.0),
        ),
        "smollm2-1.7b": (
            "HuggingFaceTB/SmolLM2-1.7B",
            _llama(2048, 8192, 24, (32, 32), 49_152, 8192, **_TIGHT, **_TIED, rope_theta=130_000.0),
        ),
    },
    ("SmolLM3ForCausalLM", "Apache-2.0"): {
        "smollm3-3b": (
            "HuggingFaceTB/SmolLM3-3B",
            _llama(2048, 11_008, 36, (16, 4), 128_256, 65_536, rope_theta=5_000_000.0),
        ),
    },
    ("MistralForCausalLM", "Apache-2.0"): {
        "mistral-7b-v0.1": (
            "mistralai/Mistral-7B-v0.1",
            _llama(4096, 14_336, 32, (32, 8), 32_000, 32_768, **_TIGHT, sliding_window=4096),
        ),
    },
    ("MixtralForCausalLM", "Apache-2.0"): {
        "mixtral-8x7b": (
            "mistralai/Mixtral-8x7B-v0.1",
            _llama(4096, 14_336, 32, (32, 8), 32_000, 32_768, **_TIGHT, **_FAR, num_local_experts=8),
        ),
    },
    ("Qwen2ForCausalLM", "Apache-2.0"): {
        "qwen2-0.5b": ("Qwen/Qwen2-0.5B", _llama(896, 4864, 24, (14, 2), 151_936, 131_072, **_FAR, **_TIED)),
        "qwen2.5-0.5b": ("Qwen/Qwen2.5-0.5B", _llama(896, 4864, 24, (14, 2), 151_936, 32_768, **_FAR, **_TIED)),
    },
    ("Qwen3ForCausalLM", "Apache-2.0"): {
        "qwen3-0.6b": (
            "Qwen/Qwen3-0.6B",
            _llama(1024, 3072, 28, (16, 8), 151_936, 40_960, **_FAR, **_TIED, head_dim=128),
        ),
    },
    ("Qwen2MoeForCausalLM", "Tongyi Qianwen Licence"): {
        "qwen1.5-moe-a2.7b": (
            "Qwen/Qwen1.5-MoE-A2.7B",
            _llama(2048, 5632, 24, (16, 16), 151_936, 8192, **_FAR, num_experts=60, num_experts_per_tok=4),
        ),
    },
    ("Qwen3MoeForCausalLM", "Apache-2.0"): {
        "qwen3-30b-a3b": (
            "Qwen/Qwen3-30B-A3B",
            _llama(2048, 6144, 48, (32, 4), 151_936, 40_960, **_FAR, head_dim=128, norm_topk_prob=True),
        ),
    },
    ("GemmaForCausalLM", "Gemma Terms of Use"): {
        "gemma-2b": ("google/gemma-2b", _llama(2048, 16_384, 18, (8, 1), 256_000, 8192)),
    },
    ("Gemma2ForCausalLM", "Gemma Terms of Use"): {
        "gemma-2-2b": ("google/gemma-2-2b", _llama(2304, 9216, 26, (8, 4), 256_000, 8192)),
    },
    ("Gemma3ForCausalLM", "Gemma Terms of Use"): {
        "gemma-3-270m": ("google/gemma-3-270m", _llama(640, 2048, 18, (4, 1), 262_144, 32_768, **_GEMMA3)),
        "gemma-3-1b": ("google/gemma-3-1b-pt", _llama(1152, 6912, 26, (4, 1), 262_144, 32_768, **_GEMMA3)),
    },
    ("Phi3ForCausalLM", "MIT"): {
        "phi-3-mini-4k": (
            "microsoft/Phi-3-mini-4k-instruct",
            _llama(3072, 8192, 32, (32, 32), 32_064, 4096, sliding_window=2047),
        ),
    },
    ("Olmo2ForCausalLM", "Apache-2.0"): {
        "olmo-2-1b": (
            "allenai/OLMo-2-0425-1B",
            _llama(2048, 8192, 16, (16, 16), 100_352, 4096, rms_norm_eps=1e-6, rope_theta=500_000.0),
        ),
        "olmo-2-7b": (
            "allenai/OLMo-2-1124-7B",
            _llama(4096, 11_008, 32, (32, 32), 100_352, 4096, rms_norm_eps=1e-6, rope_theta=500_000.0),
        ),
    },
    ("OlmoeForCausalLM", "Apache-2.0"): {
        "olmoe-1b-7b": (
            "allenai/OLMoE-1B-7B-0924",
            _llama(2048, 1024, 16, (16, 16), 50_304, 4096, num_experts=64, num_experts_per_tok=8),
        ),
    },
    ("GPT2LMHeadModel", "MIT"): {
        "gpt2": ("openai-community/gpt2", _gpt2(768, 12, 12)),
        "gpt2-medium": ("openai-community/gpt2-medium", _gpt2(1024, 24, 16)),
        "gpt2-large": ("openai-community/gpt2-large", _gpt2(1280, 36, 20)),
        "gpt2-xl": ("openai-community/gpt2-xl", _gpt2(1600, 48, 25)),
    },
    ("GPTNeoXForCausalLM", "Apache-2.0"): {
        "pythia-70m": ("EleutherAI/pythia-70m", _pythia(512, 6, 8)),
        "pythia-160m": ("EleutherAI/pythia-160m", _pythia(768, 12, 12)),
        "pythia-410m": ("EleutherAI/pythia-410m", _pythia(1024, 24, 16)),
        "pythia-1b": ("EleutherAI/pythia-1b", _pythia(2048, 16, 8)),
        "pythia-1.4b": ("EleutherAI/pythia-1.4b", _pythia(2048, 24, 16)),
        "pythia-2.8b": ("EleutherAI/pythia-2.8b", _pythia(2560, 32, 32)),
        "pythia-6.9b": ("EleutherAI/pythia-6.9b", _pythia(4096, 32, 32, 50_432)),
        "pythia-12b": ("EleutherAI/pythia-12b", _pythia(5120, 36, 40, 50_688)),
    },
    ("GPTJForCausalLM", "Apache-2.0"): {
        "gpt-j-6b": (
            "EleutherAI/gpt-j-6b",
            {"n_embd": 4096, "n_layer": 28, "n_head": 16, "rotary_dim": 64, "n_positions": 2048, "vocab_size": 50_400},
        ),
    },
    ("GPTNeoForCausalLM", "MIT"): {
        "gpt-neo-125m": (
            "EleutherAI/gpt-neo-125m",
            {
                "hidden_size": 768,
                "num_layers": 12,
                "num_heads": 12,
                "vocab_size": 50_257,
                "attention_types": [[["global", "local"], 6]],
            },
        ),
    },
    ("OPTForCausalLM", "OPT Licence"): {
        "opt-125m": ("facebook/opt-125m", _opt(768, 12, 12)),
        "opt-1.3b": ("facebook/opt-1.3b", _opt(2048, 24, 32)),
    },
    ("BloomForCausalLM", "BigScience RAIL 1.0"): {
        "bloom-560m": (
            "bigscience/bloom-560m",
            {"hidden_size": 1024, "n_layer": 24, "n_head": 16, "vocab_size": 250_880, "seq_length": 2048},
        ),
    },
}
