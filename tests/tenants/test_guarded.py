"""The guard on every query for rows of an organisation: without a scope nothing, inside one its own rows only.

`DATABASE_URL` says on which database it runs.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from typing import Any

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.apps import apps
from django.conf import settings
from django.core.exceptions import FieldError
from django.db import IntegrityError, connection, transaction
from django.db.models import Count, Exists, F, OuterRef, Prefetch, QuerySet, prefetch_related_objects

from capabilities.assistant.models import Task
from capabilities.models import Agent, AgentTool, Category, RoleMembership, Tool
from tests.cast import make_agent, make_category, make_role, make_tool
from toolhub.tenants.models import Membership, Organisation, User
from toolhub.tenants.rows.guarded import TenantManager, TenantModel
from toolhub.tenants.rows.scope import ScopeError, current_scope, has_scope, organisation_scope, system_scope

pytestmark = pytest.mark.django_db


@pytest.fixture
def acme_tool(acme: Organisation) -> Tool:
    return make_tool(acme, "acme_tool", category=make_category(acme, "shared"))


@pytest.fixture
def globex_tool(globex: Organisation) -> Tool:
    return make_tool(globex, "globex_tool", category=make_category(globex, "shared"))


@pytest.fixture
def both(acme_tool: Tool, globex_tool: Tool) -> tuple[Tool, Tool]:
    return acme_tool, globex_tool


def fresh(tool: Tool) -> Tool:
    """The row without the related rows that its maker left at hand."""
    with system_scope():
        return Tool.objects.get(pk=tool.pk)


def names(rows: Any) -> list[str]:
    return sorted(row.name for row in rows)


def waited(result: Any) -> Any:
    """Awaits on this thread's own connection to the database."""

    async def wait() -> Any:
        return await result

    return async_to_sync(wait)()


async def collected(rows: Any) -> list[Any]:
    return [row async for row in rows]


# -- Without a scope --------------------------------------------------------------------------------------------------

READS: dict[str, Callable[[Tool], Any]] = {
    "all": lambda tool: list(Tool.objects.all()),
    "count": lambda tool: Tool.objects.count(),
    "exists": lambda tool: Tool.objects.exists(),
    "exists of a filter": lambda tool: Tool.objects.filter(name="acme_tool").exists(),
    "contains": lambda tool: Tool.objects.contains(tool),
    "first": lambda tool: Tool.objects.first(),
    "last": lambda tool: Tool.objects.order_by("pk").last(),
    "latest": lambda tool: Tool.objects.latest("created_at"),
    "get": lambda tool: Tool.objects.get(pk=tool.pk),
    "get_or_create": lambda tool: Tool.objects.get_or_create(name="acme_tool"),
    "update_or_create": lambda tool: Tool.objects.update_or_create(name="acme_tool"),
    "aggregate": lambda tool: Tool.objects.aggregate(rows=Count("pk")),
    "annotate": lambda tool: list(Tool.objects.annotate(rows=Count("versions"))),
    "values": lambda tool: list(Tool.objects.values("name")),
    "values_list": lambda tool: list(Tool.objects.values_list("name", flat=True)),
    "dates": lambda tool: list(Tool.objects.datetimes("created_at", "year")),
    "iterator": lambda tool: list(Tool.objects.iterator()),
    "exclude": lambda tool: list(Tool.objects.exclude(name="x")),
    "distinct": lambda tool: list(Tool.objects.distinct()),
    "slice": lambda tool: Tool.objects.all()[0],
    "in_bulk": lambda tool: Tool.objects.in_bulk([tool.pk]),
    "union": lambda tool: list(Tool.objects.filter(name="a").union(Tool.objects.filter(name="b"))),
    "explain": lambda tool: Tool.objects.all().explain(),
    "select_related": lambda tool: list(Tool.objects.select_related("category")),
    "raw": lambda tool: list(Tool.objects.raw("SELECT * FROM capabilities_tool")),
    "default manager": lambda tool: list(Tool._default_manager.all()),
    "base manager": lambda tool: list(Tool._base_manager.all()),
    "related manager": lambda tool: list(tool.versions.all()),
    "many to many": lambda tool: list(tool.agents.all()),
    "forward key": lambda tool: fresh(tool).category,
    "prefetch": lambda tool: list(Tool.objects.prefetch_related("versions")),
    "prefetch onto rows at hand": lambda tool: prefetched(tool),
    "refresh_from_db": lambda tool: tool.refresh_from_db(),
    "deferred field": lambda tool: deferred(tool).created_at,
    "async for": lambda tool: waited(collected(Tool.objects.all())),
    "async for of an exclude": lambda tool: waited(collected(Tool.objects.exclude(name="x"))),
    "async for of a distinct": lambda tool: waited(collected(Tool.objects.distinct())),
    "aiterator": lambda tool: waited(collected(Tool.objects.aiterator())),
    "aget": lambda tool: waited(Tool.objects.aget(pk=tool.pk)),
    "acount": lambda tool: waited(Tool.objects.acount()),
    "aexists": lambda tool: waited(Tool.objects.aexists()),
    "afirst": lambda tool: waited(Tool.objects.afirst()),
}

WRITES: dict[str, Callable[[Tool], Any]] = {
    "create": lambda tool: Category.objects.create(organisation_id=tool.organisation_id, name="new"),
    "save": lambda tool: tool.save(),
    "save of some fields": lambda tool: tool.save(update_fields=["name"]),
    "delete": lambda tool: tool.delete(),
    "bulk_create": lambda tool: Category.objects.bulk_create([Category(organisation_id=tool.organisation_id)]),
    "bulk_create of nothing": lambda tool: Category.objects.bulk_create([]),
    "bulk_update": lambda tool: Tool.objects.bulk_update([tool], ["name"]),
    "update": lambda tool: Tool.objects.update(name="x"),
    "update through the base manager": lambda tool: Tool._base_manager.update(name="x"),
    "delete of a queryset": lambda tool: Tool.objects.all().delete(),
    "delete of rows that nothing refers to": lambda tool: Task.objects.all().delete(),
    "fast delete": lambda tool: Task.objects.all()._raw_delete("default"),
    "add to a many to many": lambda tool: tool.agents.add(1),
    "set of a many to many": lambda tool: tool.agents.set([]),
    "clear of a many to many": lambda tool: tool.agents.clear(),
    "acreate": lambda tool: waited(Category.objects.acreate(organisation_id=tool.organisation_id, name="new")),
    "asave": lambda tool: waited(tool.asave()),
    "adelete": lambda tool: waited(tool.adelete()),
    "adelete of a queryset": lambda tool: waited(Task.objects.all().adelete()),
    "aupdate": lambda tool: waited(Tool.objects.aupdate(name="x")),
    "abulk_create": lambda tool: waited(Category.objects.abulk_create([Category()])),
}


def deferred(tool: Tool) -> Tool:
    with system_scope():
        return Tool.objects.only("name").get(pk=tool.pk)


@pytest.mark.parametrize("read", READS)
def test_without_a_scope_nothing_is_read(acme_tool: Tool, bob: Membership, read: str) -> None:
    with pytest.raises(ScopeError):
        READS[read](acme_tool)


@pytest.mark.parametrize("write", WRITES)
def test_without_a_scope_nothing_is_written(acme_tool: Tool, bob: Membership, write: str) -> None:
    with system_scope():
        Task.objects.create(organisation=bob.organisation, membership=bob, number=1, title="keep")

    with pytest.raises(ScopeError), transaction.atomic():
        WRITES[write](acme_tool)

    with system_scope():
        assert names(Tool.objects.all()) == ["acme_tool"]
        assert names(Category.objects.all()) == ["shared"]
        assert [task.title for task in Task.objects.all()] == ["keep"]


def test_without_a_scope_a_queryset_may_be_built_but_not_run(acme_tool: Tool) -> None:
    built = Tool.objects.filter(name="acme_tool").select_related("category").order_by("name")

    with pytest.raises(ScopeError):
        list(built)


def test_a_queryset_built_without_a_scope_shows_no_organisation_all_rows(both: tuple[Tool, Tool]) -> None:
    """A class-level queryset (of a form, of a view) has no organisation in its WHERE."""
    built = Tool.objects.all()

    with organisation_scope(both[0].organisation_id), pytest.raises(ScopeError):
        list(built.filter(is_enabled=True))
    with organisation_scope(both[0].organisation_id), pytest.raises(ScopeError):
        built.update(is_enabled=False)
    with organisation_scope(both[0].organisation_id), pytest.raises(ScopeError):
        built.delete()
    with system_scope():
        assert Tool.objects.filter(is_enabled=True).count() == 2


def test_an_empty_queryset_needs_no_scope(acme: Organisation) -> None:
    assert list(Tool.objects.none()) == []
    assert not Tool.objects.none().exists()


def test_reads_of_unguarded_tables_do_not_reach_memberships(bob: Membership) -> None:
    """A join from a table without an organisation would tell who exists where: the names for it do not exist."""
    for lookup in ("membership", "memberships", "tool", "category"):
        with pytest.raises(FieldError):
            list(Organisation.objects.filter(**{f"{lookup}__pk": 1}))
    with pytest.raises(FieldError):
        list(User.objects.filter(**{"memberships__organisation__slug": "acme"}))


# -- In a scope -------------------------------------------------------------------------------------------------------

SEEN: dict[str, Callable[[Tool, Tool], Any]] = {
    "all": lambda mine, other: names(Tool.objects.all()) == ["acme_tool"],
    "count": lambda mine, other: Tool.objects.count() == 1,
    "filter": lambda mine, other: not Tool.objects.filter(pk=other.pk),
    "get": lambda mine, other: Tool.objects.filter(pk=other.pk).first() is None,
    "exists": lambda mine, other: not Tool.objects.filter(name="globex_tool").exists(),
    "contains": lambda mine, other: not Tool.objects.contains(other),
    "in_bulk": lambda mine, other: Tool.objects.in_bulk([mine.pk, other.pk]) == {mine.pk: mine},
    "aggregate": lambda mine, other: Tool.objects.aggregate(rows=Count("pk")) == {"rows": 1},
    "values": lambda mine, other: list(Tool.objects.values_list("name", flat=True)) == ["acme_tool"],
    "join": lambda mine, other: names(Tool.objects.filter(category__name="shared")) == ["acme_tool"],
    "reverse join": lambda mine, other: not Category.objects.filter(tools__name="globex_tool"),
    "annotated count": lambda mine, other: (
        [row.found for row in Category.objects.annotate(found=Count("tools"))] == [1]
    ),
    "subquery": lambda mine, other: (
        names(Tool.objects.filter(category__in=Category.objects.filter(name="shared"))) == ["acme_tool"]
    ),
    "exists subquery": lambda mine, other: not Category.objects.filter(Exists(Tool.objects.filter(name="globex_tool"))),
    "or": lambda mine, other: (
        names(Tool.objects.filter(name="globex_tool") | Tool.objects.filter(name="acme_tool")) == ["acme_tool"]
    ),
    "union": lambda mine, other: names(Tool.objects.all().union(Tool.objects.filter(pk=other.pk))) == ["acme_tool"],
    "exclude": lambda mine, other: names(Tool.objects.exclude(name="x")) == ["acme_tool"],
    "negated or": lambda mine, other: (
        names(Tool.objects.exclude(name="x") | Tool.objects.exclude(name="y")) == ["acme_tool"]
    ),
    "base manager": lambda mine, other: names(Tool._base_manager.all()) == ["acme_tool"],
    "related manager of a foreign row": lambda mine, other: list(other.versions.all()) == [],
    "prefetch": lambda mine, other: (
        [names(row.tools.all()) for row in Category.objects.prefetch_related("tools")] == [["acme_tool"]]
    ),
    "prefetch onto foreign rows": lambda mine, other: list(prefetched(other).prefetched) == [],
    "async for": lambda mine, other: names(waited(collected(Tool.objects.all()))) == ["acme_tool"],
    "async for of a distinct": lambda mine, other: names(waited(collected(Tool.objects.distinct()))) == ["acme_tool"],
    "acount": lambda mine, other: waited(Tool.objects.acount()) == 1,
}


def prefetched(tool: Tool) -> Any:
    prefetch_related_objects([tool], Prefetch("versions", to_attr="prefetched"))
    return tool


@pytest.mark.parametrize("read", SEEN)
def test_in_a_scope_rows_of_another_organisation_do_not_exist(both: tuple[Tool, Tool], read: str) -> None:
    with organisation_scope(both[0].organisation_id):
        assert SEEN[read](*both)


def test_in_a_scope_a_foreign_row_is_missing_like_one_that_never_was(both: tuple[Tool, Tool]) -> None:
    mine, other = both

    with organisation_scope(mine.organisation_id):
        with pytest.raises(Tool.DoesNotExist) as foreign:
            Tool.objects.get(pk=other.pk)
        with pytest.raises(Tool.DoesNotExist) as missing:
            Tool.objects.get(pk=10**9)

    assert str(foreign.value) == str(missing.value)


def test_in_a_scope_the_forward_key_of_a_foreign_row_is_missing(both: tuple[Tool, Tool]) -> None:
    foreign = fresh(both[1])

    with organisation_scope(both[0].organisation_id), pytest.raises(Category.DoesNotExist):
        foreign.category  # noqa: B018
    with organisation_scope(both[0].organisation_id), pytest.raises(Tool.DoesNotExist):
        foreign.refresh_from_db()


def refused_writes(mine: Tool, other: Tool) -> dict[str, Callable[[], Any]]:
    their_category, their_id = other.category, other.organisation_id
    return {
        "create for it": lambda: Category.objects.create(organisation_id=their_id, name="planted"),
        "create with its row": lambda: Tool.objects.create(
            organisation_id=mine.organisation_id, name="linked", category=their_category
        ),
        "get_or_create for it": lambda: Category.objects.get_or_create(organisation_id=their_id, name="planted"),
        "save its row": lambda: other.save(),
        "delete its row": lambda: other.delete(),
        "link to its row and save": lambda: linked(mine, their_category).save(),
        "move a row to it": lambda: moved(mine, their_id).save(),
        "update to its row": lambda: Tool.objects.update(category=their_category),
        "update to its row by key": lambda: Tool.objects.update(category=their_category.pk),
        "update to its row by column": lambda: Tool.objects.update(category_id=their_category.pk),
        "update to another organisation": lambda: Tool.objects.update(organisation=other.organisation),
        "update to another organisation by key": lambda: Tool.objects.update(organisation_id=their_id),
        "bulk_create for it": lambda: Category.objects.bulk_create([Category(organisation_id=their_id)]),
        "bulk_update its row": lambda: Tool.objects.bulk_update([other], ["name"]),
        "overwrite its row by conflict": lambda: Category.objects.bulk_create(
            [Category(pk=their_category.pk, organisation_id=mine.organisation_id, name="taken", title="taken")],
            update_conflicts=True,
            unique_fields=["id"],
            update_fields=["title"],
        ),
        "add to its collection": lambda: their_category.tools.add(mine, bulk=False),
        "a raw query": lambda: list(Tool.objects.raw("SELECT * FROM capabilities_tool")),
        "asave its row": lambda: waited(other.asave()),
        "adelete its row": lambda: waited(other.adelete()),
    }


def linked(tool: Tool, category: Category) -> Tool:
    tool.category = category
    return tool


def moved(tool: Tool, organisation_id: int) -> Tool:
    tool.organisation_id = organisation_id
    return tool


REFUSED = [
    "create for it",
    "create with its row",
    "get_or_create for it",
    "save its row",
    "delete its row",
    "link to its row and save",
    "move a row to it",
    "update to its row",
    "update to its row by key",
    "update to its row by column",
    "update to another organisation",
    "update to another organisation by key",
    "bulk_create for it",
    "bulk_update its row",
    "overwrite its row by conflict",
    "add to its collection",
    "a raw query",
    "asave its row",
    "adelete its row",
]


@pytest.mark.parametrize("write", REFUSED)
def test_in_a_scope_a_write_that_touches_another_organisation_is_refused(both: tuple[Tool, Tool], write: str) -> None:
    with system_scope():
        before = rows_of(Tool), rows_of(Category)

    with (
        organisation_scope(both[0].organisation_id),
        pytest.raises(ScopeError),
        transaction.atomic(),
    ):
        refused_writes(*both)[write]()

    with system_scope():
        assert (rows_of(Tool), rows_of(Category)) == before


def rows_of(model: Any) -> list[dict[str, Any]]:
    return list(model.objects.order_by("pk").values())


def test_the_table_of_refused_writes_names_each_of_them(both: tuple[Tool, Tool]) -> None:
    assert list(refused_writes(*both)) == REFUSED


def test_in_a_scope_updates_and_deletes_of_all_rows_reach_its_own_only(both: tuple[Tool, Tool]) -> None:
    mine, other = both

    with organisation_scope(mine.organisation_id):
        assert Tool.objects.update(is_enabled=False) == 1
        assert Tool.objects.filter(pk=other.pk).update(is_enabled=False) == 0
        Tool.objects.update(current_version=None)
        Tool.objects.filter(pk__in=[mine.pk, other.pk]).delete()

    with system_scope():
        assert [(row.name, row.is_enabled) for row in Tool.objects.all()] == [("globex_tool", True)]


def test_in_a_scope_a_row_made_up_under_a_foreign_key_changes_nothing(both: tuple[Tool, Tool], bob: Membership) -> None:
    """As a careless view would make it: our organisation, their primary key."""
    mine, other = both
    with system_scope():
        their_task = Task.objects.create(
            organisation=other.organisation,
            membership=Membership.objects.create(organisation=other.organisation, user=bob.user),
            number=1,
            title="theirs",
        )

    with organisation_scope(mine.organisation_id):
        made_up = Task(pk=their_task.pk, organisation_id=mine.organisation_id, membership=bob, number=1, title="ours")
        assert made_up.delete() == (0, {})
        made_up.pk = their_task.pk
        with pytest.raises(IntegrityError), transaction.atomic():
            made_up.save()

    with system_scope():
        assert [task.title for task in Task.objects.all()] == ["theirs"]


def test_in_a_scope_a_link_by_key_to_a_foreign_row_of_a_many_to_many_is_refused(both: tuple[Tool, Tool]) -> None:
    mine, other = both
    agent = make_agent(mine.organisation)

    with organisation_scope(mine.organisation_id), pytest.raises(ScopeError), transaction.atomic():
        agent.tools.add(other, through_defaults={"organisation": mine.organisation})

    with system_scope():
        assert not AgentTool.objects.exists()


def test_in_a_scope_a_link_within_the_organisation_works(acme: Organisation, acme_tool: Tool) -> None:
    agent = make_agent(acme)

    with organisation_scope(acme):
        agent.tools.add(acme_tool, through_defaults={"organisation": acme})
        Tool.objects.update(category=make_category(acme, "second"))

    with organisation_scope(acme):
        assert names(agent.tools.all()) == ["acme_tool"]
        assert [row.category.name for row in Tool.objects.all()] == ["second"]


def test_a_subquery_built_without_a_scope_is_refused_inside_one(both: tuple[Tool, Tool]) -> None:
    everybodys = Category.objects.filter(name="shared")
    outer = Tool.objects.filter(category=OuterRef("pk"))

    with organisation_scope(both[0].organisation_id):
        with pytest.raises(ScopeError):
            list(Tool.objects.filter(category__in=everybodys))
        with pytest.raises(ScopeError):
            list(Category.objects.annotate(found=Exists(outer)))
        with pytest.raises(ScopeError):
            list(Tool.objects.all() | everything_unscoped())
        with pytest.raises(ScopeError):
            list(Category.objects.prefetch_related(Prefetch("tools", everything_unscoped())))


def everything_unscoped() -> QuerySet[Tool]:
    """A queryset as a module or class body makes it: before any scope."""
    return contextvars.Context().run(lambda: Tool.objects.all())


def test_a_queryset_belongs_to_the_scope_that_it_was_built_in(both: tuple[Tool, Tool]) -> None:
    mine, other = both
    with organisation_scope(mine.organisation_id):
        built = Tool.objects.all()

    assert names(built.all()) == ["acme_tool"]
    with organisation_scope(other.organisation_id):
        assert names(built.all()) == ["acme_tool"]
    with system_scope():
        assert names(built.all()) == ["acme_tool"]


# -- Scopes -----------------------------------------------------------------------------------------------------------


def test_scopes_nest_and_come_back(both: tuple[Tool, Tool]) -> None:
    mine, other = both

    with organisation_scope(mine.organisation_id):
        with organisation_scope(other.organisation_id):
            assert names(Tool.objects.all()) == ["globex_tool"]
            with system_scope():
                assert names(Tool.objects.all()) == ["acme_tool", "globex_tool"]
            assert names(Tool.objects.all()) == ["globex_tool"]
        assert names(Tool.objects.all()) == ["acme_tool"]
    assert not has_scope()


def test_a_scope_ends_with_an_exception(acme: Organisation) -> None:
    with pytest.raises(ZeroDivisionError), organisation_scope(acme):
        1 / 0  # noqa: B018

    assert not has_scope()


def test_the_system_scope_sees_and_writes_every_organisation(both: tuple[Tool, Tool]) -> None:
    with system_scope():
        assert names(Tool.objects.all()) == ["acme_tool", "globex_tool"]
        assert Tool.objects.update(is_enabled=False) == 2
        both[1].save()


def test_the_system_scope_does_not_link_rows_of_two_organisations(both: tuple[Tool, Tool]) -> None:
    mine, other = both

    with system_scope(), pytest.raises(ScopeError):
        Tool.objects.create(organisation=mine.organisation, name="linked", category=other.category)
    with system_scope(), pytest.raises(ScopeError):
        linked(mine, other.category).save()


def test_a_thread_starts_without_a_scope(acme: Organisation) -> None:
    seen: list[bool] = []

    with organisation_scope(acme):
        thread = threading.Thread(target=lambda: seen.append(has_scope()))
        thread.start()
        thread.join()

    assert seen == [False]


def test_a_thread_in_a_copy_of_the_context_keeps_the_scope(acme: Organisation) -> None:
    seen: list[int] = []

    with organisation_scope(acme):
        context = contextvars.copy_context()
    thread = threading.Thread(target=context.run, args=(lambda: seen.append(current_scope()),))
    thread.start()
    thread.join()

    assert seen == [acme.pk]


def test_sync_to_async_keeps_the_scope(acme: Organisation) -> None:
    async def ask() -> int:
        return await sync_to_async(current_scope)()

    with organisation_scope(acme):
        assert asyncio.run(ask()) == acme.pk


def test_two_tasks_of_one_loop_have_a_scope_each(acme: Organisation, globex: Organisation) -> None:
    async def ask(organisation: Organisation) -> tuple[int, int]:
        with organisation_scope(organisation):
            first = current_scope()
            await asyncio.sleep(0.01)
            return first, await sync_to_async(current_scope)()

    async def both() -> list[tuple[int, int]]:
        return list(await asyncio.gather(ask(acme), ask(globex)))

    assert asyncio.run(both()) == [(acme.pk, acme.pk), (globex.pk, globex.pk)]


def test_deleting_an_organisation_takes_its_own_rows_only(both: tuple[Tool, Tool], alice: Membership) -> None:
    mine, _ = both
    make_role(mine.organisation, alice)

    with system_scope():
        Tool.objects.filter(organisation=mine.organisation).update(current_version=None)
        Tool.objects.filter(organisation=mine.organisation).delete()
        mine.organisation.delete()

        assert names(Tool.objects.all()) == ["globex_tool"]
        assert not RoleMembership.objects.exists()


def test_every_table_with_an_organisation_is_guarded() -> None:
    """A model with a key to Organisation that forgot the base class would be open."""
    unguarded = {
        model.__name__
        for model in apps.get_models()
        if not issubclass(model, TenantModel)
        or not isinstance(model._default_manager, TenantManager)
        or not isinstance(model._base_manager, TenantManager)
    }

    third_party = {
        "Authenticator",
        "Permission",
        "Group",
        "ContentType",
        "Session",
        "EmailAddress",
        "EmailConfirmation",
    }
    # Copies that others read are no rows of a tenancy: one room asks who may see which (test_publications.py).
    # Processes of the service are nobody's (tests/sessions/worker/test_signs.py).
    assert unguarded - third_party == {"Organisation", "User", "Publication", "WorkerSign"}


def test_f_expressions_and_related_columns_stay_within_the_scope(both: tuple[Tool, Tool]) -> None:
    with organisation_scope(both[0].organisation_id):
        rows = list(Tool.objects.annotate(where=F("category__name")).values_list("name", "where"))

    assert rows == [("acme_tool", "shared")]


def test_the_database_in_use_is_the_one_asked_for() -> None:
    assert connection.vendor in settings.DATABASES["default"]["ENGINE"]


def test_agents_of_another_organisation_cannot_be_counted_through_a_tool(both: tuple[Tool, Tool]) -> None:
    make_agent(both[1].organisation)

    with organisation_scope(both[0].organisation_id):
        assert Agent.objects.count() == 0
