"""`manage.py up`: everything that one machine needs, under one supervisor."""

from __future__ import annotations

import argparse
import os
import sys

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandParser
from django.db import connection, connections
from django.db.migrations.executor import MigrationExecutor

from toolhub.static_files import collect_if_changed
from toolhub.supervisor import Plan, Supervisor, say


class Command(BaseCommand):
    help = """Runs toolhub on this machine: migrates the database, fills a starter organisation the first time, and
starts Valkey (unless REDIS_URL names a server), the offline model, a worker and the web server.

Prints the address when it is ready. Ctrl-C ends all parts; a part that ends by itself is started again.

Set by the environment, among others (docs/settings.md lists all):
  PORT              port of the web server (8000)
  HOST              address that it listens on (127.0.0.1)
  TOOLHUB_DATA_DIR  folder for the database, secrets and files (var)
  REDIS_URL         a Redis or Valkey to use instead of an own one"""
    requires_system_checks = ()  # the children check themselves; this one should start at once

    def add_arguments(self, parser: CommandParser) -> None:
        parser.formatter_class = argparse.RawDescriptionHelpFormatter

    def handle(self, *args: object, **options: object) -> None:
        plan = Plan(
            data_dir=settings.DATA_DIR,
            host=settings.HOST,
            port=settings.PORT,
            allowed_hosts=settings.ALLOWED_HOSTS,
            redis_url=settings.REDIS_URL,
            offline_model_url=os.environ.get("TOOLHUB_OFFLINE_MODEL_URL", "").strip(),
            worker_concurrency=settings.WORKER_CONCURRENCY,
        )
        sys.exit(Supervisor(plan).run(prepare))


def prepare() -> bool:
    """Migrate the database where it is new or older than the code, and collect static files; whether it migrated."""
    executor = MigrationExecutor(connection)
    migrates = bool(executor.migration_plan(executor.loader.graph.leaf_nodes()))
    if migrates:
        say("Preparing the database ...")
        call_command("migrate", verbosity=0, interactive=False)
    if not settings.PRODUCTION:  # an image has them
        collect_if_changed()
    connections.close_all()  # the children open their own
    return migrates
