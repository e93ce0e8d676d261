"""The category of the tools that change what a session has at hand. Always there; its tools come with loading."""

from __future__ import annotations

from capabilities.registry import CategorySpec

CATEGORY = CategorySpec(
    name="dynamic",
    title="Dynamic",
    description="Tools that load and unload other tools in a session.",
    keywords=("load tools", "load category", "more tools"),
    is_core=True,
)
