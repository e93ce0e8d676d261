"""Writes a toolkit as one file, for another organisation or installation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from capabilities.agents.sharing.exports import export_toolkit
from capabilities.common.refused import ChangeRefused
from capabilities.models import Toolkit
from toolhub.tenants.models import Organisation
from toolhub.tenants.rows.scope import organisation_scope


class Command(BaseCommand):
    help = "Write a toolkit as one hashed file: its tools as they are in force, without secrets."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", help="Name of the toolkit.")
        parser.add_argument("--organisation", required=True, help="Slug of the organisation.")
        parser.add_argument("--output", required=True, metavar="FILE", help="The file; one that is there is replaced.")

    def handle(self, *args: Any, **options: Any) -> None:
        organisation = Organisation.objects.filter(slug=options["organisation"]).first()
        if organisation is None:
            raise CommandError(f"There is no organisation {options['organisation']}.")
        path = Path(options["output"])
        with organisation_scope(organisation):
            toolkit = Toolkit.objects.filter(name=options["name"]).first()
            if toolkit is None:
                raise CommandError(f"There is no toolkit {options['name']}.")
            try:
                exported = export_toolkit(toolkit, actor=None)
            except ChangeRefused as error:
                raise CommandError(str(error)) from error
        try:
            path.write_text(exported.text + "\n", encoding="utf-8")
        except OSError as error:
            raise CommandError(f"{path} cannot be written: {error.strerror}.") from error
        count = sum(exported.summary["tools"].values())
        self.stdout.write(f"{path}: {count} tools, SHA-256 {exported.sha256}")
        for name, why in exported.left_out:
            self.stdout.write(f"Left out: {name}, because: {why}")
