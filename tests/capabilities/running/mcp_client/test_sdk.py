"""Private parts of the package `mcp` stand in `sdk.py` alone, and the installed version has each of them."""

from __future__ import annotations

import asyncio
import re
from importlib.metadata import version
from importlib.util import find_spec

import httpx2
import pytest
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

from capabilities.contract.context import Credential
from capabilities.running.mcp_client import sdk
from capabilities.running.mcp_client.protocol import MODERN, conversation
from capabilities.running.mcp_client.signing import CredentialAuth, Seen, seen
from tests.paths import ROOT
from tests.private_names import Source, Use, has, service

HERE = "capabilities/running/mcp_client/sdk.py"
NAMES = {"negotiate_auto", "ReadStream", "WriteStream", "_build_capabilities", "_stamp"}
#: Private names in files that use the SDK, of another package.
OF_ANYIO = {("capabilities/running/mcp_client/processes.py", name) for name in ("_process", "_transport")}
USES_SDK = r"^\s*(?:from|import) (?:mcp\b|mcp_types\b|[\w.]+\.mcp_client\b)"


def uses(source: Source) -> list[Use]:
    return list(source.matching(USES_SDK).uses("mcp", "mcp_types"))


def test_only_one_file_uses_private_names_of_the_sdk() -> None:
    found = [use for use in uses(service()) if use.file != HERE and (use.file, use.name) not in OF_ANYIO]

    assert [str(use) for use in found] == []


def test_the_installed_sdk_has_each_private_name_and_the_file_says_why() -> None:
    found = [use for use in uses(service()) if use.file == HERE]

    assert {use.name for use in found} == NAMES
    assert [str(use) for use in found if not has(use.of, use.name)] == []
    assert [name for name in NAMES if f"{name}`" not in str(sdk.__doc__)] == []


def test_a_private_name_in_another_file_is_seen() -> None:
    room = "capabilities/running/mcp_client"
    texts = {
        HERE: (ROOT / HERE).read_text(),
        f"{room}/a.py": "from mcp.client import _probe\nfrom mcp.client._probe import negotiate_auto\n",
        f"{room}/b.py": f"from {room.replace('/', '.')}.sdk import SdkSession\n"
        "class Talk(SdkSession):\n    def _own(self):\n        return self._dispatcher\n",
        f"{room}/c.py": "import mcp.client\ndef f(talk):\n    return talk._stamp, getattr(talk, '_task_group')\n",
    }

    found = {(use.file[-4], use.name) for use in uses(Source(texts)) if use.file != HERE}

    assert found == {
        ("a", "_probe"),
        ("a", "negotiate_auto"),
        ("b", "_dispatcher"),
        ("c", "_stamp"),
        ("c", "_task_group"),
    }


def test_no_logger_of_a_module_of_the_sdk_is_named() -> None:
    """That of a package, such as `mcp.server`, stays what it is while its modules move."""
    named = {
        (file, name)
        for file, text in service().texts.items()
        for name in re.findall(r"[\"'](mcp(?:\.\w+)+)[\"']|getLogger\([\"'](client)[\"']\)", text)
    }
    packages = {"mcp.server"}

    assert {(file, *name) for file, name in named if name[0] not in packages} == set()
    assert all((spec := find_spec(name)) and spec.submodule_search_locations for name in packages)


def test_the_version_is_pinned_exactly() -> None:
    pin = f"mcp=={version('mcp')}"

    assert f'"{pin}",' in (ROOT / "pyproject.toml").read_text()
    for lock in ("run", "dev"):
        assert f"\n{pin} " in (ROOT / "requirements" / f"{lock}.txt").read_text()


@pytest.mark.parametrize("status", [401, 404, 500])
def test_a_status_without_a_message_is_worded_by_the_transport_and_noted_for_whoever_asked(status: int) -> None:
    noted = Seen()

    async def asked() -> MCPError:
        auth = CredentialAuth(Credential())
        transport = httpx2.MockTransport(lambda request: httpx2.Response(status))
        async with (
            httpx2.AsyncClient(transport=transport, auth=auth) as client,
            streamable_http_client("https://mcp.example.org/", http_client=client) as (read, write),
            conversation(read, write, MODERN) as talk,
        ):
            seen.set(noted)  # behind the start of the transport's tasks
            with pytest.raises(MCPError) as raised:
                await talk.ask("tools/list", {}, seconds=5)
        return raised.value

    assert asyncio.run(asked()).message in sdk.STATUS_MESSAGES
    assert noted.status == status
