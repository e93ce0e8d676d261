"""Preparation by `manage.py up` before it starts the parts: migrations, static files, the first organisation."""

from __future__ import annotations

import signal

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError
from django.db import connection
from django.db.migrations.executor import MigrationExecutor

from toolhub.embedded.supervisor import announce
from toolhub.tenants.upgrades import older_than_known
from toolhub.web.static_files import collect_if_changed


class Command(BaseCommand):
    help = "Make everything ready for a start: the database, the static files, the starter organisation. `up` does it."
    requires_system_checks = ()  # the parts check themselves

    def handle(self, *args: object, **options: object) -> None:
        """SIGTERM ends it where it is: a migration is done or undone as a whole. The bootstrap is done to its end."""
        lacks = older_than_known()
        if lacks:
            raise CommandError(
                f"These data are of a release before the last one before 1.0: {len(lacks)} of its migrations are "
                f"missing, {lacks[0]} first. Start the commit before 1.0.0 with them once, then this one."
            )
        executor = MigrationExecutor(connection)
        migrates = bool(executor.migration_plan(executor.loader.graph.leaf_nodes()))
        if migrates:
            announce("Preparing the database ...")
            call_command("migrate", verbosity=0, interactive=False)
        if not settings.PRODUCTION:  # an image has them
            collect_if_changed()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it prints what is shown only once
        call_command("bootstrap")
        if migrates:
            announce("Starting ...")
