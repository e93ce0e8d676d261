"""Small images of a given size, made here: headers that say it, and for PNG a picture that any browser shows."""

from __future__ import annotations

import struct
import zlib


def png(width: int, height: int) -> bytes:
    """A red picture; of a large one the header alone."""
    rows = (b"\x00" + b"\xff\x00\x00" * width) * height if width * height <= 1_000_000 else b""
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )


def jpeg(width: int, height: int) -> bytes:
    """Header with a comment in front of the frame, which has its thumbnail's size elsewhere."""
    comment = b"\xff\xfe" + struct.pack(">H", 6) + b"\xff\xc0\x00\x00"
    frame = b"\xff\xc0" + struct.pack(">HBHHB", 17, 8, height, width, 3) + b"\x00" * 9
    return b"\xff\xd8" + comment + b"\xff" + frame + b"\xff\xd9"


def gif(width: int, height: int) -> bytes:
    return b"GIF89a" + struct.pack("<HH", width, height) + b"\x00\x00\x00;"


def webp(width: int, height: int) -> bytes:
    size = (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    return b"RIFF\x16\x00\x00\x00WEBPVP8X\x0a\x00\x00\x00\x00\x00\x00\x00" + size
