"""docs/trust.md lists the built-in tools that bring text from outside, and those that are kept back behind it."""

from __future__ import annotations

import re

import pytest

from capabilities.running.registry import registry
from tests.paths import ROOT

DOCUMENT = (ROOT / "docs" / "trust.md").read_text()


def listed_behind(sentence: str) -> list[str]:
    """The names in the list that follows a sentence of the document, or that end its line."""
    paragraph = DOCUMENT.partition(sentence)[2].lstrip().partition("\n\n")[0]
    return re.findall(r"`([a-z_]+)`", paragraph)


def test_the_document_lists_the_tools_that_bring_text_from_outside() -> None:
    untrusted = sorted(name for name, tool in registry.tools.items() if tool.untrusted)

    assert listed_behind("Results of these hold text from outside:") == untrusted


@pytest.mark.parametrize(
    ("in_untrusted", "sentence"),
    [
        ("ask", "that would begin without text from outside:"),
        ("refuse", "because it widens what another program may do:"),
    ],
)
def test_the_document_lists_the_tools_that_are_kept_back(in_untrusted: str, sentence: str) -> None:
    kept_back = sorted(name for name, tool in registry.tools.items() if tool.in_untrusted == in_untrusted)

    assert listed_behind(sentence) == kept_back


def test_a_tool_that_acts_outside_does_not_run_without_a_question() -> None:
    """Those that only tell the user something, or call what is asked about itself, do."""
    free = {name for name, tool in registry.tools.items() if (tool.effect, tool.in_untrusted) == ("external", "allow")}

    assert free == {"call_tool", "web_push"}
