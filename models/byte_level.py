"""The alphabet of byte-level BPE: every byte has a printable character, so that any text has tokens.

Bytes that print in Latin-1 stand for themselves; the other 68 take the characters from U+0100 on, in order (GPT-2,
Radford et al. 2019). A space is therefore written `Ġ`, a newline `Ċ`.
"""

_PRINTABLE = frozenset([*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)])
_HIDDEN = [byte for byte in range(256) if byte not in _PRINTABLE]

CHARACTER_OF_BYTE = {byte: chr(byte) for byte in _PRINTABLE} | {b: chr(256 + i) for i, b in enumerate(_HIDDEN)}
BYTE_OF_CHARACTER = {character: byte for byte, character in CHARACTER_OF_BYTE.items()}


def bytes_of(piece: str) -> bytes:
    """The bytes that a byte-level vocabulary entry stands for; characters outside the alphabet stand for themselves."""
    return b"".join(
        bytes([BYTE_OF_CHARACTER[character]]) if character in BYTE_OF_CHARACTER else character.encode()
        for character in piece
    )
