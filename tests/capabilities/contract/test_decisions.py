from __future__ import annotations

from itertools import permutations

from capabilities.contract.decisions import ALLOWED, Decision, Terms, Verb, strictest


def test_deny_stands_before_ask_and_ask_before_allow_in_any_order() -> None:
    allow, ask, deny = (Decision(verb, str(verb)) for verb in Verb)
    assert {strictest(each) for each in permutations([allow, ask, deny])} == {deny}
    assert {strictest(each) for each in permutations([allow, ask])} == {ask}


def test_of_equal_decisions_the_first_counts() -> None:
    first, second = Decision(Verb.ASK, "first"), Decision(Verb.ASK, "second")
    assert strictest([first, second]) is first


def test_a_call_of_which_nobody_says_anything_is_allowed() -> None:
    assert strictest([]) is ALLOWED


def test_several_that_ask_ask_under_the_stricter_of_their_terms() -> None:
    rule = Decision(Verb.ASK, "rule", terms=Terms(expires_after=24, allows_consent=True))
    hook = Decision(Verb.ASK, "hook", terms=Terms(needs_other_person=True))
    allows = Decision(Verb.ALLOW, "allows", terms=Terms(expires_after=1))

    said = strictest([allows, rule, hook])

    assert (said.source, said.terms) == ("rule", Terms(expires_after=24, needs_other_person=True))
