"""What the cache holds, as JSON: whoever can write to Valkey must not be able to run code here, as with pickle."""

from __future__ import annotations

import json
from typing import Any


class JSONSerializer:
    """Numbers, texts, lists and objects of them. A whole number stays one, so that Valkey can count with it."""

    def dumps(self, value: Any) -> int | bytes:
        """Raises TypeError for what is no JSON."""
        return value if type(value) is int else json.dumps(value, allow_nan=False).encode()

    def loads(self, data: bytes) -> Any:
        """Raises ValueError for what is no JSON."""
        return json.loads(data)
