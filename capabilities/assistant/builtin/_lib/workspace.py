"""An organisation's own folder, and the only way into it. Knows bytes and names, nothing of tools or rows.

A path is walked from the root one component at a time, each opened relative to the folder before it and never through a
link. So there is no moment between a check and its use at which a link could be slipped in, and `..` is not a question
for the file system at all.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import stat
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from capabilities.contract.context import ToolError

#: Bytes of a file that are read, and that a file written may have.
READ_LIMIT = 1_000_000
WRITE_LIMIT = 1_000_000
#: Folders below one another, and names in one folder or in one walk, that are looked at.
DEPTH_LIMIT = 20
FOLDER_LIMIT = 10_000
WALK_LIMIT = 20_000
#: Seconds that a write waits for another write in the same folder.
LOCK_SECONDS = 5.0

FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
#: Not blocking: opening a pipe would wait for its other end.
FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
TEMPORARY_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

REASONS = {
    errno.ENOENT: "There is no {path} in the workspace.",
    errno.ENOTDIR: "{path} leads through a link, or through something that is no folder.",
    errno.ELOOP: "{path} is a link: links are not followed.",
    errno.EISDIR: "{path} is a folder.",
    errno.EEXIST: "{path} leads through something that is no folder.",
    errno.ENAMETOOLONG: "{path} is too long a name.",
    errno.ENOSPC: "The disk is full.",
    errno.EDQUOT: "The disk is full.",
}


@dataclass(frozen=True)
class Content:
    """Bytes that were read of a file; `size` is that of the whole file, in bytes."""

    data: bytes
    size: int

    @property
    def truncated(self) -> bool:
        return self.size > len(self.data)


@dataclass(frozen=True)
class Entry:
    """One name met on a walk. `folder` is the open folder that holds it, for as long as the walk stands there."""

    path: str
    name: str
    folder: int
    status: os.stat_result

    @property
    def kind(self) -> str:
        return kind_of(self.status)


def kind_of(status: os.stat_result) -> str:
    if stat.S_ISREG(status.st_mode):
        return "file"
    if stat.S_ISDIR(status.st_mode):
        return "folder"
    return "link" if stat.S_ISLNK(status.st_mode) else "special"


def parts_of(path: str) -> list[str]:
    """The components of a path inside the workspace; none for the workspace itself. Raises ToolError for all others."""
    if path.startswith("/"):
        raise ToolError("Paths are relative to the workspace: leave out the leading slash.")
    if any(ord(character) < 32 or 0xD800 <= ord(character) < 0xE000 for character in path):
        raise ToolError("A path holds no control characters.")
    parts = [part for part in path.split("/") if part not in {"", "."}]
    if ".." in parts:
        raise ToolError("A path never leads out of the workspace: leave out the '..'.")
    if len(parts) > DEPTH_LIMIT:
        raise ToolError(f"A path has at most {DEPTH_LIMIT} parts.")
    return parts


def read_file(root: Path, path: str) -> Content:
    """A regular file, up to READ_LIMIT bytes of it."""
    folders, name = _folders_and_name(path)
    with _explained(path), _folder(root, folders) as folder:
        return read_in(folder, name)


@contextmanager
def open_file(root: Path, path: str) -> Iterator[BinaryIO | None]:
    """A regular file, to be read without READ_LIMIT; None where there is none. Raises ToolError for what is no regular
    file."""
    folders, name = _folders_and_name(path)
    with _explained(path), _folder(root, folders) as folder:
        try:
            descriptor = os.open(name, FILE_FLAGS, dir_fd=folder)
        except FileNotFoundError:
            yield None
            return
        with open(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise ToolError(f"{name} is no regular file.")
            yield file


def read_in(folder: int, name: str) -> Content:
    """A regular file of an open folder. Raises OSError or ToolError."""
    descriptor = os.open(name, FILE_FLAGS, dir_fd=folder)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise ToolError(f"{name} is a folder." if stat.S_ISDIR(status.st_mode) else f"{name} is no regular file.")
        with open(descriptor, "rb", closefd=False) as file:
            data = file.read(READ_LIMIT)
        return Content(data, max(status.st_size, len(data)))
    finally:
        os.close(descriptor)


def status_of(root: Path, path: str) -> os.stat_result:
    """Return the status of the file or folder at the path, for a link that of the link itself."""
    parts = parts_of(path)
    with _explained(path):
        if not parts:
            return os.stat(root)
        with _folder(root, parts[:-1]) as folder:
            return os.stat(parts[-1], dir_fd=folder, follow_symlinks=False)


def write_file(root: Path, path: str, change: Callable[[bytes | None], bytes]) -> int:
    """Replace a file by what `change` makes of its bytes (None: there was no file), in one step; missing folders are
    made. Answers the bytes written. Of two writes at the same time, the second one sees what the first one wrote.
    Raises ToolError for more than WRITE_LIMIT bytes, and for a path that leads out of the workspace."""
    folders, name = _folders_and_name(path)
    with _explained(path), _folder(root, folders, create=True) as folder:
        _lock(folder)
        before = _current(folder, name, path)
        data = change(before.data if before else None)
        if len(data) > WRITE_LIMIT:
            raise ToolError(f"A file holds at most {WRITE_LIMIT} bytes; this would be {len(data)}.")
        _replace(folder, name, data)
        return len(data)


#: Function from a file's bytes (None: there is no file) to its new ones; None where the file goes.
Change = Callable[[bytes | None], bytes | None]


def change_files(root: Path, changes: Mapping[str, Change]) -> None:
    """Change several files, or none of them: what cannot be done is found before the first file is touched.

    The folders are held meanwhile, so that nothing that writes here comes in between. A process that dies in the moment
    of the renames may leave some of the files as they were. Raises ToolError for a file that is named twice, or cannot
    be changed so.
    """
    paths = {path: _folders_and_name(path) for path in changes}
    if len({(*folders, name) for folders, name in paths.values()}) < len(paths):
        raise ToolError("The same file is named twice.")
    with ExitStack() as stack:
        opened: dict[tuple[str, ...], int] = {}
        for parts in sorted({tuple(folders) for folders, _ in paths.values()}):
            folder = _opened_if_there(stack, root, parts)
            if folder is not None:
                opened[parts] = folder
        made = {
            path: _made(opened.get(tuple(folders)), name, path, changes[path])
            for path, (folders, name) in paths.items()
        }
        missing = sorted({tuple(folders) for folders, _ in paths.values()} - opened.keys())
        with _new_folders(root, missing):
            for parts in missing:
                with _explained("/".join(parts)):
                    opened[parts] = stack.enter_context(_folder(root, list(parts), create=True))
                    _lock(opened[parts])
            _replace_all([(path, opened[tuple(folders)], name, *made[path]) for path, (folders, name) in paths.items()])


def _opened_if_there(stack: ExitStack, root: Path, parts: Sequence[str]) -> int | None:
    with _explained("/".join(parts) or "The workspace"):
        try:
            folder = stack.enter_context(_folder(root, list(parts)))
        except FileNotFoundError:
            return None
        _lock(folder)
        return folder


def _made(folder: int | None, name: str, path: str, change: Change) -> tuple[bytes | None, bytes | None]:
    """The bytes of a file before and behind its change."""
    with _explained(path):
        before = _current(folder, name, path) if folder is not None else None
    data = None if before is None else before.data
    after = change(data)
    if after is not None and len(after) > WRITE_LIMIT:
        raise ToolError(f"A file holds at most {WRITE_LIMIT} bytes; {path} would have {len(after)}.")
    return data, after


@contextmanager
def _new_folders(root: Path, missing: Sequence[tuple[str, ...]]) -> Iterator[None]:
    """Remove again those of these folders that were made meanwhile, where the block fails."""
    paths = {parts[:length] for parts in missing for length in range(1, len(parts) + 1)}
    new = [parts for parts in sorted(paths, key=len, reverse=True) if not _is_there(root, parts)]
    try:
        yield
    except BaseException:
        for parts in new:
            with suppress(OSError), _folder(root, list(parts[:-1])) as folder:
                os.rmdir(parts[-1], dir_fd=folder)
        raise


def _is_there(root: Path, parts: tuple[str, ...]) -> bool:
    try:
        with _folder(root, list(parts)):
            return True
    except OSError:
        return False


def _replace_all(changes: Sequence[tuple[str, int, str, bytes | None, bytes | None]]) -> None:
    """Put each file's new bytes in place of its old ones; where one cannot be put, those before it are put back."""
    done: list[tuple[int, str, bytes | None]] = []
    try:
        for path, folder, name, before, after in changes:
            with _explained(path):
                if before is None and _current(folder, name, path) is not None:
                    raise ToolError(f"{path} was made by somebody else in this moment; nothing was changed.")
                _put(folder, name, after)
            done.append((folder, name, before))
    except BaseException:
        for folder, name, before in reversed(done):
            _put(folder, name, before)
        raise


def _put(folder: int, name: str, data: bytes | None) -> None:
    if data is not None:
        _replace(folder, name, data)
        return
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)


def walk(root: Path, path: str, *, recursive: bool, skip: frozenset[str] = frozenset()) -> Iterator[Entry]:
    """Yield the entries of a folder, sorted by name, and with `recursive` those of the folders below it. An unmade
    workspace is empty. An entry with a name to skip is left out, and so is all that it holds."""
    parts = parts_of(path)
    if not parts and not root.exists():
        return
    with _explained(path), _folder(root, parts) as folder:
        prefix = "".join(f"{part}/" for part in parts)
        yield from islice(_entries(folder, prefix, DEPTH_LIMIT if recursive else 1, skip), WALK_LIMIT)


def _entries(folder: int, prefix: str, depth: int, skip: frozenset[str]) -> Iterator[Entry]:
    with os.scandir(folder) as scan:
        names = sorted(entry.name for entry in islice(scan, FOLDER_LIMIT) if entry.name not in skip)
    for name in names:
        try:
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            continue
        yield Entry(prefix + _readable(name), name, folder, status)
        if depth > 1 and stat.S_ISDIR(status.st_mode):
            with suppress(OSError), _opened(name, folder) as below:
                yield from _entries(below, f"{prefix}{_readable(name)}/", depth - 1, skip)


def _readable(name: str) -> str:
    """A name that is no UTF-8 is shown with marks in it; it can be listed, but not be named."""
    return os.fsencode(name).decode("utf-8", "replace")


@contextmanager
def _folder(root: Path, parts: list[str], *, create: bool = False) -> Iterator[int]:
    """The open folder at the end of the parts."""
    if create:
        root.mkdir(parents=True, exist_ok=True)
    # The workspace itself may lie behind a link: where it is, the operator says, and no tool.
    folder = os.open(root, FOLDER_FLAGS & ~os.O_NOFOLLOW)
    try:
        for part in parts:
            if create:
                with suppress(FileExistsError):
                    os.mkdir(part, 0o755, dir_fd=folder)
            below = os.open(part, FOLDER_FLAGS, dir_fd=folder)
            os.close(folder)
            folder = below
        yield folder
    finally:
        os.close(folder)


@contextmanager
def _opened(name: str, folder: int) -> Iterator[int]:
    descriptor = os.open(name, FOLDER_FLAGS, dir_fd=folder)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _current(folder: int, name: str, path: str) -> Content | None:
    try:
        content = read_in(folder, name)
    except FileNotFoundError:
        return None
    if content.truncated:
        raise ToolError(f"{path} is larger than the {READ_LIMIT} bytes that can be changed here.")
    return content


def _replace(folder: int, name: str, data: bytes) -> None:
    """A reader sees the old bytes or the new ones, never a part; a crash leaves the old ones."""
    temporary = f".{secrets.token_hex(8)}.part"
    descriptor = os.open(temporary, TEMPORARY_FLAGS, 0o644, dir_fd=folder)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=folder)
        raise


def _lock(folder: int) -> None:
    """Hold the folder until it is closed. Waiting is bounded: another process could sit on the lock."""
    deadline = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            return fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise ToolError("Another write in this folder does not end; try again later.") from None
            time.sleep(0.01)


def _folders_and_name(path: str) -> tuple[list[str], str]:
    parts = parts_of(path)
    if not parts:
        raise ToolError("Name a file: this is the workspace itself.")
    return parts[:-1], parts[-1]


@contextmanager
def _explained(path: str) -> Iterator[None]:
    """Raise ToolError where the operating system refuses, with a sentence; its own would show where the workspace
    lies."""
    try:
        yield
    except OSError as error:
        reason = REASONS.get(error.errno or 0, "{path} cannot be opened.")
        raise ToolError(reason.format(path=path)) from error
