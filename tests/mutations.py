"""What can be wrong with a model's files, one function a kind of damage. Each takes a copy of a whole model.

Only damage that shows is made: a byte of a weight, or a plausible number in a configuration, makes another model, and
nobody can tell.
"""

import json
import os
import random
import shutil
import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from published import QUANTISABLE, small_tokenizer, write_folder, write_gguf, write_tokenizer
from safetensors.torch import load_file, save_file

CONFIG = replace(QUANTISABLE, n_layers=2, d_model=32, d_mlp=64, d_vocab=300)
SUBJECTS = {"single": "single", "sharded": "sharded", "gguf": "gguf/model.gguf"}
"""The whole models, by the path to load."""

Damage = Callable[[Path, random.Random], None]
KINDS: list[tuple[str, Damage]] = []
"""Every kind of damage, with the subject that it is done to."""


@dataclass(frozen=True)
class Mutation:
    """One kind of damage, with a seed for where and how."""

    what: tuple[str, Damage]
    seed: int

    @property
    def subject(self) -> str:
        return self.what[0]

    def __str__(self) -> str:
        return f"{self.what[1].__name__} of {self.subject}, seed {self.seed}"

    def apply(self, copy: Path) -> Path:
        """Damage a copy, and say what to load."""
        self.what[1](copy, random.Random(self.seed))
        return copy / "model.gguf" if self.subject == "gguf" else copy


def prepared(folder: Path) -> Path:
    """The whole models, and beside them a bait: another whole model, which no damage may lead to."""
    originals = folder / "originals"
    if not originals.exists():
        for name, shard_bytes in (("single", None), ("sharded", 30_000), ("../bait", None)):
            write_folder(originals / name, CONFIG, shard_bytes=shard_bytes)
            write_tokenizer(originals / name)
        (originals / "gguf").mkdir()
        write_gguf(originals / SUBJECTS["gguf"], CONFIG, tokenizer=small_tokenizer())
    return originals


def damage(*subjects: str) -> Callable[[Damage], Damage]:
    """Register a kind of damage."""

    def register(function: Damage) -> Damage:
        KINDS.extend((subject, function) for subject in subjects)
        return function

    return register


def bait(copy: Path, name: str) -> Path:
    """The file of this name in the model that stands outside; a shard's place is taken by all weights."""
    found = copy.parents[1] / "bait" / name
    return found if found.exists() else found.with_name("model.safetensors")


# ------------------------------------------------------------------------------------------------- any file


def weights_of(copy: Path, rng: random.Random) -> Path:
    """A file with weights."""
    return rng.choice(sorted([*copy.glob("*.safetensors"), *copy.glob("*.gguf")]))


def head_bytes(path: Path) -> int:
    """Where the tensors begin."""
    data = path.read_bytes()
    if path.suffix == ".gguf":
        return data.index(b"output_norm.weight") + len(b"output_norm.weight") + 24
    return 8 + int.from_bytes(data[:8], "little")


def cut(path: Path, length: int) -> None:
    """Truncate."""
    os.truncate(path, length)


@damage("single", "sharded", "gguf")
def cut_in_the_head(copy: Path, rng: random.Random) -> None:
    path = weights_of(copy, rng)
    cut(path, rng.choice([0, 1, 7, 8, 9, rng.randrange(head_bytes(path))]))


@damage("single", "sharded", "gguf")
def cut_in_the_data(copy: Path, rng: random.Random) -> None:
    path = weights_of(copy, rng)
    size = path.stat().st_size
    cut(path, rng.choice([size - 1, rng.randrange(head_bytes(path) + 31, size)]))


@damage("single", "sharded")
def flip_a_byte_of_the_header(copy: Path, rng: random.Random) -> None:
    path = weights_of(copy, rng)
    data = bytearray(path.read_bytes())
    data[rng.randrange(head_bytes(path))] ^= rng.randrange(1, 256)
    path.write_bytes(data)


@damage("single", "sharded")
def lengthen(copy: Path, rng: random.Random) -> None:
    with open(weights_of(copy, rng), "ab") as file:
        file.write(rng.randbytes(rng.choice([1, 4, 4096])))


@damage("single", "sharded")
def link_out_of_the_folder(copy: Path, rng: random.Random) -> None:
    names = ("*.safetensors", "*.json")
    path = rng.choice(sorted(file for name in names for file in copy.glob(name)))
    path.unlink()
    target = bait(copy, path.name)
    path.symlink_to(rng.choice([target, os.path.relpath(target, copy)]))


@damage("single", "sharded")
def pipe_in_place_of_a_file(copy: Path, rng: random.Random) -> None:
    path = rng.choice(sorted([*copy.glob("*.safetensors"), *copy.glob("*.json")]))
    path.unlink()
    if path.name == "tokenizer.json":
        path.symlink_to("/dev/zero")
    else:
        os.mkfifo(path)


# ------------------------------------------------------------------------------------------ safetensors headers


def edit_header(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Rewrite the header; the data stay."""
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    text = change(header)
    encoded = text if isinstance(text, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(encoded)) + encoded + data[8 + length :])


def some_tensor(header: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    """The entry of a tensor."""
    entry: dict[str, Any] = header[rng.choice(sorted(header.keys() - {"__metadata__"}))]
    return entry


@damage("single", "sharded")
def absurd_shape(copy: Path, rng: random.Random) -> None:
    shapes = ([2**62, 2**62], [0, 2**70], [-1, -5], [1] * 5000, [10**4000] * 300, [1e308], "3", None, [[]], [True])
    edit_header(weights_of(copy, rng), lambda header: some_tensor(header, rng).update(shape=rng.choice(shapes)))


@damage("single")
def absurd_offsets(copy: Path, rng: random.Random) -> None:
    spans = ([0, 2**63], [-8, 0], [2**64, 2**64 + 8], [8, 0], [0.0, 8.0], [0], [], {}, [None, 1], [10**300, 10**301])
    edit_header(weights_of(copy, rng), lambda header: some_tensor(header, rng).update(data_offsets=rng.choice(spans)))


@damage("single")
def absurd_length(copy: Path, rng: random.Random) -> None:
    path = weights_of(copy, rng)
    data = path.read_bytes()
    path.write_bytes(struct.pack("<Q", rng.choice([0, 1, 2**31, 2**40, 2**63, 2**64 - 1])) + data[8:])


@damage("single", "sharded")
def wrong_dtype(copy: Path, rng: random.Random) -> None:
    dtypes = ("I32", "U32", "F64", "F16", "BF16", "BOOL", "f32", "", 3, None, ["F32"], {})
    edit_header(weights_of(copy, rng), lambda header: some_tensor(header, rng).update(dtype=rng.choice(dtypes)))


@damage("single")
def tensor_twice(copy: Path, rng: random.Random) -> None:
    def twice(header: dict[str, Any]) -> bytes:
        name = rng.choice(sorted(header.keys() - {"__metadata__"}))
        entry = rng.choice([header[name], {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}])
        return (json.dumps(header)[:-1] + f", {json.dumps(name)}: {json.dumps(entry)}" + "}").encode()

    edit_header(weights_of(copy, rng), twice)


@damage("single")
def strange_names(copy: Path, rng: random.Random) -> None:
    names = ("\x1b[2J", "\ud800", "", "x" * 100_000, "../" * 9, "a\nb", "\x00", "\u202e")
    entry = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
    edit_header(weights_of(copy, rng), lambda header: header.update({rng.choice(names): entry}))


@damage("single")
def header_nested_deep(copy: Path, rng: random.Random) -> None:
    deep = deeply_nested(rng)
    where = rng.choice(["shape", "dtype", "entry", "more"])

    def nested(header: dict[str, Any]) -> bytes:
        entry = json.dumps({"dtype": "F32", "shape": [1], "data_offsets": [0, 4]} | {where: "here"})
        text = "here" if where == "entry" else entry
        return (
            json.dumps(header)[:-1] + f', "one more": {text}'.replace('"here"', deep).replace("here", deep) + "}"
        ).encode()

    edit_header(weights_of(copy, rng), nested)


@damage("single", "sharded")
def not_a_number(copy: Path, rng: random.Random) -> None:
    path = weights_of(copy, rng)
    tensors = load_file(path)
    values = tensors[rng.choice(sorted(tensors))].flatten()
    values[rng.randrange(len(values))] = rng.choice([torch.nan, torch.inf, -torch.inf])
    save_file(tensors, path)


# ------------------------------------------------------------------------------------------------- JSON files


def deeply_nested(rng: random.Random) -> str:
    """JSON nested so deep that Python's stack, or C's, may not be enough."""
    depth = rng.choice([40, 200, 900, 10**5])
    opening, closing = rng.choice([("[", "]"), ('{"a":', "}")])
    return opening * depth + "0" + closing * depth


WRONG: tuple[Any, ...] = (
    *("text", "", [], {}, [[]], {"a": {}}, [None], -1, 0, -0.5, 10**30, -(10**30), 10**400, 10**4000),
    *(
        float("inf"),
        float("nan"),
        1e308,
        "\ud800",
        "\x1b[2J",
        "x" * 100_000,
        ["x"] * 1000,
        {str(n): n for n in range(999)},
    ),
)
"""What no field that matters may be, or what does not matter where it stands."""


@damage("single", "sharded")
def wrong_setting(copy: Path, rng: random.Random) -> None:
    path = copy / "config.json"
    fields = json.loads(path.read_text())
    table = rng.choice([fields, fields, fields, fields["rope_parameters"]])
    free = ("rms_norm_eps", "rope_theta", "max_position_embeddings")  # any positive number makes some model
    key = rng.choice(sorted(table))
    wrong = [value for value in WRONG if not (key in free and isinstance(value, int | float) and 0 < value < 1e300)]
    table[key] = rng.choice(wrong)
    path.write_text(json.dumps(fields))


@damage("single")
def unknown_setting(copy: Path, rng: random.Random) -> None:
    path = copy / "config.json"
    keys = ("sliding_window", "\ud800", "\x1b[2J", "x" * 10_000, "a\nb", "quantization_config")
    path.write_text(json.dumps(json.loads(path.read_text()) | {rng.choice(keys): rng.choice(WRONG)}))


@damage("single")
def huge_size(copy: Path, rng: random.Random) -> None:
    path = copy / "config.json"
    fields = json.loads(path.read_text())
    key = rng.choice([key for key, value in sorted(fields.items()) if type(value) is int and "_id" not in key])
    fields[key] = rng.choice([2**31, 2**40, 2**53, 2**63 - 1, 2**63, 2**64, 10**400, 10**4200])
    path.write_text(json.dumps(fields))


def json_file(copy: Path, rng: random.Random) -> Path:
    """Any of the model's JSON files."""
    return rng.choice(sorted(path for path in copy.glob("*.json") if path.name != "generation_config.json"))


@damage("single", "sharded")
def json_cut(copy: Path, rng: random.Random) -> None:
    path = json_file(copy, rng)
    cut(path, rng.randrange(path.stat().st_size - 2))


@damage("single", "sharded")
def json_nested_deep(copy: Path, rng: random.Random) -> None:
    path = json_file(copy, rng)
    text = path.read_text()
    colon = rng.choice([place for place, character in enumerate(text) if text[place : place + 2] == ": "])
    end = min((text.find(mark, colon) for mark in ",\n}" if text.find(mark, colon) > 0), default=len(text))
    path.write_text(rng.choice([deeply_nested(rng), text[: colon + 1] + deeply_nested(rng) + text[end:]]))


@damage("single", "sharded")
def json_of_another_kind(copy: Path, rng: random.Random) -> None:
    texts = ("", "[]", "null", "3", '"x"', "NaN", "{", "\ufeff{}", '{"a": 1, "a": 2}', "{}", " " * 1000, "\x00")
    json_file(copy, rng).write_text(rng.choice(texts))


@damage("single")
def setting_twice(copy: Path, rng: random.Random) -> None:
    path = copy / "config.json"
    path.write_text('{"hidden_size": 64, ' + path.read_text().strip()[1:])


@damage("single")
def tokenizer_bytes(copy: Path, rng: random.Random) -> None:
    path = copy / "tokenizer.json"
    data = bytearray(path.read_bytes())
    for _ in range(rng.choice([1, 1, 5])):
        data[rng.randrange(len(data))] = rng.choice([0, 34, 44, 48, 57, 91, 123, 125, 255])
    path.write_bytes(data)


@damage("single", "sharded")
def tokenizer_part(copy: Path, rng: random.Random) -> None:
    path = copy / "tokenizer.json"
    stated = json.loads(path.read_text())
    places = list(walk(stated))
    shallow = [place for place in places if len(place[0]) < 500]
    container, key = rng.choice(shallow if rng.random() < 0.7 else places)
    container[key] = rng.choice([*WRONG, None, True, 2**32 - 1, 2**63, {"type": "Sequence"}, {"type": "BPE"}])
    path.write_text(json.dumps(stated))


def walk(value: Any) -> list[tuple[Any, Any]]:
    """Every place inside a JSON value, as container and key."""
    inner = (
        list(value.items()) if isinstance(value, dict) else list(enumerate(value)) if isinstance(value, list) else []
    )
    return [(value, key) for key, _ in inner] + [place for _, each in inner for place in walk(each)]


@damage("single")
def tokenizer_roles(copy: Path, rng: random.Random) -> None:
    role = rng.choice(["bos_token", "eos_token", "pad_token", "unk_token"])
    stated = {role: rng.choice([*WRONG, {"content": rng.choice(WRONG)}])}
    (copy / "tokenizer_config.json").write_text(json.dumps(stated))


# ---------------------------------------------------------------------------------------------- shard indices


def edit_placement(copy: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change which file the index gives for each tensor."""
    path = copy / "model.safetensors.index.json"
    stated = json.loads(path.read_text())
    change(stated["weight_map"])
    path.write_text(json.dumps(stated))


@damage("sharded")
def shard_outside(copy: Path, rng: random.Random) -> None:
    target = bait(copy, "model.safetensors")
    names = (str(target), os.path.relpath(target, copy), "..", ".", "", "a/../" + target.name, "/dev/zero", "~/x", "/")
    name = rng.choice(names)
    edit_placement(copy, lambda places: places.update(dict.fromkeys(list(places)[:: rng.choice([1, 3])], name)))


@damage("sharded")
def shard_of_strange_name(copy: Path, rng: random.Random) -> None:
    names = ("x" * 300, "x" * 100_000, "\x00", "a\x00b", "\ud800", "\x1b[2J", "config.json", 3, None, [], {"a": "b"})
    edit_placement(copy, lambda places: places.update({rng.choice(sorted(places)): rng.choice(names)}))


@damage("sharded")
def shard_missing(copy: Path, rng: random.Random) -> None:
    rng.choice(sorted(copy.glob("*.safetensors"))).unlink()


@damage("sharded")
def shard_forgotten(copy: Path, rng: random.Random) -> None:
    gone = rng.choice(sorted(copy.glob("*.safetensors"))).name

    def forget(places: dict[str, Any]) -> None:
        for name in [name for name, place in places.items() if place == gone]:
            del places[name]

    edit_placement(copy, forget)


@damage("sharded")
def shard_in_place_of_another(copy: Path, rng: random.Random) -> None:
    one, other = rng.sample(sorted(copy.glob("*.safetensors")), 2)
    shutil.copyfile(one, other)


# ------------------------------------------------------------------------------------------------------- GGUF

HEAD = struct.Struct("<4sIQQ")
FREE = {b"llama.rope.freq_base": 4, b"attention.layer_norm_rms_epsilon": 4, b"llama.context_length": 4}
"""Keys whose value may be any positive number, and its bytes."""


def edit_gguf(copy: Path, change: Callable[[bytearray], object]) -> None:
    """Change the bytes of the file."""
    path = copy / "model.gguf"
    data = bytearray(path.read_bytes())
    change(data)
    path.write_bytes(data)


@damage("gguf", "gguf", "gguf", "gguf")
def gguf_head_byte(copy: Path, rng: random.Random) -> None:
    def flip(data: bytearray) -> None:
        values = {data.index(key) + len(key) + 4: size for key, size in FREE.items()}
        free = {at + place for at, size in values.items() for place in range(size)}
        table = data.index(b"token_embd.weight")
        where = rng.choice([range(600), range(table - 50, head_bytes(copy / "model.gguf")), range(table)])
        data[rng.choice([at for at in where if at not in free])] ^= rng.randrange(1, 256)

    edit_gguf(copy, flip)


@damage("gguf")
def gguf_counts(copy: Path, rng: random.Random) -> None:
    absurd = rng.choice([0, 1, 2**31, 2**40, 2**62, 2**64 - 1])
    edit_gguf(copy, lambda data: struct.pack_into("<Q", data, rng.choice([8, 16]), absurd))


@damage("gguf", "gguf")
def gguf_lengths(copy: Path, rng: random.Random) -> None:
    """The length before a name or a string, or the number of elements of an array."""

    def lengthen_one(data: bytearray) -> None:
        places = [at - 8 for at in (data.index(b"blk.0."), data.index(b"general."), data.index(b"llama.rope"))]
        places += [data.index(key) + len(key) + 8 for key in (b"tokenizer.ggml.tokens", b"tokenizer.ggml.merges")]
        absurd = rng.choice([0, 1, 2**16, 2**31, 2**48, 2**63, 2**64 - 1])
        struct.pack_into("<Q", data, rng.choice(places), absurd)

    edit_gguf(copy, lengthen_one)


@damage("gguf", "gguf")
def gguf_tensor(copy: Path, rng: random.Random) -> None:
    """Axes, storage type or offset of a tensor."""

    def change(data: bytearray) -> None:
        name = b"blk.1.ffn_up.weight"
        at = data.index(name) + len(name)
        form, place = rng.choice([("<I", 0), ("<Q", 4), ("<Q", 12), ("<I", 20), ("<Q", 24)])
        absurd = rng.choice([0, 3, 7, 26, 63, 2**31 - 1] + ([2**40, 2**62, 2**63, 2**64 - 1] if form == "<Q" else []))
        struct.pack_into(form, data, at + place, absurd)

    edit_gguf(copy, change)


@damage("gguf")
def gguf_name_twice(copy: Path, rng: random.Random) -> None:
    one, other = rng.choice(
        [(b"blk.0.ffn_up", b"blk.1.ffn_up"), (b"llama.block_count", b"llama.rope_count_"), (b"attn_q.w", b"attn_k.w")]
    )

    def rename(data: bytearray) -> None:
        if other in data:
            data[:] = data.replace(other, one, 1)
        else:
            data[:] = data.replace(one, other, 1)

    edit_gguf(copy, rename)


@damage("gguf")
def gguf_metadata_type(copy: Path, rng: random.Random) -> None:
    def change(data: bytearray) -> None:
        key = rng.choice(
            [b"llama.block_count", b"llama.attention.head_count", b"general.architecture", b"llama.rope.freq_base"]
        )
        at = data.index(key) + len(key)
        kinds = [kind for kind in (0, 1, 6, 7, 8, 9, 10, 12, 13, 99, 2**32 - 1) if kind != data[at]]
        struct.pack_into("<I", data, at, rng.choice(kinds))

    edit_gguf(copy, change)


@damage("gguf", "gguf")
def gguf_metadata_value(copy: Path, rng: random.Random) -> None:
    """A value that is well-formed, but makes no sense: nested lists, huge numbers, other kinds, strange names."""

    def change(data: bytearray) -> None:
        keys = (
            "llama.block_count",
            "llama.attention.head_count",
            "llama.feed_forward_length",
            "llama.embedding_length",
        )
        key = rng.choice([*keys, "llama.attention.key_length"]).encode()
        at = data.index(struct.pack("<Q", len(key)) + key) + 8 + len(key)
        empty = struct.pack("<IQ", 0, 0)
        values = [
            struct.pack("<IIQ", 9, 9, 2) + empty * 2,
            struct.pack("<IIQ", 9, 4, 2) + struct.pack("<2I", 4, 5),
            struct.pack("<IQ", 10, 2**64 - 1),
            struct.pack("<Iq", 11, -5),
            struct.pack("<If", 6, float("nan")),
            struct.pack("<I?", 7, True),
            struct.pack("<IQ", 8, 6) + b"\x1b[2J\n\n",
            struct.pack("<IQ", 8, 3000) + b"x" * 3000,
        ]
        head, rest = bytes(data[:at]), bytes(data[at + 8 :])
        rebuild(data, head + rng.choice(values), rest)

    edit_gguf(copy, change)


def rebuild(data: bytearray, head: bytes, rest: bytes) -> None:
    """Put the head together again, so that the tensors still begin at a multiple of 32 bytes."""
    end = rest.index(b"output_norm.weight") + len(b"output_norm.weight") + 24
    old = len(data) - len(rest) + end
    tensors = bytes(data[-(-old // 32) * 32 :])
    new = head + rest[:end]
    data[:] = new + b"\0" * (-len(new) % 32) + tensors


@damage("gguf")
def gguf_alignment(copy: Path, rng: random.Random) -> None:
    def change(data: bytearray) -> None:
        value = rng.choice([0, 1, 3, 48, 2**20, 2**31, 2**32 - 1])
        pair = struct.pack("<Q", 17) + b"general.alignment" + struct.pack("<II", 4, value)
        struct.pack_into("<Q", data, 16, HEAD.unpack_from(data)[3] + 1)
        rebuild(data, bytes(data[: HEAD.size]) + pair, bytes(data[HEAD.size :]))

    edit_gguf(copy, change)


@damage("gguf")
def gguf_not_a_number(copy: Path, rng: random.Random) -> None:
    def change(data: bytearray) -> None:
        at = len(data) - 4 * rng.randrange(1, 2000)
        data[at : at + 4] = np.float32(rng.choice([np.nan, np.inf, -np.inf])).tobytes()

    edit_gguf(copy, change)


@damage("gguf", "gguf")
def gguf_tokens(copy: Path, rng: random.Random) -> None:
    """Ids of special tokens, and what kind each token is."""

    def change(data: bytearray) -> None:
        key = rng.choice([b"tokenizer.ggml.bos_token_id", b"tokenizer.ggml.eos_token_id", b"tokenizer.ggml.token_type"])
        at = data.index(key) + len(key) + 4 + (12 if key.endswith(b"type") else 0)
        struct.pack_into("<i", data, at, rng.choice([-1, 2**31 - 1, 4, 299, 300]))

    edit_gguf(copy, change)
