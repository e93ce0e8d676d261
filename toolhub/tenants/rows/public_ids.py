"""Public ids, as a form or a query gives them."""

from __future__ import annotations

import uuid


def public_id_of(text: str) -> uuid.UUID | None:
    """Return the id that this text is; None where it is none."""
    try:
        return uuid.UUID(text)
    except ValueError:
        return None
