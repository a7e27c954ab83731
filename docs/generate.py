"""Write what comes from the code: `docs/hook-points.md` from the registry of points, README's table of families."""

import re
from pathlib import Path

from interp.models.families.registry import FAMILIES
from interp.models.presets import presets
from interp.points import markdown_table

HERE = Path(__file__).resolve().parent

HOOK_POINTS = """\
# Hook points

A name is a promise: one shape and one equation, on every architecture. The table is written from the registry in
`interp/points.py` by `make docs`; `interp points` prints the points of one model, with their sizes.

`model.run_with_cache(tokens, names)` records values, `model.run_with_hooks(tokens, [(names, edit)])` reads or
replaces them. A selection is an exact name, a glob (`"blocks.*.attn.hook_pattern"`), a predicate, or a list of those; a
name that matches nothing is an error. Points *on demand* are computed only while somebody listens, and are recorded
only when they are asked for by name.

Axes: `head` counts query heads and `kv_head` key-value heads, never expanded; `query_pos` is the position that looks
and `key_pos` the one looked at; `d_mlp` counts neurons.

"""


def hook_points() -> str:
    """The whole page."""
    return HOOK_POINTS + markdown_table()


GGUF = {
    "LlamaForCausalLM": "llama",
    "MistralForCausalLM": "llama",
    "MixtralForCausalLM": "llama",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
    "Qwen2MoeForCausalLM": "qwen2moe",
    "Qwen3MoeForCausalLM": "qwen3moe",
    "Phi3ForCausalLM": "phi3",
    "GPT2LMHeadModel": "gpt2",
    "GemmaForCausalLM": "gemma",
    "Gemma2ForCausalLM": "gemma2",
    "Gemma3ForCausalLM": "gemma3",
}
"""Published class → the architecture that GGUF files of such models state."""

FAMILY_TABLE = re.compile(r"<!-- families -->\n.*?<!-- /families -->\n", re.DOTALL)


def families() -> str:
    """One row a published class: shapes that are known by name, and the architecture of its GGUF files."""
    rows = ["| class | models by name | GGUF |", "|---|---|---|"]
    for family in FAMILIES:
        for architecture in family.architectures if family.layout == "hf" else ():
            names = [name for name, preset in presets().items() if preset.architecture == architecture]
            stated = GGUF.get(architecture)
            gguf = f"`{stated}`" if stated else ""
            rows.append(f"| `{architecture}` | {', '.join(f'`{name}`' for name in names)} | {gguf} |")
    return "<!-- families -->\n" + "\n".join(rows) + "\n<!-- /families -->\n"


if __name__ == "__main__":
    (HERE / "hook-points.md").write_text(hook_points(), encoding="utf-8")
    readme = HERE.parent / "README.md"
    readme.write_text(
        FAMILY_TABLE.sub(families().replace("\\", r"\\"), readme.read_text(encoding="utf-8")), encoding="utf-8"
    )
