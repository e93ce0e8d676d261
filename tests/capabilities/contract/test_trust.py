from __future__ import annotations

import pytest

from capabilities.contract.decisions import Verb
from capabilities.contract.trust import decision_on, where_since


@pytest.mark.parametrize(
    ("in_untrusted", "verb"),
    [("ask", Verb.ASK), ("refuse", Verb.DENY), ("", Verb.DENY), ("ALLOW", Verb.DENY), ("yes", Verb.DENY)],
)
def test_a_word_that_is_not_known_is_never_looser(in_untrusted: str, verb: Verb) -> None:
    decision = decision_on("http_post", in_untrusted, where_since(3, "web_read"))

    assert decision is not None
    assert (decision.verb, decision.source) == (verb, "trust")


def test_allow_keeps_nothing_back() -> None:
    assert decision_on("http_post", "allow", where_since(3, "web_read")) is None


def test_the_sentence_names_the_step_and_the_tool() -> None:
    decision = decision_on("http_post", "refuse", where_since(3, "web_read"))

    assert decision is not None
    assert "since step 3 (a result of web_read)" in decision.for_model
    assert " http_post needs a conversation without" in decision.for_model


@pytest.mark.parametrize(
    ("step", "tool", "where"),
    [
        (0, "", "from before this message"),
        (3, "web_read", "since step 3 (a result of web_read)"),
        (3, "", "since step 3"),
    ],
)
def test_where_text_from_outside_came_in(step: int, tool: str, where: str) -> None:
    assert where_since(step, tool) == where
