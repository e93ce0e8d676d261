"""Checks the audit chain of one organisation, or of each. Exits with 1 and names the first broken entry."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from toolhub.tenants.audit.writes import check_chain
from toolhub.tenants.models import Organisation


class Command(BaseCommand):
    help = "Check that no audit entry was changed, taken out or put in since it was recorded."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("slug", nargs="?", help="Short name of one organisation; without it, all are checked.")

    def handle(self, *args: Any, slug: str | None = None, **options: Any) -> None:
        organisations = Organisation.objects.order_by("slug")
        if slug is not None:
            organisations = organisations.filter(slug=slug)
            if not organisations:
                raise CommandError(f"There is no organisation {slug}.")
        broken = 0
        for organisation in organisations:
            found = check_chain(organisation)
            if found is None:
                organisation.refresh_from_db()
                self.stdout.write(f"{organisation.slug}: chain intact, {organisation.audit_count} entries")
            else:
                broken += 1
                self.stderr.write(f"{organisation.slug}: entry {found.number}: {found.reason}")
        if broken:
            raise CommandError(f"The audit of {broken} organisation{'s' if broken > 1 else ''} is broken.")
