"""Short names: what stands for a row in addresses, rules and the API, made from its name where none is given."""

from __future__ import annotations

import re
import unicodedata
from typing import Any

from django.db.models import QuerySet

from capabilities.common.refused import RESERVED

MAX_SLUG = 63
CATEGORY_NAME = re.compile(r"^[a-zA-Z0-9][a-zA-Z0-9_-]{0,63}\Z")
#: The page of all roles side by side stands at this address.
MATRIX = "matrix"
NEVER = RESERVED | {MATRIX}


def short_name_of(name: str, *, separator: str = "-", longest: int = MAX_SLUG) -> str:
    """The ASCII letters and digits of the name in lower case, the separator for all between; "" where it has none.

    static/toolhub.js does the same while somebody types.
    """
    ascii_only = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    words = re.sub(r"[^a-z0-9]+", separator, ascii_only.replace("'", "").lower())
    return words.strip(separator)[:longest].strip(separator)


def free_short_name(
    rows: QuerySet[Any], field: str, name: str, *, separator: str = "-", longest: int = MAX_SLUG
) -> str:
    """The name's short name, with -2, -3 and so on where another of the rows has it. One query.

    A name without a letter or digit of ASCII is called after its kind.
    """
    base = short_name_of(name, separator=separator, longest=longest) or str(rows.model._meta.model_name)
    taken = NEVER | set(rows.filter(**{f"{field}__startswith": base[: longest - 6]}).values_list(field, flat=True))
    found, number = base, 1
    while found in taken:
        number += 1
        suffix = f"{separator}{number}"
        found = base[: longest - len(suffix)] + suffix
    return found
