"""One door for every model: what it accepts, what it refuses, what it costs, and what the model then is."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from published import QUANTISABLE, small_tokenizer, write_folder, write_gguf
from tiny import BASE, CONFIGS, random_tokens, tiny

from interp.errors import LoadError, UsageError
from interp.models.filling import Axes
from interp.models.loading import from_transformers, load, read_config
from interp.models.sources.files import combined_sha256, file_sha256
from interp.models.transformer import Transformer

WITH_TEXT = replace(QUANTISABLE, d_vocab=300)


def test_a_loaded_model_is_frozen_and_in_eval_mode(tmp_path: Path) -> None:
    write_folder(tmp_path, BASE)
    model = load(tmp_path, device="cpu")
    assert not model.training
    assert not any(parameter.requires_grad for parameter in model.parameters())


def test_the_default_dtype_is_float32_whatever_is_stored(tmp_path: Path) -> None:
    write_folder(tmp_path, BASE).to(torch.bfloat16).save_pretrained(tmp_path)
    assert load(tmp_path, device="cpu").dtype == torch.float32


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16", "float16"])
def test_a_dtype_may_be_given_by_name_or_as_itself(dtype: str, tmp_path: Path) -> None:
    write_folder(tmp_path, CONFIGS["biases"])
    exact = tiny(CONFIGS["biases"])
    for asked in (dtype, getattr(torch, dtype)):
        model = load(tmp_path, device="cpu", dtype=asked)
        assert model.dtype == getattr(torch, dtype)
        for name, weight in model.weights().items():
            assert torch.equal(weight, exact.weights()[name].to(weight.dtype)), name


@pytest.mark.parametrize("dtype", ["float8", "torch.float32", "int8", torch.int64, torch.float8_e4m3fn])
def test_other_dtypes_are_a_usage_error(dtype: object, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot hold weights; choose float32, bfloat16, float16, float64"):
        load(tmp_path, dtype=dtype)  # type: ignore[arg-type]


@pytest.mark.parametrize("device", ["tpu-pod", "cuda:99", "cpu:x", "hpu", "privateuseone", "xla", "", 1.5])
def test_a_device_that_is_not_here_is_a_usage_error(device: object, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"'{device}' cannot be used here: ."):
        load(tmp_path, device=device)  # type: ignore[arg-type]


def test_weights_are_not_loaded_onto_a_device_without_values(tmp_path: Path) -> None:
    hf = write_folder(tmp_path, BASE)
    with pytest.raises(UsageError, match="'meta' holds shapes without values"):
        load(tmp_path, device="meta")
    with pytest.raises(UsageError, match="'meta' holds shapes without values"):
        from_transformers(hf, device=torch.device("meta"))
    assert Transformer(BASE, device="meta").W_E.shape == (BASE.d_vocab, BASE.d_model), "as a shape it may be built"


def test_the_model_lands_on_the_device_asked_for(device: str, tmp_path: Path) -> None:
    hf = write_gguf(tmp_path / "tiny.gguf", WITH_TEXT, tokenizer=small_tokenizer())
    model = load(tmp_path / "tiny.gguf", device=device)
    tokens = random_tokens(model.config, 2, 9)
    assert model.device.type == device
    torch.testing.assert_close(model(tokens.to(device)).cpu(), hf(tokens, use_cache=False).logits, rtol=0, atol=1e-3)


def test_provenance_says_what_was_loaded(tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    write_gguf(path, BASE)
    found = load(path, device="cpu", dtype="bfloat16").provenance
    assert found["model"] == found["source"] == str(path)
    assert (found["dtype"], found["device"]) == ("bfloat16", "cpu")
    assert found["weights_sha256"] == file_sha256(path)
    assert set(found["versions"]) == {"interp", "torch", "python"}


def test_the_hash_identifies_the_weights(tmp_path: Path) -> None:
    hf = write_folder(tmp_path / "one", BASE)
    write_folder(tmp_path / "shards", BASE, shard_bytes=20_000)
    shards = list((tmp_path / "shards").glob("*.safetensors"))
    assert combined_sha256(shards) == combined_sha256(reversed(shards))
    first = from_transformers(hf, device="cpu").provenance["weights_sha256"]
    assert first == from_transformers(hf, device="cpu").provenance["weights_sha256"]
    hf.model.norm.weight[0] += 1e-3
    assert first != from_transformers(hf, device="cpu").provenance["weights_sha256"]


def test_progress_counts_up_to_the_bytes_of_the_weights(tmp_path: Path) -> None:
    write_folder(tmp_path, BASE)
    seen: list[tuple[int, int]] = []
    model = load(tmp_path, device="cpu", progress=lambda done, total: seen.append((done, total)))
    assert seen == sorted(seen)
    assert seen[-1] == (4 * model.n_parameters, 4 * model.n_parameters)


def test_a_gguf_file_is_known_by_its_content_too(tmp_path: Path) -> None:
    write_gguf(tmp_path / "model.weights", BASE)
    assert load(str(tmp_path / "model.weights"), device="cpu").config.d_model == BASE.d_model


@pytest.mark.parametrize("suffix", ["bin", "pt", "pth", "ckpt"])
@pytest.mark.parametrize("exists", [True, False])
def test_a_pickle_is_refused_unopened_with_the_way_to_convert_it(suffix: str, exists: bool, tmp_path: Path) -> None:
    path = tmp_path / f"model.{suffix}"
    if exists:
        torch.save({"w": torch.zeros(1)}, path)
    with pytest.raises(LoadError, match=r"is a Python pickle.*from_pretrained.*save_pretrained"):
        load(path)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("smollm2-135M", r"neither a known model, a file, a folder, nor a hub id. Did you mean 'smollm2-135m'"),
        ("", "neither a known model"),
        ("folder/absent.gguf", "neither a known model, a file"),
        ("./absent", "neither a known model, a file"),
        ("/absent/folder", "neither a known model, a file"),
        ("a/b/c", "neither a known model, a file"),
        ("nul\0byte", "neither a known model"),
        ("n" * 5000, r"'n{80}'… \(5000 characters\) cannot be looked up as a file or folder: File name too long\."),
        ("org/" + "n" * 5000, r"\(5004 characters\) cannot be looked up"),
        ("~nobody\0", "cannot be looked up as a file or folder: embedded null byte"),
    ],
)
def test_names_of_nothing_are_a_load_error(name: str, message: str) -> None:
    with pytest.raises(LoadError, match=message):
        load(name)


@pytest.mark.parametrize("name", [5, None, b"smollm2-135m", torch.nn.Linear(1, 1)])
def test_what_is_no_name_is_a_usage_error(name: object) -> None:
    for door in (load, read_config):
        with pytest.raises(UsageError, match=f"named by a string or a path, not by {type(name).__name__}"):
            door(name)  # type: ignore[operator]


@pytest.mark.parametrize("name", ["config.json", "model.safetensors.index.json"])
def test_one_file_of_a_folder_asks_for_the_folder(name: str, tmp_path: Path) -> None:
    write_folder(tmp_path, BASE, shard_bytes=20_000)
    with pytest.raises(LoadError, match=rf"{name} is one file of a model in .* load its folder, {tmp_path}\."):
        load(tmp_path / name)


def test_a_folder_that_contradicts_itself_about_the_architecture_is_refused(tmp_path: Path) -> None:
    write_folder(tmp_path, BASE)
    stated = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(stated | {"model_type": "mistral"}))
    with pytest.raises(LoadError, match="contradicts itself: .* LlamaForCausalLM, .* model_type is 'mistral'"):
        load(tmp_path, device="cpu")


def test_a_lone_safetensors_file_asks_for_its_folder(tmp_path: Path) -> None:
    write_folder(tmp_path, BASE)
    with pytest.raises(LoadError, match=r"no configuration; load the folder with its config\.json"):
        load(tmp_path / "model.safetensors")


def test_a_text_file_is_no_model(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("not a model, but longer than any header of a model")
    with pytest.raises(LoadError, match=r"notes\.txt is not a GGUF file"):
        load(tmp_path / "notes.txt")


def test_a_revision_only_goes_with_a_hub_id(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="only means something for a hub id"):
        load(tmp_path, revision="main")


def test_a_tokenizer_that_names_more_ids_than_the_model_has_is_refused(tmp_path: Path) -> None:
    write_gguf(tmp_path / "tiny.gguf", BASE, tokenizer=small_tokenizer())
    with pytest.raises(LoadError, match="tokenizer names 300 ids but the model has only 67"):
        load(tmp_path / "tiny.gguf", device="cpu")


def test_a_model_without_tokenizer_says_so_when_asked_for_text(tmp_path: Path) -> None:
    write_gguf(tmp_path / "tiny.gguf", BASE)
    with pytest.raises(UsageError, match="without a tokenizer"):
        load(tmp_path / "tiny.gguf", device="cpu").to_tokens("text")


def test_a_tokenizer_of_transformers_comes_along(tmp_path: Path) -> None:
    from transformers import PreTrainedTokenizerFast

    hf = write_folder(tmp_path, WITH_TEXT)
    fast = PreTrainedTokenizerFast(tokenizer_object=small_tokenizer(), bos_token="<|im_start|>", pad_token="<|im_end|>")
    model = from_transformers(hf, fast, device="cpu")
    assert model.tokenizer.encode("the city, 12") == small_tokenizer().encode("the city, 12").ids
    assert (model.tokenizer.pad_id, model.tokenizer.doc_separator_id) == (2, 0)
    with pytest.raises(UsageError, match="type int has no `tokenizers` pipeline"):
        from_transformers(hf, 3, device="cpu")


def test_a_plain_tokenizers_pipeline_comes_along(tmp_path: Path) -> None:
    hf, pipeline = write_folder(tmp_path, WITH_TEXT), small_tokenizer()
    tokenizer = from_transformers(hf, pipeline, device="cpu").tokenizer
    assert tokenizer.encode("the city, 12") == pipeline.encode("the city, 12").ids
    assert tokenizer.doc_separator_id == 0
    pipeline.enable_truncation(1)
    assert len(tokenizer.encode("the city, 12")) > 1, "it is a copy"


@pytest.mark.parametrize("model", ["gpt2", 5, torch.nn.Linear(1, 1)])
def test_what_is_no_model_of_transformers_is_a_usage_error(model: object) -> None:
    came = repr(model) if isinstance(model, str) else f"an object of type {type(model).__name__}"
    with pytest.raises(UsageError, match=f"model in memory is expected.*not {came}. A name, a folder or a file goes"):
        from_transformers(model)  # type: ignore[arg-type]


@pytest.mark.parametrize("layout", ["folder", "gguf", "memory"])
def test_a_model_loaded_in_inference_mode_has_gradients_afterwards(layout: str, tmp_path: Path) -> None:
    write_gguf(tmp_path / "tiny.gguf", BASE)
    with torch.inference_mode():
        hf = write_folder(tmp_path, BASE)
        if layout == "memory":
            model = from_transformers(hf, device="cpu")
        else:
            model = load(tmp_path / "tiny.gguf" if layout == "gguf" else tmp_path, device="cpu")
    assert not any(weight.is_inference() for weight in model.weights().values())
    _, cache = model.run_with_cache(
        random_tokens(BASE, 1, 5), names="hook_embed", gradients_of=lambda logits: logits[0, -1, 3]
    )
    assert float(cache.gradients["hook_embed"].abs().sum()) > 0


def test_a_model_of_another_architecture_in_memory_is_refused() -> None:
    from transformers import FalconConfig, FalconForCausalLM

    hf = FalconForCausalLM(FalconConfig(num_hidden_layers=1, hidden_size=8, num_attention_heads=2, vocab_size=11))
    with pytest.raises(LoadError, match=r"'FalconForCausalLM', which is not supported.* Supported: LlamaForCausalLM"):
        from_transformers(hf)


@pytest.mark.parametrize(
    ("side", "groups"),
    [("a", (("a",),)), ("(a b) c", (("a", "b"), ("c",))), (" a ( b c d )", (("a",), ("b", "c", "d")))],
)
def test_axes_of_a_pattern_are_read_by_group(side: str, groups: tuple[tuple[str, ...], ...]) -> None:
    axes = Axes.parse(side)
    assert axes.groups == groups
    assert axes.shape({"a": 2, "b": 3, "c": 5, "d": 7})[0] == (2 if len(groups[0]) == 1 else 6)


# --------------------------------------------------------------------------------------- the default model


@pytest.mark.slow
def test_the_default_model_has_the_weights_that_transformers_reads_from_the_same_file(
    smollm2: Transformer, published_smollm2: torch.nn.Module
) -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    stated = published_smollm2.config.to_dict()
    del stated["quantization_config"]  # what the file was, not what was read from it; our loader refuses it
    with torch.device("meta"):
        hf = LlamaForCausalLM(LlamaConfig(**stated))
    hf.load_state_dict(published_smollm2.state_dict(), assign=True)
    theirs = from_transformers(hf, device="cpu")
    assert theirs.config == smollm2.config
    for name, weight in smollm2.weights().items():
        assert torch.equal(weight, theirs.weights()[name]), name


MEASURE = """
import resource, sys, time
from interp.models.loading import load
import interp.models.sources.gguf, torch
def peak():
    if sys.platform != "linux":
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with open("/proc/self/status") as status:  # what getrusage says on Linux includes the parent's memory
        return int(next(line for line in status if line.startswith("VmHWM")).split()[1]) * 1024
before = peak()
model = load(sys.argv[1], device="cpu", dtype=sys.argv[2])
size = sum(weight.nbytes for weight in model.weights().values())
print((peak() - before) / size)
"""


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("layout", ["gguf", "folder"])
def test_loading_takes_little_more_memory_than_the_weights(
    dtype: str, layout: str, smollm2: Transformer, tmp_path: Path
) -> None:
    """At most 1.3 times, the file's pages, the tokenizer and all imports included."""
    name = "smollm2-135m"
    if layout == "folder":
        from tiny import reference

        reference(smollm2).save_pretrained(tmp_path)
        name = str(tmp_path)
    output = subprocess.run(
        [sys.executable, "-c", MEASURE, name, dtype], check=True, capture_output=True, text=True, env=dict(os.environ)
    ).stdout
    assert 0.9 < float(output) < 1.3
