"""Folders in Hugging Face layout: read as `safetensors` reads them, refused by name when something is wrong."""

import json
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from published import write_folder, write_tokenizer
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from tiny import BASE, CONFIGS

from interp.errors import LoadError
from interp.models.loading import load
from interp.models.sources.safetensors import open_folder, read_header


def test_values_are_those_that_safetensors_reads(tmp_path: Path) -> None:
    write_folder(tmp_path, BASE)
    checkpoint = open_folder(tmp_path)
    expected = load_file(tmp_path / "model.safetensors")
    assert checkpoint.shapes == {name: tuple(values.shape) for name, values in expected.items()}
    for name, values in expected.items():
        torch.testing.assert_close(checkpoint.read(name), values, rtol=0, atol=0)
        torch.testing.assert_close(checkpoint.read(name, slice(1, 3)), values[1:3], rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_floating_dtypes_are_read_as_stored(dtype: torch.dtype, tmp_path: Path) -> None:
    values = torch.randn(5, 3).to(dtype)
    save_file({"w": values}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text('{"architectures": ["Any"]}')
    assert torch.equal(open_folder(tmp_path).read("w"), values)


def test_weights_in_another_dtype_are_refused_by_name(tmp_path: Path) -> None:
    write_folder(tmp_path, BASE)
    tensors = load_file(tmp_path / "model.safetensors")
    tensors["model.norm.weight"] = tensors["model.norm.weight"].to(torch.float8_e4m3fn)
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(
        LoadError, match=r"'model\.norm\.weight' .* stored as F8_E4M3; weights must be F64, F32, F16, BF16"
    ):
        load(tmp_path, device="cpu")


def header_of(**entries: Any) -> bytes:
    text = json.dumps(entries).encode()
    return struct.pack("<Q", len(text)) + text


GOOD = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
DAMAGED = {
    "empty": (b"", "announces 8 more bytes"),
    "endless_header": (struct.pack("<Q", 2**60) + b"{}", "announces 1152921504606846976 more bytes"),
    "no_json": (struct.pack("<Q", 4) + b"{{{{", "is not valid JSON"),
    "no_object": (struct.pack("<Q", 2) + b"[]", "must hold a JSON object"),
    "deep_json": (struct.pack("<Q", 10**5) + b"[" * 10**5, "is not valid JSON"),
    "short_data": (header_of(w=GOOD) + bytes(7), "its header describes 8 bytes of data, the file holds 7"),
    "long_data": (header_of(w=GOOD) + bytes(9), "its header describes 8 bytes of data, the file holds 9"),
    "hole": (header_of(w=GOOD | {"data_offsets": [4, 12]}) + bytes(12), "starts at byte 4 of the data instead of 0"),
    "overlap": (header_of(v=GOOD, w=GOOD) + bytes(8), "'w' starts at byte 0 of the data instead of 8"),
    "size": (header_of(w=GOOD | {"shape": [3]}) + bytes(8), "describes tensor 'w' as"),
    "negative": (header_of(w=GOOD | {"shape": [-2], "data_offsets": [0, -8]}), "describes tensor 'w' as"),
    "fraction": (header_of(w=GOOD | {"shape": [2.0]}) + bytes(8), "describes tensor 'w' as"),
    "dtype": (header_of(w=GOOD | {"dtype": "F33"}) + bytes(8), "describes tensor 'w' as"),
    "no_offsets": (header_of(w={"dtype": "F32", "shape": [2]}) + bytes(8), "describes tensor 'w' as"),
    "no_entry": (header_of(w=3), "describes tensor 'w' as 3"),
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_each_kind_of_damage_is_named(damage: str, tmp_path: Path) -> None:
    data, message = DAMAGED[damage]
    (tmp_path / "w.safetensors").write_bytes(data)
    with pytest.raises(LoadError, match=message):
        read_header(tmp_path / "w.safetensors")


def test_truncations_and_flipped_bytes_end_in_an_error_or_a_model(tmp_path: Path) -> None:
    rng = random.Random(0)
    write_folder(tmp_path, BASE)
    path = tmp_path / "model.safetensors"
    whole = path.read_bytes()
    refused = 0
    for index in range(200):
        damaged = bytearray(whole)
        if index % 3 == 0:
            del damaged[rng.randrange(len(damaged)) :]
        else:
            damaged[rng.randrange(4000 if index % 3 == 1 else len(whole))] = rng.choice(
                [0, 255, 34, rng.randrange(256)]
            )
        path.write_bytes(damaged)
        try:
            model = load(tmp_path, device="cpu")
        except LoadError:
            refused += 1
        else:
            assert all(bool(weight.isfinite().all()) for weight in model.weights().values())
    assert refused > 100


# ------------------------------------------------------------------------------------------- what is missing


def edit_config(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change the configuration of a written model in place."""
    fields = json.loads((folder / "config.json").read_text())
    change(fields)
    (folder / "config.json").write_text(json.dumps(fields))


def edit_tensors(folder: Path, change: Callable[[dict[str, torch.Tensor]], Any]) -> None:
    """Change the tensors of a written model in place."""
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")


def test_missing_and_unused_tensors_are_both_named(tmp_path: Path) -> None:
    write_folder(tmp_path, BASE)
    edit_tensors(
        tmp_path, lambda t: t.update({"model.layers.1.extra.weight": t.pop("model.layers.1.mlp.up_proj.weight")})
    )
    message = r"1 missing \(model\.layers\.1\.mlp\.up_proj\.weight\); 1 unused \(model\.layers\.1\.extra\.weight\)"
    with pytest.raises(LoadError, match=message):
        load(tmp_path, device="cpu")


def test_a_bias_that_the_configuration_denies_is_unused(tmp_path: Path) -> None:
    write_folder(tmp_path, CONFIGS["biases"])
    edit_config(tmp_path, lambda c: c.update(attention_bias=False))
    with pytest.raises(LoadError, match=r"12 unused \(model\.layers\.0\.self_attn\.k_proj\.bias, .*…\)"):
        load(tmp_path, device="cpu")


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        (
            "intermediate_size",
            45,
            r"mlp\.gate_proj\.weight has the shape \(44, 30\), the configuration makes it \(45, 30\)",
        ),
        ("vocab_size", 70, r"embed_tokens\.weight has the shape \(67, 30\), the configuration makes it \(70, 30\)"),
        ("num_key_value_heads", 3, r"k_proj\.weight has the shape \(20, 30\), the configuration makes it \(30, 30\)"),
        ("num_hidden_layers", 4, r"9 missing \(model\.layers\.3\."),
        ("num_hidden_layers", 2**40, "should have 1099511627776 layers but holds only"),
        ("tie_word_embeddings", False, r"1 missing \(lm_head\.weight\)"),
        ("architectures", ["OtherForCausalLM"], "'OtherForCausalLM', which is not supported"),
        ("architectures", None, "must name one architecture"),
        ("architectures", ["A", "B"], "must name one architecture"),
    ],
)
def test_a_configuration_that_contradicts_the_tensors_is_refused(
    field: str, value: object, message: str, tmp_path: Path
) -> None:
    write_folder(tmp_path, BASE)
    edit_config(tmp_path, lambda c: c.update({field: value}))
    with pytest.raises(LoadError, match=message):
        load(tmp_path, device="cpu")


def test_a_tied_unembedding_may_be_stored_again_if_it_is_the_same(tmp_path: Path) -> None:
    write_folder(tmp_path, BASE)
    edit_tensors(tmp_path, lambda t: t.update({"lm_head.weight": t["model.embed_tokens.weight"].clone()}))
    assert load(tmp_path, device="cpu").config.tied_embeddings
    edit_tensors(tmp_path, lambda t: t["lm_head.weight"][-1].add_(1.0))
    with pytest.raises(LoadError, match=r"said to be tied, but lm_head\.weight differs"):
        load(tmp_path, device="cpu")


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_refused_by_name(value: float, tmp_path: Path) -> None:
    write_folder(tmp_path, BASE)
    edit_tensors(tmp_path, lambda t: t["model.layers.2.input_layernorm.weight"][5].fill_(value))
    with pytest.raises(LoadError, match=r"model\.layers\.2\.input_layernorm\.weight .* NaN or infinite"):
        load(tmp_path, device="cpu")


def test_values_too_large_for_half_precision_are_refused_not_made_infinite(tmp_path: Path) -> None:
    write_folder(tmp_path, BASE)
    edit_tensors(tmp_path, lambda t: t["model.norm.weight"][0].fill_(70_000.0))
    assert load(tmp_path, device="cpu").weights()["ln_final.w"][0] == 70_000
    with pytest.raises(LoadError, match=r"model\.norm\.weight .* too large for torch\.float16; load it as float32"):
        load(tmp_path, device="cpu", dtype="float16")


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    write_folder(tmp_path, BASE, shard_bytes=20_000)
    gone = sorted(tmp_path.glob("*.safetensors"))[1]
    gone.unlink()
    with pytest.raises(LoadError, match=f"names files that are not in the folder: {gone.name}"):
        open_folder(tmp_path)


def test_an_index_cannot_reach_outside_its_folder(tmp_path: Path) -> None:
    write_folder(tmp_path / "model", BASE)
    (tmp_path / "other.safetensors").write_bytes((tmp_path / "model" / "model.safetensors").read_bytes())
    index = {"weight_map": {"model.norm.weight": "../other.safetensors"}}
    (tmp_path / "model" / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(LoadError, match=r"not in the folder: \.\./other\.safetensors"):
        open_folder(tmp_path / "model")


def test_one_tensor_in_two_shards_is_refused(tmp_path: Path) -> None:
    write_folder(tmp_path, BASE)
    (tmp_path / "again.safetensors").write_bytes((tmp_path / "model.safetensors").read_bytes())
    index = {"weight_map": {"a": "model.safetensors", "b": "again.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(LoadError, match=r"holds the tensor .* in two files"):
        open_folder(tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("config.json", "{", r"config\.json is not valid JSON"),
        ("config.json", "[]", r"config\.json must hold a JSON object"),
        ("config.json", "\udcff", r"config\.json is not valid JSON"),
        ("model.safetensors.index.json", "{}", "has no weight_map"),
        ("model.safetensors.index.json", '{"weight_map": {"a": 3}}', "has no weight_map"),
    ],
)
def test_damaged_json_is_named(name: str, content: str, message: str, tmp_path: Path) -> None:
    write_folder(tmp_path, BASE)
    (tmp_path / name).write_bytes(content.encode(errors="surrogateescape"))
    with pytest.raises(LoadError, match=message):
        open_folder(tmp_path)


def test_folders_without_configuration_or_weights_say_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match=r"has no config\.json"):
        open_folder(tmp_path)
    (tmp_path / "config.json").write_text('{"architectures": ["LlamaForCausalLM"]}')
    with pytest.raises(LoadError, match=r"neither model\.safetensors nor model\.safetensors\.index\.json"):
        open_folder(tmp_path)


def test_a_pickle_in_a_folder_is_not_opened(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"architectures": ["LlamaForCausalLM"]}')
    (tmp_path / "pytorch_model.bin").write_bytes(b"\x80\x04cos\nsystem\n(S'touch hacked'\ntR.")
    with pytest.raises(LoadError, match=r"pytorch_model\.bin is a Python pickle.*save_pretrained"):
        load(tmp_path)


def test_the_tokenizer_comes_with_the_folder(tmp_path: Path) -> None:
    from dataclasses import replace

    write_folder(tmp_path, replace(BASE, d_vocab=310))
    write_tokenizer(tmp_path)
    model = load(tmp_path, device="cpu")
    assert model.tokenizer.d_vocab == 310
    assert model.to_str_tokens(model.to_tokens("the city"))[0] == "<|endoftext|>"


def test_a_tokenizer_in_an_older_format_says_how_to_convert_it(tmp_path: Path) -> None:
    write_folder(tmp_path, BASE)
    (tmp_path / "vocab.json").write_text("{}")
    with pytest.raises(LoadError, match=r"has vocab\.json but no tokenizer\.json.*AutoTokenizer"):
        load(tmp_path, device="cpu")


def test_metadata_of_the_header_is_no_tensor(tmp_path: Path) -> None:
    save_file({"w": torch.zeros(2)}, tmp_path / "w.safetensors", metadata={"format": "pt"})
    with safe_open(tmp_path / "w.safetensors", "pt") as theirs:
        assert theirs.metadata() == {"format": "pt"}
    assert list(read_header(tmp_path / "w.safetensors")) == ["w"]
