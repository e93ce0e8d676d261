from __future__ import annotations

import os
import shutil
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from capabilities.assistant.builtin._lib import workspace
from capabilities.contract.context import ToolError

SECRET = b"not for tools"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A workspace with one file in it, and a secret beside it."""
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "file").write_bytes(SECRET)
    root = tmp_path / "workspace"
    (root / "folder").mkdir(parents=True)
    (root / "folder" / "file").write_bytes(b"hello")
    return root


def reach(root: Path, path: str) -> list[str]:
    """What each way in says of a path."""
    said = []
    for way in (
        lambda: workspace.read_file(root, path),
        lambda: workspace.write_file(root, path, lambda before: b"mine"),
        lambda: list(workspace.walk(root, path, recursive=True)),
    ):
        try:
            way()
            said.append("reached")
        except ToolError as refused:
            said.append(str(refused))
    return said


@pytest.mark.parametrize("path", ["folder/file", "./folder/file", "folder//file", "folder/./file"])
def test_a_path_is_read_however_it_is_written(root: Path, path: str) -> None:
    assert workspace.read_file(root, path) == workspace.Content(b"hello", 5)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/etc/passwd", "Paths are relative to the workspace: leave out the leading slash."),
        ("//etc/passwd", "Paths are relative to the workspace: leave out the leading slash."),
        ("../secret/file", "A path never leads out of the workspace: leave out the '..'."),
        ("folder/../../secret/file", "A path never leads out of the workspace: leave out the '..'."),
        ("folder/..", "A path never leads out of the workspace: leave out the '..'."),
        ("fo\0o", "A path holds no control characters."),
        ("fo\no", "A path holds no control characters."),
        ("fo\udcffo", "A path holds no control characters."),
        ("a/" * 21, "A path has at most 20 parts."),
    ],
)
def test_a_path_that_leads_elsewhere_is_refused_by_every_way_in(root: Path, path: str, message: str) -> None:
    assert reach(root, path) == [message] * 3


@pytest.mark.parametrize("target", ["../secret", "folder", "/etc", ".", "nowhere"])
def test_a_linked_folder_is_not_entered(root: Path, target: str) -> None:
    (root / "link").symlink_to(target)

    assert ["leads through a link" in each for each in reach(root, "link/file")] == [True] * 3


@pytest.mark.parametrize("target", ["../secret/file", "folder/file", "/dev/zero", "link"])
def test_a_linked_file_is_neither_read_nor_replaced(root: Path, target: str) -> None:
    (root / "link").symlink_to(target)

    assert reach(root, "link")[:2] == ["link is a link: links are not followed."] * 2

    assert (root / "link").is_symlink()


def test_pipes_and_sockets_are_refused_without_waiting(root: Path) -> None:
    os.mkfifo(root / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.relpath(root / "socket"))

        assert reach(root, "pipe")[:2] == ["pipe is no regular file."] * 2
        assert reach(root, "socket")[:2] == ["socket cannot be opened."] * 2


def test_folders_are_no_files_and_files_no_folders(root: Path) -> None:
    assert reach(root, "folder") == ["folder is a folder."] * 2 + ["reached"]
    assert ["no folder" in each for each in reach(root, "folder/file/x")] == [True] * 3
    *ways, walked = reach(root, ".")
    assert ["the workspace itself" in each for each in ways] == [True] * 2
    assert walked == "reached"


def test_a_link_slipped_in_meanwhile_is_never_followed(root: Path) -> None:
    """A folder that turns into a link to the secret and back, as fast as it can, while it is read and written."""
    done = threading.Event()
    swinging_path = root / "swing"

    def swing() -> None:
        while not done.is_set():
            with suppress(OSError):
                swinging_path.symlink_to("../secret")
                swinging_path.unlink()
            with suppress(OSError):
                swinging_path.mkdir()
                (swinging_path / "file").write_bytes(b"fine")
            shutil.rmtree(swinging_path, ignore_errors=True)  # not through a link

    with ThreadPoolExecutor(1) as pool:
        pool.submit(swing)
        read = set()
        for _ in range(1_000):
            with suppress(ToolError):
                read.add(workspace.read_file(root, "swing/file").data)
            with suppress(ToolError):
                workspace.write_file(root, "swing/new", lambda before: b"fine")
        done.set()

    assert read <= {b"", b"fine"}
    assert [(path.name, path.read_bytes()) for path in (root.parent / "secret").iterdir()] == [("file", SECRET)]


PIECES = st.sampled_from(["..", ".", "", "link", "chain", "folder", "file", "secret", "a b", "\0", "~", "é", "x" * 300])


@settings(max_examples=300, deadline=None)
@given(st.lists(PIECES | st.text(max_size=5), max_size=6).map("/".join))
@example("link/file")
@example("chain/secret/file")
@example("folder/link/file")
def test_nothing_escapes_the_workspace(path: str) -> None:
    with TemporaryDirectory() as base:
        root, secret = Path(base, "workspace"), Path(base, "secret")
        (root / "folder").mkdir(parents=True)
        secret.mkdir()
        (secret / "file").write_bytes(SECRET)
        (root / "link").symlink_to(secret)
        (root / "folder" / "link").symlink_to(secret)
        (root / "chain").symlink_to("..")

        with suppress(ToolError):
            assert workspace.read_file(root, path).data != SECRET
        with suppress(ToolError):
            assert all(
                "secret" not in os.readlink(f"/proc/self/fd/{e.folder}")
                for e in workspace.walk(root, path, recursive=True)
            )
        with suppress(ToolError):
            workspace.write_file(root, path, lambda before: b"written")

        assert sorted(os.listdir(base)) == ["secret", "workspace"]
        assert [(name.name, name.read_bytes()) for name in secret.iterdir()] == [("file", SECRET)]


def test_a_write_leaves_one_whole_file_and_nothing_beside_it(root: Path) -> None:
    def fail(before: bytes | None) -> bytes:
        raise ToolError("no")

    assert workspace.write_file(root, "new/deep/file", lambda before: b"first") == 5
    with pytest.raises(ToolError, match="no"):
        workspace.write_file(root, "new/deep/file", fail)

    assert [(path.name, path.read_bytes()) for path in (root / "new/deep").iterdir()] == [("file", b"first")]


def test_a_write_that_fails_half_way_keeps_the_old_bytes(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)

    with pytest.raises(ToolError, match="The disk is full"):
        workspace.write_file(root, "folder/file", lambda before: b"new")

    assert [(path.name, path.read_bytes()) for path in (root / "folder").iterdir()] == [("file", b"hello")]


def test_of_many_writes_at_once_none_is_lost(root: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        for _ in range(40):
            pool.submit(workspace.write_file, root, "log", lambda before: (before or b"") + b"x")

    assert (root / "log").read_bytes() == b"x" * 40


def test_sizes_are_bounded(root: Path) -> None:
    (root / "large").write_bytes(b"x" * 1_000_001)

    content = workspace.read_file(root, "large")

    assert (len(content.data), content.size, content.truncated) == (1_000_000, 1_000_001, True)
    with pytest.raises(ToolError, match="A file holds at most 1000000 bytes; this would be 1000001"):
        workspace.write_file(root, "new", lambda before: b"x" * 1_000_001)
    with pytest.raises(ToolError, match="large is larger than the 1000000 bytes that can be changed here"):
        workspace.write_file(root, "large", lambda before: b"")


def test_a_walk_names_links_and_does_not_enter_them(root: Path) -> None:
    (root / "link").symlink_to("../secret")

    seen = [(entry.path, entry.kind) for entry in workspace.walk(root, ".", recursive=True)]

    assert seen == [("folder", "folder"), ("folder/file", "file"), ("link", "link")]


def test_no_descriptor_stays_open(root: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))

    for path in ("folder/file", "folder", "missing/file", "folder/file/x", "../x", "."):
        reach(root, path)
    next(workspace.walk(root, ".", recursive=True))

    assert len(os.listdir("/proc/self/fd")) == before
