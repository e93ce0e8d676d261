"""The migrations that the squashed ones replace, by themselves: to bring a database to a state of long ago."""

from __future__ import annotations

from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.loader import MigrationLoader
from django.utils import timezone

#: A state that an installation was in when it was stopped: all three apps are in the middle.
MIDDLE = (("tenants", "0004_indexes"), ("capabilities", "0014_indexes"), ("toolhub_sessions", "0013_indexes"))


def old_executor() -> MigrationExecutor:
    """Knows the replaced migrations, and none that replaces."""
    executor = MigrationExecutor(connection)
    executor.loader = old_loader()
    return executor


def old_loader() -> MigrationLoader:
    loader = MigrationLoader(connection, replace_migrations=False)
    for key, migration in loader.replacements.items():
        loader.graph.remove_replacement_node(key, migration.replaces)
    return loader


def make_middle() -> None:
    """Bring an empty database to MIDDLE, with rows that the migrations after it have to do with."""
    apps = old_executor().migrate([*MIDDLE]).apps
    organisation = apps.get_model("tenants", "Organisation").objects.create(name="Acme", slug="acme")
    user = apps.get_model("tenants", "User").objects.create(email="alice@example.com")
    membership = apps.get_model("tenants", "Membership").objects.create(
        organisation=organisation, user=user, access="admin"
    )
    own = {"organisation": organisation}
    provider = apps.get_model("capabilities", "Provider").objects.create(**own, name="P", slug="p")
    model = apps.get_model("capabilities", "LanguageModel").objects.create(**own, provider=provider, name="m")
    agent = apps.get_model("capabilities", "Agent").objects.create(**own, name="A", slug="a", model=model)
    session = apps.get_model("toolhub_sessions", "ChatSession").objects.create(
        **own, membership=membership, agent=agent
    )
    turn = apps.get_model("toolhub_sessions", "Turn").objects.create(
        **own, session=session, membership=membership, agent=agent, seq=1, deadline_at=timezone.now()
    )
    apps.get_model("toolhub_sessions", "Step").objects.create(
        **own, turn=turn, index=1, kind="model", status="done", verdicts=[{"tool": "clock", "kept": True}]
    )


if __name__ == "__main__":
    import django

    django.setup()
    make_middle()
