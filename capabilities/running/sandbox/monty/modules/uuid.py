"""`uuid`: UUID, uuid3, uuid4, uuid5 and the namespaces."""

import hashlib
import random
from typing import Any


class UUID:
    def __init__(self, hex: str) -> None:
        digits = hex.replace("urn:", "").replace("uuid:", "").strip("{}").replace("-", "").lower()
        if len(digits) != 32:
            raise ValueError("badly formed hexadecimal UUID string")
        self.int = int(digits, 16)
        self.hex = digits
        self.version = int(digits[12], 16)
        self.bytes = bytes.fromhex(digits)
        self.urn = "urn:uuid:" + self.__str__()

    def __str__(self) -> str:
        d = self.hex
        return f"{d[:8]}-{d[8:12]}-{d[12:16]}-{d[16:20]}-{d[20:]}"

    def __repr__(self) -> str:
        return f"UUID('{self.__str__()}')"

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, UUID) and self.hex == other.hex

    def __hash__(self) -> int:
        return hash(self.hex)


def _versioned(digits: str, version: int) -> UUID:
    variant = "89ab"[int(digits[16], 16) % 4]
    return UUID(digits[:12] + str(version) + digits[13:16] + variant + digits[17:32])


def uuid4() -> UUID:
    return _versioned(f"{random.getrandbits(128):032x}", 4)


def uuid3(namespace: UUID, name: str) -> UUID:
    return _versioned(hashlib.md5(namespace.bytes + name.encode()).hexdigest(), 3)  # noqa: S324 -- as the standard says


def uuid5(namespace: UUID, name: str) -> UUID:
    return _versioned(hashlib.sha1(namespace.bytes + name.encode()).hexdigest(), 5)  # noqa: S324 -- as the standard says


NAMESPACE_DNS = UUID("6ba7b810-9dad-11d1-80b4-00c04fd430c8")
NAMESPACE_URL = UUID("6ba7b811-9dad-11d1-80b4-00c04fd430c8")
NAMESPACE_OID = UUID("6ba7b812-9dad-11d1-80b4-00c04fd430c8")
NAMESPACE_X500 = UUID("6ba7b814-9dad-11d1-80b4-00c04fd430c8")
