from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from capabilities.assistant.builtin import knowledge_graph
from capabilities.assistant.models import Entity, Relation
from capabilities.contract.context import ToolError
from tests.capabilities.assistant.builtin.conftest import Call
from toolhub.tenants.models import Membership, Organisation

pytestmark = pytest.mark.usefixtures("in_acme")

ADA_AT_ACME = ["Ada", "works at", "Acme"]


def relate(call: Call, *relations: tuple[str, str, str]) -> None:
    for source, label, target in relations:
        call("kg_add_relation", source=source, label=label, target=target)


def test_an_entity_is_added_and_later_changed(as_alice: Call) -> None:
    assert as_alice("kg_add_entity", name=" Ada ", kind="person") == {"entity": {"name": "Ada", "kind": "person"}}

    assert as_alice("kg_add_entity", name="ADA", notes="counts") == {
        "entity": {"name": "Ada", "kind": "person", "notes": "counts"}
    }


def test_a_relation_brings_its_entities(as_alice: Call) -> None:
    for _ in range(2):
        assert as_alice("kg_add_relation", source="Ada", label=" works  at", target="Acme") == {"relation": ADA_AT_ACME}

    assert as_alice("kg_search") == {
        "entities": [{"name": "Acme", "relations": [ADA_AT_ACME]}, {"name": "Ada", "relations": [ADA_AT_ACME]}]
    }


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        ({"query": "ada"}, ["Ada"]),
        ({"query": "ÉTUDE counts"}, ["Ada"]),
        ({"kind": "PERSON"}, ["Ada", "Bo"]),
        ({"query": "b", "kind": "person"}, ["Bo"]),
        ({"query": "none"}, []),
    ],
)
def test_a_search_is_narrowed(as_alice: Call, arguments: dict[str, str], names: list[str]) -> None:
    as_alice("kg_add_entity", name="Ada", kind="person", notes="counts, étude")
    as_alice("kg_add_entity", name="Bo", kind="Person")
    as_alice("kg_add_entity", name="Bonn", kind="town")

    assert [each["name"] for each in as_alice("kg_search", **arguments)["entities"]] == names


def test_a_long_search_is_cut_and_says_how_much_is_left(as_alice: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(knowledge_graph, "SEARCH_LIMIT", 1)
    monkeypatch.setattr(knowledge_graph, "SHOWN_RELATIONS", 1)
    relate(as_alice, ("a", "knows", "b"), ("a", "knows", "c"))

    assert as_alice("kg_search") == {
        "entities": [{"name": "a", "relations": [["a", "knows", "b"]], "more_relations": 1}],
        "more": 2,
    }


def test_the_shortest_path_is_found_in_either_direction(as_alice: Call) -> None:
    relate(as_alice, ("a", "1", "b"), ("b", "2", "c"), ("c", "3", "d"), ("d", "short", "b"))

    assert as_alice("kg_path", start="A", end="d") == {
        "found": True,
        "steps": 2,
        "path": [["a", "1", "b"], ["d", "short", "b"]],
    }
    assert as_alice("kg_path", start="a", end="a") == {"found": True, "steps": 0, "path": []}


def test_without_a_path_short_enough_that_is_said(as_alice: Call) -> None:
    relate(as_alice, ("a", "1", "b"), ("b", "2", "c"))
    as_alice("kg_add_entity", name="alone")

    for end, steps in (("c", 1), ("alone", 6)):
        answer = as_alice("kg_path", start="a", end=end, max_steps=steps)
        assert answer == {"found": False, "note": f"There is no path of at most {steps} steps."}


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sets(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=9))
def test_a_path_is_as_short_as_can_be(
    alice: Membership, acme: Organisation, as_alice: Call, edges: set[tuple[int, int]]
) -> None:
    Entity.objects.all().delete()
    own: dict[str, Any] = {"organisation": acme, "membership": alice}
    nodes = [Entity.objects.create(**own, name=str(number), key=str(number)) for number in range(6)]
    Relation.objects.bulk_create([Relation(**own, source=nodes[a], label="-", target=nodes[b]) for a, b in edges])

    answer = as_alice("kg_path", start="0", end="5")

    assert answer.get("steps") == distance(edges)


def distance(edges: set[tuple[int, int]]) -> int | None:
    near = {0}
    for steps in range(1, 7):
        near |= {b for a, b in edges if a in near} | {a for a, b in edges if b in near}
        if 5 in near:
            return steps
    return None


def test_an_entity_goes_with_its_relations(as_alice: Call) -> None:
    relate(as_alice, ("a", "1", "b"), ("c", "2", "a"), ("b", "3", "c"))

    assert as_alice("kg_remove", name="A") == {"removed": "a", "relations": 2}

    assert {each["name"]: each["relations"] for each in as_alice("kg_search")["entities"]} == {
        "b": [["b", "3", "c"]],
        "c": [["b", "3", "c"]],
    }


def test_kg_remove_removes_one_of_several_relations(as_alice: Call) -> None:
    relate(as_alice, ("a", "1", "b"), ("a", "2", "b"))

    assert as_alice("kg_remove", name="a", label="1", target="b") == {"removed": ["a", "1", "b"]}

    assert list(Relation.objects.values_list("label", flat=True)) == ["2"]


@pytest.mark.parametrize(
    ("name", "arguments", "sentence"),
    [
        ("kg_add_entity", {"name": " "}, "An entity needs a name"),
        ("kg_add_relation", {"source": "a", "label": " ", "target": "b"}, "A relation needs a label"),
        ("kg_path", {"start": "a", "end": "b"}, "There is no entity a: kg_search shows them"),
        ("kg_remove", {"name": "a"}, "There is no entity a"),
        ("kg_remove", {"name": "known", "label": "x"}, "For one relation give both label and target"),
        ("kg_remove", {"name": "known", "label": "x", "target": "known"}, "There is no such relation"),
    ],
)
def test_invalid_arguments_are_refused_with_a_message(
    as_alice: Call, name: str, arguments: dict[str, object], sentence: str
) -> None:
    as_alice("kg_add_entity", name="known")

    with pytest.raises(ToolError, match=sentence):
        as_alice(name, **arguments)


def test_the_graph_is_limited(as_alice: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(knowledge_graph, "ENTITIES", 2)
    monkeypatch.setattr(knowledge_graph, "RELATIONS", 1)
    relate(as_alice, ("a", "1", "b"))

    with pytest.raises(ToolError, match="All 2 entities are in use"):
        as_alice("kg_add_entity", name="c")
    with pytest.raises(ToolError, match="All 1 relations are in use"):
        relate(as_alice, ("a", "2", "b"))


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize(
    ("name", "arguments", "queries"), [("kg_search", {}, 2), ("kg_path", {"start": "start", "end": "n0"}, 4)]
)
def test_listings_take_a_fixed_number_of_queries(
    as_alice: Call,
    count: int,
    name: str,
    arguments: dict[str, str],
    queries: int,
    django_assert_num_queries: pytest.FixtureRequest,
) -> None:
    for number in range(count):
        relate(as_alice, ("start", "to", f"n{number}"))

    with django_assert_num_queries(queries):  # type: ignore[operator]
        as_alice(name, **arguments)
