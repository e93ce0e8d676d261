"""An API that nobody here wrote: httpbin's own document is imported, and twenty of its operations are called in a turn.

The document is shared beside the project; without it the test says so and is skipped.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

import pytest
from httpbin import app as httpbin  # type: ignore[import-untyped]
from pytest_django import Settings

from capabilities.catalogue.imports.runs import run_import
from capabilities.catalogue.imports.writes.change import set_base_url
from capabilities.catalogue.imports.writes.decide import accept_imported, import_rows
from capabilities.catalogue.imports.writes.start import start_import
from capabilities.models import ImportSource, ToolImport
from sessions.models import ChatSession, StepStatus
from tests.cast import make_category, make_member
from tests.paths import SHARED_DATA
from tests.scripted_openai import Say, ScriptedOpenAI, call
from tests.sessions.run_turns import run, tool_steps_of
from toolhub.tenants.models import Access
from toolhub.tenants.rows.scope import organisation_scope

pytestmark = pytest.mark.django_db(transaction=True)

DATA = SHARED_DATA
DOCUMENT = DATA / "openapi" / "httpbin-openapi3.json"

#: What sends something, called in one reply: behind a result from outside, each of them would ask a person first.
SENDING: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("post_post", {}, '"url"'),
    ("put_put", {}, '"url"'),
    ("patch_patch", {}, '"url"'),
    ("delete_delete", {}, '"url"'),
    ("post_anything_anything", {"anything": "a b"}, "/anything/a%20b"),
    ("put_anything", {}, '"PUT"'),
    ("delete_anything", {}, '"DELETE"'),
    ("patch_anything", {}, '"PATCH"'),
)
#: What only reads.
READING: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("get_get", {}, '"url"'),
    ("get_headers", {}, '"Host"'),
    ("get_ip", {}, "127.0.0.1"),
    ("get_user-agent", {}, "toolhub"),
    ("get_uuid", {}, '"uuid"'),
    ("get_json", {}, "slideshow"),
    ("get_html", {}, "Herman Melville"),
    ("get_xml", {}, "slideshow"),
    ("get_base64_value", {"value": "SGVsbG8="}, "Hello"),
    ("get_anything_anything", {"anything": "x/../y"}, "Not sent"),
    ("get_status_codes", {"codes": "404"}, "404 Not Found"),
    ("get_basic-auth_user_passwd", {"user": "u", "passwd": "p"}, "401"),
    ("get_image_png", {}, "A file came back"),
    ("get_robots_txt", {}, "Disallow"),
    ("get_encoding_utf8", {}, "∮"),
    ("get_gzip", {}, '"gzipped"'),
)


class Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""


@pytest.fixture
def bin_url(settings: Settings) -> Iterator[str]:
    """The address of an httpbin."""
    settings.TOOLHUB_PRIVATE_HOSTS = ["provider:127.0.0.1", "tool:127.0.0.1", "mcp:127.0.0.1"]
    with make_server("127.0.0.1", 0, httpbin, handler_class=Quiet) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def import_httpbin(session: ChatSession, base_url: str) -> ToolImport:
    """Every operation of it, accepted by an admin into a category that the agent begins with."""
    organisation = session.organisation
    with organisation_scope(organisation):
        alice = make_member(organisation, "alice", Access.ADMIN)
        tool_import = start_import(ImportSource.OPENAPI, actor=alice, document=DOCUMENT.read_text())
        run_import(tool_import.public_id)
        tool_import.refresh_from_db()
        set_base_url(tool_import, base_url, actor=alice)
        category = make_category(organisation, "httpbin", is_core=True)
        accept_imported(import_rows(tool_import), category, actor=alice)
    return tool_import


def test_twenty_operations_of_an_imported_api_are_called_in_a_turn(
    session: ChatSession, provider: ScriptedOpenAI, bin_url: str
) -> None:
    if not DOCUMENT.is_file():
        pytest.skip(f"{DOCUMENT} is not here: the shared data are absent.")
    import_httpbin(session, bin_url)
    provider.enqueue(
        Say(calls=[call(name, arguments, id=f"s{index}") for index, (name, arguments, _) in enumerate(SENDING)]),
        Say(calls=[call(name, arguments, id=f"r{index}") for index, (name, arguments, _) in enumerate(READING)]),
        Say("Done."),
    )

    turn = run(session)

    assert turn.answer == "Done."
    steps = tool_steps_of(turn)
    wanted = [*SENDING, *READING]
    assert len(steps) == len(wanted) == 24
    assert [step.tool_name for step in steps] == [name for name, _, _ in wanted]
    wrong = [
        (step.tool_name, step.result)
        for step, (_, _, said) in zip(steps, wanted, strict=True)
        if said not in step.result
    ]
    assert wrong == []
    done = [step for step in steps if step.status == StepStatus.DONE]
    assert len(done) >= 20
    sent = {each["function"]["name"] for each in provider.requests[0]["tools"]}
    assert {name for name, _, _ in wanted} <= sent
