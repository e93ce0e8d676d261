from __future__ import annotations

from itertools import permutations

from capabilities.contract.decisions import ALLOWED, Decision, Verb, strictest


def test_deny_stands_before_ask_and_ask_before_allow_in_any_order() -> None:
    allow, ask, deny = (Decision(verb, str(verb)) for verb in Verb)
    assert {strictest(each) for each in permutations([allow, ask, deny])} == {deny}
    assert {strictest(each) for each in permutations([allow, ask])} == {ask}


def test_of_equal_decisions_the_first_counts() -> None:
    first, second = Decision(Verb.ASK, "first"), Decision(Verb.ASK, "second")
    assert strictest([first, second]) is first


def test_a_call_of_which_nobody_says_anything_is_allowed() -> None:
    assert strictest([]) is ALLOWED
