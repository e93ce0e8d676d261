"""128 tools of the size that real ones have. Each adds its number to an amount and returns the sum at once."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from benchmarks.many_tools import TOOL_NAMES
from capabilities.contract.context import ToolContext
from capabilities.running.registry import CategorySpec, ToolFunction, tool

CATEGORY = CategorySpec("many", "Many", "As many tools as a provider takes.")


def adding(number: int) -> ToolFunction:
    def add(
        context: ToolContext,
        amount: Annotated[int, Field(description="The amount to add to, in cents.")],
        currency: Annotated[str, Field(description="Three letters, such as EUR.")] = "EUR",
        note: Annotated[str, Field(description="One line that is kept with the booking, for people.")] = "",
    ) -> dict[str, Any]:
        return {"sum": amount + number, "currency": currency, "account": number, "note": note}

    add.__qualname__ = f"adding_{number}"
    add.__doc__ = (
        f"Add an amount to account {number} and return the new sum. Use it where the user names this account and an "
        "amount; ask for the currency where it is not plain. Nothing else changes."
    )
    return add


for number, name in enumerate(TOOL_NAMES):
    tool(category="many", effect="read", name=name, human_format="Adding {amount}")(adding(number))
