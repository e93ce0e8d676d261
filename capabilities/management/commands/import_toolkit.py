"""Puts a toolkit file into review: what it holds waits for a person, in the browser."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from django.core.exceptions import PermissionDenied
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.urls import reverse

from capabilities.catalogue.imports.runs import READ_SECONDS, run_import
from capabilities.catalogue.imports.writes.start import MAX_FILE, start_import
from capabilities.common.refused import ChangeRefused
from capabilities.models import OPEN_IMPORTS, ImportSource, ImportStatus, ToolImport
from toolhub.tenants.models import Membership, Organisation
from toolhub.tenants.rows.scope import organisation_scope

#: Seconds between looks at an import that a worker took first.
LOOK_EVERY = 0.5


class Command(BaseCommand):
    help = "Read a toolkit file into review. Nothing of it is a tool before somebody accepts it in the browser."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", help="A file that export_toolkit wrote.")
        parser.add_argument("--organisation", required=True, help="Slug of the organisation that it is for.")
        parser.add_argument("--member", metavar="EMAIL", help="In whose name; needs the right catalogue.")

    def handle(self, *args: Any, **options: Any) -> None:
        organisation = Organisation.objects.filter(slug=options["organisation"]).first()
        if organisation is None:
            raise CommandError(f"There is no organisation {options['organisation']}.")
        text = self._text(Path(options["file"]))
        with organisation_scope(organisation):
            member = self._member(options["member"])
            try:
                tool_import = start_import(ImportSource.TOOLKIT, actor=member, document=text, organisation=organisation)
            except (ChangeRefused, PermissionDenied) as error:
                raise CommandError(str(error)) from error
        tool_import = self._read(tool_import, organisation)
        if tool_import.status == ImportStatus.FAILED:
            raise CommandError(tool_import.reason)
        counts = tool_import.summary.get("statuses", {})
        summary = ", ".join(f"{count} {status}" for status, count in sorted(counts.items())) or "nothing in it"
        self.stdout.write(f"{tool_import.title}: {summary}.")
        self.stdout.write(f"Review it at {reverse('import_detail', args=[organisation.slug, tool_import.public_id])}")

    def _text(self, path: Path) -> str:
        try:
            with path.open("rb") as file:
                content = file.read(4 * MAX_FILE + 1)
            return content.decode("utf-8-sig")
        except OSError as error:
            raise CommandError(f"{path} cannot be read: {error.strerror}.") from error
        except UnicodeDecodeError:
            raise CommandError(f"{path} is no text (UTF-8).") from None

    def _member(self, email: str | None) -> Membership | None:
        if not email:
            return None
        member = Membership.objects.select_related("user", "organisation").filter(user__email__iexact=email).first()
        if member is None:
            raise CommandError(f"{email} is no member of the organisation.")
        return member

    def _read(self, tool_import: ToolImport, organisation: Organisation) -> ToolImport:
        """Read it here, unless a worker was quicker: then wait for that one."""
        run_import(tool_import.public_id)
        until = time.monotonic() + READ_SECONDS
        with organisation_scope(organisation):
            tool_import.refresh_from_db()
            while tool_import.status in OPEN_IMPORTS and time.monotonic() < until:
                time.sleep(LOOK_EVERY)
                tool_import.refresh_from_db()
        return tool_import
