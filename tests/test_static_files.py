"""Static files of the service as it runs: compressed, with a digest in their names, and collected when they changed."""

from __future__ import annotations

import gzip
import re
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
from django.conf import settings
from django.test import override_settings

from capabilities.assistant.records.kinds import kinds
from tests.test_up import Up
from toolhub.tenants.menu import MENU
from toolhub.tenants.templatetags.look import STATE_ICONS
from toolhub.web.static_files import collect_if_changed

pytestmark = [pytest.mark.processes, pytest.mark.timeout(400)]

HASHED = re.compile(r"""(?:href|src)=["'](/static/[^"'#]+)["'#]""")


@pytest.mark.parametrize("page", ["/accounts/login/", "/api/docs/"])
def test_a_page_names_files_by_their_content_each_compressed_and_kept_for_ever(up: Up, page: str) -> None:
    names = HASHED.findall(urlopen(f"http://localhost:{up.port}{page}").read().decode())

    assert len(names) > 3
    for name in names:
        with urlopen(Request(f"http://localhost:{up.port}{name}", headers={"Accept-Encoding": "gzip"})) as answer:
            assert re.search(r"\.[0-9a-f]{12}\.\w+$", name), name
            assert answer.headers["Cache-Control"] == "max-age=315360000, public, immutable"
            if not name.endswith(".png"):
                assert answer.headers["Content-Encoding"] == "gzip", name
                gzip.decompress(answer.read())


def test_files_are_collected_again_only_when_they_changed(tmp_path: Path) -> None:
    source, root = tmp_path / "source", tmp_path / "root"
    source.mkdir()
    (source / "fresh.css").write_text("body { color: red }")
    storage = {"staticfiles": {"BACKEND": "whitenoise.storage.CompressedManifestStaticFilesStorage"}}
    finders = ["django.contrib.staticfiles.finders.FileSystemFinder"]

    with override_settings(STATICFILES_DIRS=[source], STATIC_ROOT=root, STORAGES=storage, STATICFILES_FINDERS=finders):
        collected = [collect_if_changed(), collect_if_changed()]
        (source / "fresh.css").write_text("body { color: blue }")
        collected += [collect_if_changed(), collect_if_changed()]

    assert collected == [True, False, True, False]
    assert [path.read_text() for path in root.glob("fresh.*.css")] == ["body { color: blue }"]


def test_each_icon_that_a_page_names_is_drawn_in_the_sprite_or_the_place_is_blank() -> None:
    pages = "".join(path.read_text() for path in (settings.BASE_DIR / "templates").rglob("*.html"))
    menu = {icon for _, icon, _ in MENU}
    named = {*re.findall(r'{% icon "([\w-]+)"', pages), *STATE_ICONS.values(), *(kind.icon for kind in kinds()), *menu}

    drawn = set(re.findall(r'<symbol id="([\w-]+)"', (settings.BASE_DIR / "static/vendor/icons.svg").read_text()))

    assert named - drawn == set()
