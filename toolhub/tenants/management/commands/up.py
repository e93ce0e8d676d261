"""`manage.py up`: everything that one machine needs, under one supervisor.

`manage.py` calls the supervisor itself, without Django; this is where its help is, and what other callers get.
"""

from __future__ import annotations

import argparse
import sys

from django.core.management.base import BaseCommand, CommandParser

from toolhub.embedded.supervisor import up


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
        sys.exit(up())
