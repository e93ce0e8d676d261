"""Applies a file of toolkits and agents: what `manage.py bootstrap` does at each start with the file of a setting."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from capabilities.agents.sharing.agents_file import FileRefused, apply_file
from toolhub.tenants.models import Membership, Organisation
from toolhub.tenants.rows.scope import organisation_scope

SIGNS = {"new": "+", "changed": "~", "unchanged": "="}


class Command(BaseCommand):
    help = "Make or change toolkits and agents as a YAML or JSON file says: all of it, or nothing."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", help="The file.")
        parser.add_argument("--organisation", required=True, help="Slug of the organisation.")
        parser.add_argument("--by", metavar="EMAIL", required=True, help="The member in whose name it is written.")

    def handle(self, *args: Any, **options: Any) -> None:
        organisation = Organisation.objects.filter(slug=options["organisation"]).first()
        if organisation is None:
            raise CommandError(f"{options['file']}: there is no organisation {options['organisation']}.")
        with organisation_scope(organisation):
            actor = self._actor(options["by"])
            if actor is None:
                raise CommandError(f"{options['file']}: {options['by']} is no member of {organisation.slug}.")
            try:
                applied = apply_file(Path(options["file"]), actor=actor)
            except FileRefused as refused:
                raise CommandError(f"{refused}\nNothing of the file was applied.") from refused
        for each in applied:
            if each.outcome != "unchanged":
                self.stdout.write(f"{SIGNS[each.outcome]} {each.kind} {each.name}")
        self.stdout.write(f"{options['file']}: {len(applied)} toolkits and agents are as it says.")

    def _actor(self, email: str) -> Membership | None:
        members = Membership.objects.select_related("user", "organisation").filter(ended_at=None)
        return members.filter(user__email__iexact=email).first()
