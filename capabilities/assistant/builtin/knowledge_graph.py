"""A member's graph of entities and relations: who and what is known, and how it hangs together."""

from __future__ import annotations

from typing import Annotated, Any

from django.db import transaction
from django.db.models import Q, QuerySet
from pydantic import Field

from capabilities.assistant.models import Entity, Relation
from capabilities.contract.context import ToolContext, ToolError
from capabilities.running.records.names import folded, holds_all, key_of, name_and_key, one_line, words_of
from capabilities.running.records.rows import WITHOUT_NUL
from capabilities.running.registry import CategorySpec, tool

CATEGORY = CategorySpec(
    name="knowledgeGraph",
    title="Knowledge graph",
    description="Entities and the relations between them, with paths from one to another.",
    keywords=(
        "knowledge graph",
        "graph",
        "entity",
        "entities",
        "relation",
        "relations",
        "relationship",
        "connected",
        "how is related",
        "path between",
    ),
)

#: Entities and relations of one member; entities that a search shows, and relations that it shows of each.
ENTITIES = 5_000
RELATIONS = 20_000
SEARCH_LIMIT = 20
SHOWN_RELATIONS = 10
#: Steps of a path, and entities that a search for one may visit.
STEPS = 10
VISITED = 5_000

Name = Annotated[str, Field(max_length=200), WITHOUT_NUL]
Label = Annotated[str, Field(description="As works at, parent of.", max_length=100), WITHOUT_NUL]
#: One arrow as it was walked: the entities it came from and went to, its label, and whether against its direction.
Arrow = tuple[int, str, int, bool]


@tool(category="knowledgeGraph", effect="write", on_crash="retry", human_format="Adding {name} to the graph")
def kg_add_entity(
    context: ToolContext,
    name: Name,
    kind: Annotated[str, Field(description="As person, project.", max_length=50), WITHOUT_NUL] = "",
    notes: Annotated[str, Field(max_length=5_000), WITHOUT_NUL] = "",
) -> dict[str, Any]:
    """Add an entity to the user's knowledge graph, or change the kind and notes of one that is there."""
    given = {key: text.strip() for key, text in (("kind", kind), ("notes", notes)) if text.strip()}
    with transaction.atomic():
        entity = _entity_to_write(context, name)
        for field, text in given.items():
            setattr(entity, field, text)
        entity.save(update_fields=list(given))
    return {"entity": _as_json(entity)}


@tool(category="knowledgeGraph", effect="write", on_crash="retry", human_format="Relating {source} to {target}")
def kg_add_relation(context: ToolContext, source: Name, label: Label, target: Name) -> dict[str, Any]:
    """Add a relation: source -label-> target. Entities that are missing are added."""
    words = one_line(label, "A relation needs a label.")
    if _relations(context).count() >= RELATIONS:
        raise ToolError(f"All {RELATIONS} relations are in use: remove some first.")
    with transaction.atomic():
        one, other = _entity_to_write(context, source), _entity_to_write(context, target)
        same: dict[str, Any] = {"source": one, "target": other, "label": words}
        Relation.objects.get_or_create(
            organisation_id=context.organisation_id, membership_id=context.membership_id, **same
        )
    return {"relation": [one.name, words, other.name]}


@tool(category="knowledgeGraph", effect="read", human_format="Searching the graph")
def kg_search(
    context: ToolContext,
    query: Annotated[str, Field(description="Words of name, kind or notes; empty for all.", max_length=200)] = "",
    kind: Annotated[str | None, Field(description="Only this kind.", max_length=50)] = None,
) -> dict[str, Any]:
    """Find entities of the user's knowledge graph, each with its relations."""
    words = words_of(query)
    # Compared here and not in the database: SQLite ignores case in ASCII letters only.
    found = [
        entity
        for entity in _entities(context).order_by("key")
        if holds_all(words, entity.name, entity.kind, entity.notes)
        and (kind is None or folded(entity.kind) == folded(kind.strip()))
    ]
    shown = found[:SEARCH_LIMIT]
    relations = _relations_of(context, [entity.pk for entity in shown])
    entities = [_as_json(entity) | _shown_relations(relations[entity.pk]) for entity in shown]
    return {"entities": entities} | ({"more": len(found) - SEARCH_LIMIT} if len(found) > SEARCH_LIMIT else {})


@tool(category="knowledgeGraph", effect="read", human_format="Looking for a path from {start} to {end}")
def kg_path(
    context: ToolContext,
    start: Name,
    end: Name,
    max_steps: Annotated[int, Field(ge=1, le=STEPS)] = 6,
) -> dict[str, Any]:
    """Find the shortest path between two entities, along relations in either direction."""
    one, other = _entity(context, start), _entity(context, end)
    came_by = _walked(context, one.pk, other.pk, max_steps)
    if other.pk not in came_by and one.pk != other.pk:
        return {"found": False, "note": f"There is no path of at most {max_steps} steps."}
    arrows: list[Arrow] = []
    at = other.pk
    while at != one.pk:
        arrows.insert(0, came_by[at])
        at = came_by[at][0]
    names = dict(_entities(context).filter(pk__in={one.pk, *(arrow[2] for arrow in arrows)}).values_list("pk", "name"))
    return {"found": True, "steps": len(arrows), "path": [_walked_as_json(arrow, names) for arrow in arrows]}


@tool(category="knowledgeGraph", effect="write", on_crash="retry", human_format="Removing {name} from the graph")
def kg_remove(
    context: ToolContext,
    name: Annotated[Name, Field(description="The entity, or the source of a relation.")],
    label: Annotated[Label | None, Field(description="With target: only this relation.")] = None,
    target: Name | None = None,
) -> dict[str, Any]:
    """Remove an entity with all its relations, or with label and target one relation of it."""
    if (label is None) != (target is None):
        raise ToolError("For one relation give both label and target; for the whole entity neither.")
    entity = _entity(context, name)
    if label is None or target is None:
        count = _relations(context).filter(Q(source=entity) | Q(target=entity)).count()
        _entities(context).filter(pk=entity.pk).delete()
        return {"removed": entity.name, "relations": count}
    same = _relations(context).filter(source=entity, target=_entity(context, target), label=" ".join(label.split()))
    if not same.delete()[0]:
        raise ToolError("There is no such relation: kg_search shows them.")
    return {"removed": [entity.name, label, target]}


def _entities(context: ToolContext) -> QuerySet[Entity]:
    return Entity.objects.filter(membership_id=context.membership_id)


def _relations(context: ToolContext) -> QuerySet[Relation]:
    return Relation.objects.filter(membership_id=context.membership_id)


def _entity(context: ToolContext, name: str) -> Entity:
    entity = _entities(context).filter(key=key_of(name)).first()
    if entity is None:
        raise ToolError(f"There is no entity {name}: kg_search shows them.")
    return entity


def _entity_to_write(context: ToolContext, name: str) -> Entity:
    """Return the entity of this name, made where there is none. Raises ToolError where all are in use."""
    named = name_and_key(name, "An entity")
    entity = _entities(context).filter(key=named["key"]).first()
    if entity is None and _entities(context).count() >= ENTITIES:
        raise ToolError(f"All {ENTITIES} entities are in use: remove some first.")
    return (
        entity
        or Entity.objects.get_or_create(
            organisation_id=context.organisation_id,
            membership_id=context.membership_id,
            key=named["key"],
            defaults={"name": named["name"]},
        )[0]
    )


def _relations_of(context: ToolContext, keys: list[int]) -> dict[int, list[list[str]]]:
    """The relations of each of these entities, from either side. One query."""
    rows: dict[int, list[list[str]]] = {key: [] for key in keys}
    touching = _relations(context).filter(Q(source__in=keys) | Q(target__in=keys)).order_by("pk")
    for relation in touching.select_related("source", "target"):
        shown = [relation.source.name, relation.label, relation.target.name]
        for key in {relation.source_id, relation.target_id} & rows.keys():
            rows[key].append(shown)
    return rows


def _shown_relations(relations: list[list[str]]) -> dict[str, Any]:
    not_shown = len(relations) - SHOWN_RELATIONS
    return {"relations": relations[:SHOWN_RELATIONS]} | ({"more_relations": not_shown} if not_shown > 0 else {})


def _walked(context: ToolContext, start: int, end: int, max_steps: int) -> dict[int, Arrow]:
    """Return the arrow by which each entity was first reached, breadth first from the start. One query for each
    step."""
    arrows_to: dict[int, Arrow] = {}
    frontier = {start}
    for _ in range(max_steps):
        if not frontier or end in arrows_to or len(arrows_to) > VISITED or context.stopped.is_set():
            break
        touching = _relations(context).filter(Q(source__in=frontier) | Q(target__in=frontier)).order_by("pk")
        reached: set[int] = set()
        for source, label, target in touching.values_list("source_id", "label", "target_id"):
            for near, far, backwards in ((source, target, False), (target, source, True)):
                if near in frontier and far != start and far not in arrows_to:
                    arrows_to[far] = (near, label, far, backwards)
                    reached.add(far)
        frontier = reached
    return arrows_to


def _walked_as_json(arrow: Arrow, names: dict[int, str]) -> list[str]:
    """Return the relation as it was written, whichever way it was walked."""
    near, label, far, backwards = arrow
    one, other = names.get(near, "?"), names.get(far, "?")
    return [other, label, one] if backwards else [one, label, other]


def _as_json(entity: Entity) -> dict[str, Any]:
    row: dict[str, Any] = {"name": entity.name}
    return row | {key: getattr(entity, key) for key in ("kind", "notes") if getattr(entity, key)}
