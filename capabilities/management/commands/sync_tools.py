"""Keeps Python tools in step with a folder of files, for people who keep their tools in git."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from pathlib import Path
from threading import Event
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import close_old_connections
from watchfiles import watch

from capabilities.agents.sharing.sync import Folder, Synced, sync_folder
from capabilities.models import Category
from toolhub.tenants.models import Membership, Organisation, Right
from toolhub.tenants.rows.scope import organisation_scope

#: Milliseconds without a change before a folder is read: an editor writes a file in pieces.
QUIET_MS = 300
#: Milliseconds after which it is read again though nothing was heard of a change.
AGAIN_MS = 10_000
SIGNS = {"new": "+", "changed": "~", "broken": "!", "gone": "-", "unchanged": "="}


class Command(BaseCommand):
    _last_lines: Sequence[str] = ()
    help = "Bring the catalogue in step with a folder of Python tools: one file, one tool."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("folder", help="The folder; files below it count too.")
        parser.add_argument("--organisation", required=True, help="Slug of the organisation.")
        parser.add_argument("--category", default="dynamic", help="Where new tools go that name no CATEGORY.")
        parser.add_argument(
            "--approved-by",
            metavar="EMAIL",
            help="A member with the right approve_code, who answers for the folder: its versions are in force at once."
            " Without, each waits for approval in the browser.",
        )
        parser.add_argument("--watch", action="store_true", help="Go on, and read the folder again when it changes.")

    def handle(self, *args: Any, **options: Any) -> None:
        folder = self._folder(options)
        broken = self._sync(folder, tells_all=True)
        if not options["watch"]:
            if broken:
                raise CommandError(f"{broken} of the files could not become tools.")
            return
        # Both end it in good order, also where whoever started it in the background had Ctrl+C ignored.
        stopped = Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: stopped.set())
        self.stdout.write(f"Watching {folder.path}. Ctrl+C ends it.")
        # Now and then without a change as well: one may come before the watch begins, and some disks tell of none.
        options_of_watch: dict[str, Any] = {
            "rust_timeout": AGAIN_MS,
            "yield_on_timeout": True,
            "stop_event": stopped,
        }
        for _ in watch(folder.path, step=QUIET_MS, debounce=10 * QUIET_MS, **options_of_watch):
            close_old_connections()
            self._sync(folder)

    def _folder(self, options: dict[str, Any]) -> Folder:
        path = Path(options["folder"]).resolve()
        if not path.is_dir():
            raise CommandError(f"{path} is no folder.")
        organisation = Organisation.objects.filter(slug=options["organisation"]).first()
        if organisation is None:
            raise CommandError(f"There is no organisation {options['organisation']}.")
        with organisation_scope(organisation):
            if not Category.objects.filter(name=options["category"]).exists():
                raise CommandError(f"There is no category {options['category']}.")
            approver = self._approver(options["approved_by"])
        return Folder(path, organisation, options["category"], approver)

    def _approver(self, email: str | None) -> Membership | None:
        if not email:
            return None
        member = Membership.objects.select_related("user").filter(user__email__iexact=email).first()
        if member is None:
            raise CommandError(f"{email} is no member of the organisation.")
        if not member.has_right(Right.APPROVE_CODE):
            raise CommandError(f"{email} does not have the right approve_code.")
        return member

    def _sync(self, folder: Folder, *, tells_all: bool = False) -> int:
        """Sync the folder and return the number of broken files. Lines that were printed last are not printed again."""
        with organisation_scope(folder.organisation):
            found = sync_folder(folder)
        lines = [self._line(each) for each in found if each.outcome != "unchanged"]
        broken = sum(each.outcome == "broken" for each in found)
        if tells_all or lines != self._last_lines:
            files = "1 file" if len(found) == 1 else f"{len(found)} files"
            self.stdout.write("\n".join([*lines, f"{files}, {broken} broken."]))
        self._last_lines = lines
        return broken

    def _line(self, each: Synced) -> str:
        return f"{SIGNS[each.outcome]} {each.path}" + (f": {each.message}" if each.message else "")
