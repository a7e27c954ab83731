"""Damaged models end in our error, or load as they were: no crash, no hang, no wide allocation, no file outside.

Each fault that damage once found has a test with its name. `make soak` goes through many more seeds.
"""

import copy
import importlib
import json
import os
import random
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import fuzz
import pytest
from families.case import Case
from mutations import CONFIG, WRONG, bait, edit_gguf, edit_header, edit_placement, prepared, rebuild, walk
from published import write_folder, write_tokenizer
from tiny import BASE

from interp.errors import LoadError
from interp.models.assignments import assignments
from interp.models.families.registry import family_of
from interp.models.loading import load
from interp.models.sources.checkpoint import Checkpoint
from interp.models.sources.files import MAX_TEXT_BYTES, parse_json
from interp.models.sources.gguf import open_gguf
from interp.models.sources.memory import open_memory
from interp.models.sources.safetensors import open_folder, read_header

COUNT = 40
CASES: dict[str, Case] = {
    name: case
    for path in sorted((Path(__file__).parent / "families").glob("*.py"))
    for name, case in getattr(importlib.import_module(f"families.{path.stem}"), "CASES", {}).items()
}


def test_forty_damaged_models_end_in_our_error_or_load_as_they_were(tmp_path: Path) -> None:
    found = list(fuzz.run(tmp_path, COUNT))
    assert [f"{mutation}: {complaints}" for mutation, _, complaints in found if complaints] == []
    assert len(found) == COUNT
    assert sum(outcome.kind == "refused" for _, outcome, _ in found) > COUNT // 2


@pytest.mark.parametrize(
    ("outcome", "complaint"),
    [
        (fuzz.Outcome("loaded", same=False), "other logits"),
        (fuzz.Outcome("a hang", "no answer"), "a hang: no answer"),
        (fuzz.Outcome("a foreign KeyError", "x"), "a foreign KeyError: x"),
        (fuzz.Outcome("refused", "no", outside=["/etc/passwd"]), "opened /etc/passwd"),
        (fuzz.Outcome("refused", "no", peak=1 << 30), "1024 MiB for 10 bytes"),
        (fuzz.Outcome("refused", "\x1b[2J"), "cannot be shown"),
        (fuzz.Outcome("refused", "x" * 10**5), "cannot be shown"),
    ],
)  # fmt: skip
def test_what_should_not_be_is_noticed(outcome: fuzz.Outcome, complaint: str) -> None:
    (found,) = outcome.complaints(10)
    assert complaint in found


def test_what_should_be_is_not_complained_about() -> None:
    assert fuzz.Outcome("refused", "said why").complaints(10) == []
    assert fuzz.Outcome("loaded", same=True).complaints(10) == []


# ------------------------------------------------------------------------------------ faults that were found


@pytest.fixture
def single(tmp_path: Path) -> Path:
    """A whole model in a folder, with another one outside it (see `bait`)."""
    folder = tmp_path / "copies" / "model"
    for place in (folder, tmp_path / "bait"):
        write_folder(place, CONFIG)
        write_tokenizer(place)
    return folder


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"])
def test_a_link_that_leads_out_of_the_folder_is_not_followed(name: str, single: Path) -> None:
    (single / name).unlink()
    (single / name).symlink_to(bait(single, name))
    with pytest.raises(LoadError, match=rf"{name} is a link that leads out of its folder"):
        load(single, device="cpu")


def test_a_link_to_another_file_of_the_folder_is_followed(single: Path) -> None:
    (single / "model.safetensors").rename(single / "weights")
    (single / "model.safetensors").symlink_to("weights")
    (single.parent / "alias").symlink_to(single)
    assert load(single.parent / "alias", device="cpu").config == CONFIG


def test_snapshots_of_the_hub_link_to_the_blobs_beside_them(tmp_path: Path) -> None:
    snapshot, blobs = tmp_path / "models--a--b" / "snapshots" / "0123", tmp_path / "models--a--b" / "blobs"
    write_folder(snapshot, BASE)
    blobs.mkdir()
    for number, path in enumerate(sorted(snapshot.iterdir())):
        path.rename(blobs / str(number))
        path.symlink_to(f"../../blobs/{number}")
    assert load(snapshot, device="cpu").config == BASE
    blobs.rename(tmp_path / "elsewhere")
    (snapshot / "config.json").unlink()
    (snapshot / "config.json").symlink_to(tmp_path / "elsewhere" / "0")
    with pytest.raises(LoadError, match="leads out of its folder"):
        open_folder(snapshot)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"])
def test_a_pipe_is_not_waited_for(name: str, single: Path) -> None:
    (single / name).unlink()
    os.mkfifo(single / name)
    with pytest.raises(LoadError, match=rf"{name} is not a regular file"):
        load(single, device="cpu")


def test_links_in_a_circle_are_refused(single: Path) -> None:
    (single / "config.json").unlink()
    (single / "config.json").symlink_to("config.json")
    with pytest.raises(LoadError, match=r"config\.json"):
        load(single, device="cpu")


@pytest.mark.parametrize("name", ["x" * 300, "a\0b", "\x1b[2J"])
def test_names_that_no_file_can_have_are_refused(name: str, tmp_path: Path) -> None:
    write_folder(tmp_path, CONFIG, shard_bytes=30_000)
    edit_placement(tmp_path, lambda places: places.update({min(places): name}))
    with pytest.raises(LoadError, match="names files that are not in the folder"):
        open_folder(tmp_path)


def test_a_tensor_that_a_header_names_twice_is_refused_even_if_it_is_empty(single: Path) -> None:
    def twice(header: dict[str, Any]) -> bytes:
        empty = '"model.norm.weight": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}'
        return ("{" + empty + ", " + json.dumps(header)[1:]).encode()

    edit_header(single / "model.safetensors", twice)
    with pytest.raises(LoadError, match=r"'model\.norm\.weight' stands twice"):
        open_folder(single)


def test_a_setting_that_stands_twice_is_refused(single: Path) -> None:
    text = (single / "config.json").read_text()
    (single / "config.json").write_text('{"rms_norm_eps": 0.5, ' + text[1:])
    with pytest.raises(LoadError, match="'rms_norm_eps' stands twice in one object"):
        open_folder(single)


@pytest.mark.parametrize("shape", [[0, 2**70], [1] * 9, [10**4000] * 300])
def test_shapes_that_no_tensor_has_are_refused(shape: list[int], single: Path) -> None:
    entry = {"dtype": "F32", "shape": shape, "data_offsets": [0, 0 if 0 in shape else 4]}
    edit_header(single / "model.safetensors", lambda header: header.update(extra=entry))
    with pytest.raises(LoadError, match="describes tensor 'extra' as"):
        read_header(single / "model.safetensors")


def test_json_is_taken_apart_only_as_deep_as_it_can_be_shown() -> None:
    assert parse_json(b'{"a":' * 30 + b"1" + b"}" * 30, "it")
    for depth in (33, 500, 900):
        with pytest.raises(LoadError, match="nested more than 32 deep"):
            parse_json(b'{"a":' + b"[" * depth + b"]" * depth + b"}", "it")


@pytest.mark.parametrize("text", [r'{"a": "\ud800"}', r'{"a": [{"\udc00": 1}]}', r'{"\ud83d": 1}'])
def test_halves_of_characters_are_refused(text: str, single: Path) -> None:
    """As the name of a token one came as far as the tokenizers library, which raises its own error."""
    with pytest.raises(LoadError, match="half of a character"):
        parse_json(text.encode(), "it")
    with pytest.raises(LoadError, match="is not valid JSON"):
        parse_json(b'{"a": "\xed\xa0\x80"}', "it")
    assert parse_json(rb'{"a": "\ud83d\ude42 \u00e4"}', "it") == {"a": "🙂 ä"}
    (single / "tokenizer_config.json").write_text(r'{"pad_token": "\ud800"}')
    with pytest.raises(LoadError, match=r"tokenizer_config\.json is damaged: it holds half of a character"):
        load(single, device="cpu")


def test_a_description_longer_than_any_model_needs_is_refused_unread(tmp_path: Path) -> None:
    huge = tmp_path / "model.safetensors"
    huge.write_bytes(struct.pack("<Q", MAX_TEXT_BYTES + 1))
    os.truncate(huge, 2 * MAX_TEXT_BYTES)  # a hole: it takes no space
    with pytest.raises(LoadError, match=r"head of .* has \d+ bytes, more than"):
        read_header(huge)
    for name in ("config.json", "tokenizer.json"):
        write_folder(tmp_path, BASE)
        (tmp_path / name).touch()
        os.truncate(tmp_path / name, MAX_TEXT_BYTES + 1)
        with pytest.raises(LoadError, match=rf"{name} has \d+ bytes, more than"):
            load(tmp_path, device="cpu")
        (tmp_path / name).unlink()


def test_metadata_whose_entries_are_lists_are_refused(tmp_path: Path) -> None:
    place = tmp_path / "copy"
    (prepared(tmp_path) / "gguf").rename(place)
    nested = struct.pack("<IIQ", 9, 9, 2) + struct.pack("<IQ", 0, 0) * 2

    def put(data: bytearray) -> None:
        at = data.index(key := b"llama.attention.head_count") + len(key)
        rebuild(data, bytes(data[:at]) + nested, bytes(data[at + 8 :]))

    edit_gguf(place, put)
    checkpoint = open_gguf(place / "model.gguf")
    with pytest.raises(LoadError, match=r"head_count is .*; it must be a whole number"):
        family_of(checkpoint).config(checkpoint)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c.update(num_hidden_layers=2**62), "should have 4611686018427387904 layers but holds only"),
        (lambda c: c.update(max_position_embeddings=2**63), "must be a whole number of at most 64 bits"),
        (lambda c: c.update(rms_norm_eps=1e39), "rms_norm_eps is 1e\\+39; it must be a finite number"),
        (lambda c: c.update(rms_norm_eps=10**400), "it must be a finite number"),
    ],
)
def test_numbers_that_would_overflow_are_refused(
    change: Callable[[dict[str, Any]], object], message: str, single: Path
) -> None:
    fields = json.loads((single / "config.json").read_text())
    change(fields)
    (single / "config.json").write_text(json.dumps(fields))
    with pytest.raises(LoadError, match=message):
        load(single, device="cpu")


def test_more_layers_than_tensors_are_refused_before_a_family_lists_them(tmp_path: Path) -> None:
    """Qwen's configuration says something of each layer: a list that long would fill the memory."""
    fields = {"architectures": ["Qwen3ForCausalLM"], "num_hidden_layers": 2**40}
    write_folder(tmp_path, BASE)
    for stated in (fields, fields | {"num_hidden_layers": 1, "text_config": {"num_hidden_layers": 2**40}}):
        (tmp_path / "config.json").write_text(json.dumps(stated))
        with pytest.raises(LoadError, match="should have 1099511627776 layers but holds only"):
            load(tmp_path, device="cpu")


def published(name: str) -> Checkpoint:
    """A variant of a family in memory, with its configuration as JSON would hold it."""
    checkpoint = open_memory(CASES[name].build())
    return replace(checkpoint, fields=json.loads(json.dumps(checkpoint.fields, default=str)))


def read(checkpoint: Checkpoint) -> None:
    """All that a configuration has to pass before weights are read."""
    family = family_of(checkpoint)
    assignments(family, family.config(checkpoint), checkpoint)


@pytest.mark.parametrize("name", CASES)
def test_every_family_reads_or_refuses_a_setting_of_any_kind(name: str) -> None:
    whole, rng, refused = published(name), random.Random(name), 0
    for place in range(len(walk(whole.fields))):
        fields = copy.deepcopy(whole.fields)
        container, key = walk(fields)[place]
        container[key] = rng.choice(WRONG)
        try:
            read(replace(whole, fields=fields))
        except LoadError:
            refused += 1
    assert refused > 5


@pytest.mark.parametrize("original", [0, -5])
@pytest.mark.parametrize("name", ["llama_yarn", "llama_longrope"])
def test_a_context_of_no_length_is_refused_not_divided_by(name: str, original: int) -> None:
    whole = published(name)
    rope = {key: value for key, value in whole.fields["rope_parameters"].items() if key != "factor"}
    fields = {**whole.fields, "rope_parameters": rope | {"original_max_position_embeddings": original}}
    with pytest.raises(LoadError, match=f"original_max_position_embeddings is {original}; it must be positive"):
        read(replace(whole, fields=fields))


@pytest.mark.parametrize("stated", [[[["global"], 10**18]], [[[], 10**18]], [[["global", "local"], 10**30]]])
def test_repetitions_without_end_are_not_written_out(stated: list[Any]) -> None:
    whole = published("gpt_neo")
    fields = {key: value for key, value in whole.fields.items() if key != "attention_layers"}
    with pytest.raises(LoadError, match="attention_types comes to"):
        read(replace(whole, fields={**fields, "attention_types": stated}))


class Panic(BaseException):
    """What a panic of Rust code looks like from Python: no `Exception`."""


def test_a_panic_in_the_tokenizers_library_is_a_load_error(single: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Panicking:
        @staticmethod
        def from_str(text: str) -> object:
            raise Panic("index out of bounds")

    monkeypatch.setattr("interp.models.tokenizer_files.Backend", Panicking)
    with pytest.raises(LoadError, match="does not describe a tokenizer: index out of bounds"):
        load(single, device="cpu")


def test_an_interrupt_while_the_tokenizer_is_read_stays_one(single: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupted:
        @staticmethod
        def from_str(text: str) -> object:
            raise KeyboardInterrupt

    monkeypatch.setattr("interp.models.tokenizer_files.Backend", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        load(single, device="cpu")


def test_messages_are_plain_and_of_bounded_length_whatever_the_file_says() -> None:
    message = str(LoadError("one\ntwo \x1b[2J\ud800 " + "x" * 10**6 + " the end"))
    assert message.startswith("one\ntwo \\x1b[2J\\ud800 xxx")
    assert message.endswith("the end")
    assert len(message) < 2100
    assert str(LoadError("größer 🙂")) == "größer 🙂"
