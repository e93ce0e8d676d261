"""US dollars as people and programs write them, and as rows hold them: whole billionths, so that sums are exact."""

from __future__ import annotations

import re

#: Billionths of a dollar in one dollar, and the digits behind the point that they allow.
NANO = 1_000_000_000
DECIMALS = 9
AMOUNT = re.compile(r"(?P<whole>\d{1,9})(?:\.(?P<part>\d+))?", re.ASCII)


def nano_of(text: str) -> int:
    """Billionths of the dollars in a text such as 12, 12.50 or 0.002. Raises ValueError with a sentence for people."""
    found = AMOUNT.fullmatch(text.strip())
    if found is None:
        raise ValueError("Give dollars as a number such as 12.50, below a billion.")
    part = (found["part"] or "").rstrip("0")
    if len(part) > DECIMALS:
        raise ValueError(f"Give at most {DECIMALS} digits behind the point.")
    return int(found["whole"]) * NANO + int(part.ljust(DECIMALS, "0"))


def dollars(nano: int) -> str:
    """The exact amount with two digits behind the point, or as many more as it has: 12.50, 0.00027, -1.00."""
    whole, rest = divmod(abs(nano), NANO)
    digits = f"{rest:0{DECIMALS}d}"
    return f"{'-' if nano < 0 else ''}{whole}.{digits[:2]}{digits[2:].rstrip('0')}"


def rounded_dollars(nano: int) -> str:
    """The amount for a page: $12.50, from a hundred dollars on $1,234; below a cent two digits that count: $0.0027."""
    sign, amount = "-" if nano < 0 else "", abs(nano) / NANO
    if amount and round(amount, 2) < 0.01:
        return f"{sign}${float(f'{amount:.2g}'):.9f}".rstrip("0")
    if amount < 1:
        return f"{sign}${amount:.2f}" if round(amount, 2) == amount else f"{sign}${amount:.3f}".rstrip("0")
    return f"{sign}${amount:,.2f}"
