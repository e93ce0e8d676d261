"""Keeps Python tools of the catalogue in step with a folder: each file by itself, only where its content changed.

A new content is a version that waits for approval, unless a member answers for the folder. A file that is gone keeps
its tool back; one that is broken leaves its tool as it is, and its error is kept for the page.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Literal

from django.core.exceptions import PermissionDenied
from django.db import transaction

from capabilities.agents.sharing.tool_files import MAX_FILE, FileBroken, ToolFile, read_tool_file
from capabilities.catalogue.tools.writes import Origin, create_tool, update_tool
from capabilities.catalogue.versions.rules import status_of_new
from capabilities.catalogue.versions.writes import decide_version
from capabilities.common.confined import ConfinedError
from capabilities.common.refused import ChangeRefused
from capabilities.common.registry_version import touch_registry
from capabilities.common.text import storable
from capabilities.models import (
    RELEASED,
    Category,
    SyncedFile,
    Tool,
    ToolKind,
    ToolTestCase,
    ToolVersion,
    VersionStatus,
    kept_back,
)
from toolhub.tenants.audit.writes import record
from toolhub.tenants.models import Membership, Organisation

logger = logging.getLogger(__name__)

#: Outcome of the synchronisation of one file.
Outcome = Literal["new", "changed", "unchanged", "broken", "gone"]
#: Files of one folder.
MOST_FILES = 1_000
#: Characters of an error that is kept.
MAX_ERROR = 2_000
GONE = "Its file {path} is gone from the folder {folder}."


@dataclass(frozen=True)
class Synced:
    """Outcome for one file, and why it is broken."""

    path: str
    outcome: Outcome
    message: str = ""


@dataclass(frozen=True)
class Folder:
    """A folder of one organisation: where new tools go that name no category, and who answers for what is in it."""

    path: Path
    organisation: Organisation
    category: str = "dynamic"
    approver: Membership | None = None

    @property
    def label(self) -> str:
        return str(self.path)[:500]


def sync_folder(folder: Folder) -> list[Synced]:
    """Bring the catalogue in step with the folder. In the organisation's scope. Never raises for what a file holds."""
    if folder.approver is not None:  # as the member is now: a watch goes on for days
        approver = Membership.objects.select_related("user").filter(pk=folder.approver.pk).first()
        if approver is None:
            return [Synced("", "broken", "Who answered for the folder is no member any more.")]
        folder = replace(folder, approver=approver)
    names = sorted(tool_files_of(folder.path))
    known = {row.path: row for row in SyncedFile.objects.filter(folder=folder.label).select_related("tool")}
    found = [_sync_file(folder, name, known.get(name)) for name in names[:MOST_FILES]]
    found += [Synced(name, "broken", f"Only {MOST_FILES:,} files are read.") for name in names[MOST_FILES:]]
    removed = [row for path, row in known.items() if path not in set(names)]
    return found + [each for row in removed if (each := _forget(folder, row)) is not None]


def tool_files_of(folder: Path) -> Iterable[str]:
    """Paths of the Python files, inside the folder. Names that begin with a dot or an underscore are left out."""
    for path in folder.rglob("*.py"):
        inside = path.relative_to(folder)
        if not any(part.startswith((".", "_")) for part in inside.parts) and path.is_file():
            yield inside.as_posix()


def _sync_file(folder: Folder, path: str, row: SyncedFile | None) -> Synced:
    """Read one file and write its tool; return what came of it. It raises nothing: an error is in the outcome."""
    row = row or SyncedFile(organisation=folder.organisation, folder=folder.label, path=path[:500])
    digest, has_changed = "", True
    try:
        if not (folder.path / path).resolve().is_relative_to(folder.path.resolve()):
            raise FileBroken("It is a link that leads out of the folder.")
        with (folder.path / path).open("rb") as file:
            content = file.read(4 * MAX_FILE + 1)
        digest = sha256(content).hexdigest()
        has_changed = digest != row.sha256 or (row.tool is None and not row.error)
        if not has_changed and not (row.tool and row.tool.quarantine == _why_removed(row)):
            return Synced(path, "broken", row.error) if row.error else Synced(path, "unchanged")
        read = read_tool_file(path, content.decode(), folder.organisation.pk)
        with transaction.atomic():
            tool, is_new = _save(folder, path, row, read)
            _note(row, digest, tool, "")
    except (OSError, UnicodeDecodeError, FileBroken, ConfinedError, ChangeRefused, PermissionDenied) as error:
        message = storable(_sentence(error), MAX_ERROR)
        _note(row, digest, row.tool, message)
        return Synced(path, "broken", message)
    except Exception as error:
        logger.exception("The file %s could not be synchronised", path)
        message = f"It could not be read ({type(error).__name__}); the error is in the server's log."
        _note(row, digest, row.tool, message)
        return Synced(path, "broken", message)
    if not has_changed:
        return Synced(path, "changed")
    return Synced(path, "new" if is_new else "changed")


def _sentence(error: Exception) -> str:
    if isinstance(error, OSError):
        return f"The file cannot be read: {error.strerror}."
    return "The file is no UTF-8 text." if isinstance(error, UnicodeDecodeError) else str(error)


def _why_removed(row: SyncedFile) -> str:
    """Why a tool is kept back whose file is gone."""
    return GONE.format(path=row.path, folder=row.folder)[:300]


def _note(row: SyncedFile, digest: str, tool: Tool | None, error: str) -> None:
    row.sha256, row.tool, row.error = digest, tool, error
    row.save()


def _save(folder: Folder, path: str, row: SyncedFile, read: ToolFile) -> tuple[Tool, bool]:
    """The tool with the file's content as its newest version, approved by who answers for the folder; and whether it
    is a new one. Raises ChangeRefused for a name that another tool has."""
    tool, content = row.tool, read.definition
    status = status_of_new(ToolKind.PYTHON, None, author=None, changes_code=True)
    if tool is None:
        tool = _own_tool(folder, content.name)
    is_new = tool is None
    if tool is None:
        category = _category(read.category or folder.category)
        origin = Origin(kind=ToolKind.PYTHON, source=f"File {path}")
        tool = create_tool(category, content, actor=None, origin=origin, status=status)
        version = tool.versions.get()
    else:
        _check_category(tool, read.category)
        ToolVersion.objects.filter(tool=tool, status=VersionStatus.PENDING).update(
            status=VersionStatus.REJECTED, status_reason="The file was changed again."
        )
        version = update_tool(tool, content, actor=None, status=status)
    _save_tests(tool, read)
    if folder.approver is not None and version.status == VersionStatus.PENDING:
        decide_version(version, approve=True, reason=f"From the file {path}.", actor=folder.approver)
    if tool.quarantine == _why_removed(row):
        Tool.objects.filter(pk=tool.pk).update(**RELEASED)
        record("tool.release", tool, actor=folder.approver, before={"quarantine": tool.quarantine})
        touch_registry(tool.organisation_id)
    return tool, is_new


def _own_tool(folder: Folder, name: str) -> Tool | None:
    """The tool of this name, where it came from a file of this folder before."""
    tool = Tool.objects.filter(name=name).select_related("category").first()
    if tool is None:
        return None
    if tool.kind != ToolKind.PYTHON or not SyncedFile.objects.filter(tool=tool, folder=folder.label).exists():
        raise FileBroken(f"There is a tool named {name} already, which did not come from this folder: rename the file.")
    return tool


def _category(name: str) -> Category:
    category = Category.objects.filter(name=name).first()
    if category is None:
        raise FileBroken(f"There is no category {name}: make it on the page Categories, or name another.")
    return category


def _check_category(tool: Tool, name: str) -> None:
    if name and name != tool.category.name:
        raise FileBroken(
            f"The tool is in the category {tool.category.name}: move it on its page, then change the file."
        )


def _save_tests(tool: Tool, read: ToolFile) -> None:
    """The saved tests of the tool are those of the file."""
    ToolTestCase.objects.filter(tool=tool).exclude(name__in=[each.name for each in read.tests]).delete()
    for each in read.tests:
        ToolTestCase.objects.update_or_create(
            tool=tool,
            name=each.name,
            defaults={
                "organisation_id": tool.organisation_id,
                "arguments": dict(each.arguments),
                "expected": each.expected,
                "expects_error": each.expects_error,
            },
        )


@transaction.atomic
def _forget(folder: Folder, row: SyncedFile) -> Synced | None:
    """Keep the tool of a file that is gone back; it comes again with its file. None where it was so before."""
    tool, why = row.tool, _why_removed(row)
    if tool is None:
        row.delete()
        return Synced(row.path, "gone")
    if tool.quarantine:
        return None
    Tool.objects.filter(pk=tool.pk).update(**kept_back(why))
    record("tool.keep_back", tool, actor=None, after={"quarantine": why})
    touch_registry(tool.organisation_id)
    return Synced(row.path, "gone")
