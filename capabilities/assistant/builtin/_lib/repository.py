"""Runs git on a repository that nobody vouches for: whoever writes into the workspace wrote its configuration too.

A repository can name programs in a dozen places (fsmonitor, hooks, filters, textconv, external diff, ssh, pagers,
signing, includes of other files), and a list of switches that turn them off is only as good as it is complete. So git
never reads the repository's configuration at all: it works on a folder of our own, made for one call, that holds an
empty configuration, copies of HEAD, of the refs and of the index, and links to where the objects lie.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from capabilities.assistant.builtin._lib import workspace
from capabilities.common.confined import output_of
from capabilities.contract.context import ToolContext, ToolError

#: Bytes of git's answer that are taken; bytes of memory that it may map; of an index that is copied.
OUTPUT_LIMIT = 400_000
MEMORY_LIMIT = 2_000_000_000
INDEX_LIMIT = 50_000_000
#: Seconds that one command may take.
SECONDS = 15.0

HASH = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
REF = re.compile(r"refs/[\w./@+=#-]{1,250}", re.ASCII)
CONFIGURATION = "[core]\n\trepositoryformatversion = {version}\n\tbare = false\n{extensions}"
SHA256 = re.compile(r"^\s*objectformat\s*=\s*sha256\s*$", re.IGNORECASE | re.MULTILINE)
#: A belt to the braces: each would be empty anyway.
SWITCHES = {
    "core.fsmonitor": "false",
    "core.hooksPath": os.devnull,
    "core.attributesFile": os.devnull,
    "core.excludesFile": os.devnull,
    "core.pager": "cat",
    "core.quotePath": "false",
    "core.packedGitWindowSize": "32m",
    "core.packedGitLimit": "512m",
    "diff.external": "",
    "diff.ignoreSubmodules": "all",
    "protocol.allow": "never",
    "credential.helper": "",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "submodule.recurse": "false",
    "log.showSignature": "false",
    "safe.directory": "*",
}


@dataclass(frozen=True)
class Repository:
    """A folder of ours that git takes for the repository, and the real work tree."""

    folder: Path
    work_tree: Path
    git: str

    def run(self, context: ToolContext, *arguments: str) -> Output:
        """Run a git command and return its output. Raises ToolError where it fails or takes too long."""
        switches = [part for key, value in SWITCHES.items() for part in ("-c", f"{key}={value}")]
        command = [self.git, "--no-pager", "--literal-pathspecs", "--no-replace-objects", *switches, *arguments]
        return _finished(command, self.work_tree, self._environment(), context)

    def _environment(self) -> dict[str, str]:
        """All of it: nothing of this process's own is handed on."""
        home = str(self.folder)
        return {
            "PATH": os.defpath,
            "HOME": home,
            "XDG_CONFIG_HOME": home,
            "LC_ALL": "C.UTF-8",
            "TZ": "UTC",
            "GIT_DIR": home,
            "GIT_WORK_TREE": str(self.work_tree),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_SYSTEM": os.devnull,
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_ATTR_NOSYSTEM": "1",
            "GIT_OPTIONAL_LOCKS": "0",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_ALLOW_PROTOCOL": "",
            "GIT_NO_LAZY_FETCH": "1",
            "GIT_PAGER": "cat",
        }


@dataclass(frozen=True)
class Output:
    """Text that was printed; `whole` is False where it was cut."""

    text: str
    whole: bool


@contextmanager
def opened(context: ToolContext, path: str) -> Iterator[Repository]:
    """The repository whose work tree is this folder of the workspace, for as long as it is needed. Raises ToolError
    without git, and for a folder that is no plain repository."""
    git = shutil.which("git")
    if git is None:
        raise ToolError("git is not installed on this server.")
    root, parts = context.workspace, workspace.parts_of(path)
    inner = "/".join([*parts, ".git"])
    _check_folder(root, inner, path)
    with tempfile.TemporaryDirectory(prefix="toolhub-git-") as made:
        folder = Path(made)
        _copy(root, inner, folder)
        _link_objects(root, inner, folder)
        yield Repository(folder, root.resolve().joinpath(*parts), git)


def _check_folder(root: Path, inner: str, path: str) -> None:
    """Links and `.git` files lead elsewhere: to another organisation's repository, for all that is known."""
    try:
        kind = workspace.kind_of(workspace.status_of(root, inner))
    except ToolError:
        raise ToolError(
            f"There is no git repository in {path}: name a folder of the workspace that holds one."
        ) from None
    if kind != "folder":
        raise ToolError(f"The .git of {path} is a {kind} that leads elsewhere: only whole repositories are read.")


def _copy(root: Path, inner: str, folder: Path) -> None:
    """Copy what git needs of a repository, without its configuration and hooks."""
    version, extensions = 0, ""
    if SHA256.search(_text(root, f"{inner}/config")):
        version, extensions = 1, "[extensions]\n\tobjectformat = sha256\n"
    (folder / "config").write_text(CONFIGURATION.format(version=version, extensions=extensions))
    (folder / "HEAD").write_text(_head(_text(root, f"{inner}/HEAD")))
    (folder / "refs").mkdir()
    refs = _packed_refs(_text(root, f"{inner}/packed-refs")) | _loose_refs(root, inner)
    (folder / "packed-refs").write_text("".join(f"{value} {name}\n" for name, value in refs.items()))
    shallow = [line for line in _text(root, f"{inner}/shallow").splitlines() if HASH.fullmatch(line)]
    if shallow:
        (folder / "shallow").write_text("\n".join(shallow) + "\n")
    (folder / "info").mkdir()
    (folder / "info" / "exclude").write_text(_text(root, f"{inner}/info/exclude"))
    _copy_index(root, inner, folder / "index")


def _text(root: Path, path: str) -> str:
    """A file of plain lines; empty where there is none. Links are not followed."""
    try:
        return workspace.read_file(root, path).data.decode("utf-8", "replace")
    except ToolError:
        return ""


def _head(text: str) -> str:
    line = text.strip()
    name = line.removeprefix("ref:").strip()
    if HASH.fullmatch(line) or (line.startswith("ref:") and REF.fullmatch(name) and ".." not in name):
        return f"{line}\n"
    raise ToolError("The repository's HEAD is damaged.")


def _packed_refs(text: str) -> dict[str, str]:
    rows = (line.split(" ", 1) for line in text.splitlines() if line[:1] not in {"#", "^", ""})
    return {row[1]: row[0] for row in rows if len(row) == 2 and _is_ref(row[1], row[0])}


def _loose_refs(root: Path, inner: str) -> dict[str, str]:
    refs = {}
    for entry in workspace.walk(root, f"{inner}/refs", recursive=True):
        if entry.kind == "file":
            with suppress(OSError, ToolError):
                value = workspace.read_in(entry.folder, entry.name).data.decode("ascii", "replace").strip()
                name = entry.path.removeprefix(f"{inner}/")
                if _is_ref(name, value):
                    refs[name] = value
    return refs


def _is_ref(name: str, value: str) -> bool:
    return bool(REF.fullmatch(name) and HASH.fullmatch(value)) and ".." not in name and not name.endswith(".lock")


def _copy_index(root: Path, inner: str, target: Path) -> None:
    """A copy, so that git may write what it likes. Without one, nothing is staged."""
    with workspace.open_file(root, f"{inner}/index") as file:
        if file is None:
            return
        data, status = file.read(INDEX_LIMIT + 1), os.fstat(file.fileno())
    if len(data) > INDEX_LIMIT:
        raise ToolError("The repository's index is too large.")
    target.write_bytes(data)
    # A file that is no older than the index is looked into, however unchanged it seems.
    os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))


def _link_objects(root: Path, inner: str, folder: Path) -> None:
    """A folder of links to the folders of objects. Without the repository's `info/alternates`, which could name the
    objects of another organisation."""
    objects = folder / "objects"
    objects.mkdir()
    real = root.resolve().joinpath(*inner.split("/"), "objects")
    for entry in workspace.walk(root, f"{inner}/objects", recursive=False):
        if entry.kind == "folder" and re.fullmatch(r"[0-9a-f]{2}|pack", entry.name):
            _check_plain(entry)
            (objects / entry.name).symlink_to(real / entry.name)


def _check_plain(entry: workspace.Entry) -> None:
    """Raise ToolError where an object is a link. Tools cannot make one; who unpacks an archive can."""
    descriptor = os.open(entry.name, workspace.FOLDER_FLAGS, dir_fd=entry.folder)
    try:
        with os.scandir(descriptor) as scan:
            if any(not stat.S_ISREG(each.stat(follow_symlinks=False).st_mode) for each in scan):
                raise ToolError("The repository's objects lead elsewhere: only whole repositories are read.")
    finally:
        os.close(descriptor)


def _finished(command: Sequence[str], folder: Path, environment: dict[str, str], context: ToolContext) -> Output:
    deadline = time.monotonic() + min(SECONDS, context.timeout)
    # Packs are written by whoever wrote the repository; what they claim to unpack to is not to be believed.
    try:
        data, status = output_of(
            command,
            OUTPUT_LIMIT,
            deadline,
            context.stopped,
            folder=folder,
            environment=environment,
            memory=MEMORY_LIMIT,
        )
    except TimeoutError:
        raise ToolError("git took too long: name a path, or fewer commits.") from None
    whole = len(data) <= OUTPUT_LIMIT
    if whole and status != 0:
        raise ToolError("git could not do that: is the revision or path right, and the repository whole?")
    return Output(data[:OUTPUT_LIMIT].decode("utf-8", "replace"), whole)
