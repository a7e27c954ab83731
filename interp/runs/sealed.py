"""JSON that notices when it was changed: documents that end with their own SHA-256, lines that end with their CRC-32.

A document holds one member a line. Its head comes first and has a hash of its own, so that it can be read, and trusted,
without reading a long rest:

    {
     "format": "interp-run",
     "head_sha256": "…",
     "plan": …,
     "sha256": "…"
    }

A line break inside a text is escaped in JSON, so that the line which begins with `head_sha256` is found as bytes.
"""

import hashlib
import json
import re
import zlib
from collections.abc import Mapping
from typing import Any

_HEAD, _WHOLE = b',\n "head_sha256": "', b',\n "sha256": "'
_CRC = re.compile(rb',"crc":"([0-9a-f]{8})"\}$')


def digest(content: bytes) -> str:
    """SHA-256, in hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def _compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def _members(facts: Mapping[str, object]) -> bytes:
    return ",\n".join(f" {_compact(key)}: {_compact(value)}" for key, value in facts.items()).encode()


def document(head: Mapping[str, object], rest: Mapping[str, object] | None = None) -> bytes:
    """The document with these members, none of which may be empty; the seals are added."""
    text = b"{\n" + _members(head)
    text += _HEAD + digest(text).encode() + b'"'
    if rest:
        text += b",\n" + _members(rest)
    return text + _WHOLE + digest(text).encode() + b'"\n}\n'


def parse(content: bytes) -> dict[str, Any]:
    """The JSON object that the bytes are. Raises `ValueError` for anything else, however it is damaged."""
    try:
        found = json.loads(content)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if not isinstance(found, dict):
        raise ValueError("it is not an object")
    return found


def read_head(content: bytes) -> tuple[dict[str, Any], bool]:
    """The members of the head, and whether its hash fits. Raises `ValueError` where it is not JSON.

    Of a document that has no such head, as another version may write it, all members come, as not intact.
    """
    end = content.find(_HEAD)
    if end < 0:
        return parse(content), False
    seal = content[end + len(_HEAD) : end + len(_HEAD) + 64]
    return parse(content[:end] + b"\n}"), digest(content[:end]).encode() == seal


def read_document(content: bytes) -> tuple[dict[str, Any], bool]:
    """All members, and whether the document is, to the byte, what was written. Raises `ValueError` if not JSON."""
    end = content.rfind(_WHOLE)
    intact = end >= 0 and content[end:] == _WHOLE + digest(content[:end]).encode() + b'"\n}\n'
    return parse(content), intact


def line(facts: Mapping[str, object]) -> bytes:
    """One line of a file of records, with its line break."""
    text = _compact(facts).encode()[:-1]
    return text + f',"crc":"{zlib.crc32(text):08x}"}}\n'.encode()


def read_line(text: bytes) -> dict[str, Any] | None:
    """What a line (without its break) says; None where it is not, to the byte, one that was written."""
    found = _CRC.search(text)
    if found is None or int(found[1], 16) != zlib.crc32(text[: found.start()]):
        return None
    try:
        return parse(text)
    except ValueError:
        return None
