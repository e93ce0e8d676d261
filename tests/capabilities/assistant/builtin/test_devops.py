from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from capabilities.assistant.builtin import devops
from capabilities.assistant.builtin._lib.docker import demultiplexed
from capabilities.assistant.builtin._lib.sigv4 import Credentials, signed
from capabilities.contract.context import ToolContext
from capabilities.running.registry import registry
from tests.capabilities.assistant.builtin.fakes.devops import Docker, GitHub, Lambda
from tests.capabilities.assistant.builtin.fakes.http import Reply, json_reply
from tests.capabilities.assistant.builtin.remote import call_with, check_credential_stays, check_failures, refused, slow
from toolhub.durations import duration


@pytest.fixture
def hub() -> Iterator[GitHub]:
    with GitHub() as service:
        yield service


@pytest.fixture
def engine() -> Iterator[Docker]:
    with Docker() as service:
        yield service


@pytest.fixture
def cloud() -> Iterator[Lambda]:
    with Lambda() as service:
        yield service


# -- GitHub ----------------------------------------------------------------------------------------------------------

CRASH = {
    "number": 3,
    "title": "Crash",
    "state": "open",
    "by": "octocat",
    "labels": ["bug"],
    "updated": "2026-11-01T10:00:00Z",
    "url": "https://github.com/acme/shop/issues/3",
}
SHOP = {"repo": "acme/shop", "about": "A shop", "language": "Python", "url": "https://github.com/acme/shop"}


def ask_hub(context: ToolContext, hub: GitHub, **arguments: Any) -> Any:
    return call_with(context, "github", {"base_url": hub.url, "token": hub.token}, arguments)


def test_public_repositories_need_no_set_up() -> None:
    assert registry.services["github"].works_unset
    assert (registry.tools["github"].effect, registry.tools["github"].on_crash) == ("read", "retry")


def test_a_repository(context: ToolContext, hub: GitHub) -> None:
    assert ask_hub(context, hub, action="repo", repo="acme/shop") == SHOP | {
        "stargazers": 5,
        "forks": 0,
        "open_issues": 2,
        "default_branch": "main",
        "license": "MIT",
        "topics": ["shop"],
        "pushed": "2026-11-01T10:00:00Z",
    }


def test_issues_are_without_pull_requests(context: ToolContext, hub: GitHub) -> None:
    found = ask_hub(context, hub, action="issues", repo="acme/shop", count=1)

    assert found == {"issues": [CRASH]}
    assert hub.last.query == {"state": "open", "per_page": "3", "sort": "updated", "direction": "desc"}


def test_pull_requests(context: ToolContext, hub: GitHub) -> None:
    found = ask_hub(context, hub, action="pulls", repo="acme/shop", state="all")

    assert [(row["number"], row["state"]) for row in found["pulls"]] == [(2, "merged")]


def test_an_issue_comes_with_its_text_and_comments(context: ToolContext, hub: GitHub) -> None:
    found = ask_hub(context, hub, action="issue", repo="acme/shop", number=3)

    assert found == CRASH | {"text": "It breaks.\n\nAlways.", "comments": [{"by": "bob", "text": "Same here."}]}


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("src/a b.py", {"path": "src/a b.py", "text": "print('ü')\n"}),
        ("/src/", {"folder": "/src/", "entries": [{"name": "a b.py", "kind": "file", "size": 12}]}),
        ("logo.png", {"path": "logo.png", "note": "A binary file of 5 bytes is not shown."}),
    ],
)
def test_a_file_or_folder(context: ToolContext, hub: GitHub, path: str, found: dict[str, Any]) -> None:
    assert ask_hub(context, hub, action="file", repo="acme/shop", path=path, ref="v1") == found
    assert hub.last.query == {"ref": "v1"}


@pytest.mark.parametrize(
    ("action", "row"),
    [
        ("search_repos", SHOP),
        ("search_issues", CRASH),
        ("search_code", {"repo": "acme/shop", "path": "src/a.py", "url": "https://x.test/a"}),
    ],
)
def test_searches(context: ToolContext, hub: GitHub, action: str, row: dict[str, Any]) -> None:
    hub.token = "ghp_token"

    assert ask_hub(context, hub, action=action, query="crash", repo="acme/shop") == {"total": 41, "found": [row]}
    assert hub.last.query["q"] == "crash repo:acme/shop"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"action": "repo"}, "Name the repository as owner/name."),
        ({"action": "repo", "repo": "../shop"}, "Name the repository as owner/name."),
        ({"action": "repo", "repo": "acme/shop/issues"}, "Name the repository as owner/name."),
        ({"action": "repo", "repo": "acme/.."}, "A name is empty, or leads to another place."),
        (
            {"action": "repo", "repo": "acme/other"},
            "There is no acme/other, or it cannot be seen with what was set up.",
        ),
        ({"action": "issue", "repo": "acme/shop"}, "Give the number of the issue or pull request."),
        ({"action": "issue", "repo": "acme/shop", "number": 9}, "There is no issue 9 in acme/shop."),
        ({"action": "file", "repo": "acme/shop", "path": "a/../../x"}, "A name is empty, or leads to another place."),
        ({"action": "file", "repo": "acme/shop", "path": "x?y#z"}, "There is no x?y#z in acme/shop."),
        (
            {"action": "file", "repo": "acme/shop", "path": "big.bin"},
            "big.bin is no file that can be shown, or larger than 1 MB.",
        ),
        ({"action": "search_repos"}, "Say what to search for, in query."),
        ({"action": "search_repos", "query": "!!"}, "GitHub answered with status 422: Validation Failed."),
        (
            {"action": "search_code", "query": "x"},
            "GitHub refuses the request (status 401): Requires authentication.",
        ),
    ],
)
def test_what_github_cannot_do_is_told(context: ToolContext, hub: GitHub, arguments: dict[str, Any], told: str) -> None:
    assert refused(context, "github", {"base_url": hub.url}, arguments) == told


def test_a_rate_limit_is_told_with_its_wait(context: ToolContext, hub: GitHub) -> None:
    reset = str(int(time.time()) + 120)
    hub.instead = lambda asked: json_reply(
        {"message": "API rate limit exceeded"}, 403, x_ratelimit_remaining="0", x_ratelimit_reset=reset
    )

    told = refused(context, "github", {"base_url": hub.url}, {"action": "repo", "repo": "acme/shop"})

    assert any(told.endswith(f"try again in {duration(seconds)}.") for seconds in (118, 119, 120))


@pytest.mark.parametrize("action", ["repo", "issues", "pulls", "issue", "file", "search_repos"])
def test_failures_of_github_are_sentences(context: ToolContext, hub: GitHub, action: str) -> None:
    hub.token = "ghp_token"
    values = {"base_url": hub.url, "token": hub.token}
    arguments = {"action": action, "repo": "acme/shop", "number": 3, "query": "x", "path": "src/a b.py"}

    check_failures(context, hub, "github", values, arguments)
    check_credential_stays(context, hub, "github", values, arguments)


# -- Docker ----------------------------------------------------------------------------------------------------------


def ask_engine(context: ToolContext, engine: Docker, **arguments: Any) -> Any:
    return call_with(context, "docker", {"base_url": engine.url}, arguments)


def test_containers_are_listed(context: ToolContext, engine: Docker) -> None:
    found = ask_engine(context, engine, action="containers", container="we")

    assert found == {
        "containers": [
            {
                "name": "web",
                "id": hashlib.sha256(b"web").hexdigest()[:12],
                "image": "acme/web:1",
                "state": "running",
                "status": "Up 2 hours",
            }
        ]
    }
    assert engine.last.query == {"all": "1"}


@pytest.mark.parametrize("container", ["web", "job"])
def test_logs_are_text_with_a_terminal_and_without(context: ToolContext, engine: Docker, container: str) -> None:
    found = ask_engine(context, engine, action="logs", container=container, lines=2)

    assert found == {"container": container, "logs": "zwei ü\nthree\n"}


@pytest.mark.parametrize(
    ("stream", "text"),
    [
        (b"", b""),
        (b"plain\n", b"plain\n"),
        (b"\1\0\0\0\0\0\0\3abc\2\0\0\0\0\0\0\1d", b"abcd"),
        (b"\1\0\0\0\0\0\0\3ab", b"ab"),
        (b"\1\0\0\0\0\0\0\1a\1\0\0", b"a"),
        (b"\1\0\0\0\xff\xff\xff\xffabc", b"abc"),
    ],
)
def test_frames_of_a_log(stream: bytes, text: bytes) -> None:
    assert demultiplexed(stream) == text


def test_a_container_is_shown_without_its_secrets(context: ToolContext, engine: Docker) -> None:
    found = ask_engine(context, engine, action="inspect", container="job")

    assert found.pop("id")
    assert found == {
        "name": "job",
        "image": "acme/job:1",
        "state": "exited",
        "started": "2026-11-18T08:00:00Z",
        "exit_code": 1,
        "restarts": 0,
        "command": ["run", "--now"],
        "environment": ["PASSWORD", "PATH"],
        "networks": ["bridge"],
        "ports": ["80/tcp"],
    }


def test_a_container_is_stopped_and_started(context: ToolContext, engine: Docker) -> None:
    states = [
        ask_engine(context, engine, action=action, container="web")["state"]
        for action in ("stop", "stop", "start", "start")
    ]

    assert states == ["stopped", "was stopped already", "started", "was running already"]
    assert engine.states["web"] == "running"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"action": "logs"}, "Name the container: the action containers lists them."),
        (
            {"action": "stop", "container": "x"},
            "There is no container x: the action containers lists them.",
        ),
        ({"action": "logs", "container": ".."}, "A name is empty, or leads to another place."),
        ({"action": "logs", "container": "web/../../images"}, "container: String should match pattern"),
    ],
)
def test_what_docker_cannot_do_is_told(
    context: ToolContext, engine: Docker, arguments: dict[str, Any], told: str
) -> None:
    assert refused(context, "docker", {"base_url": engine.url}, arguments).startswith(told)


@pytest.mark.parametrize("action", ["containers", "inspect"])
def test_failures_of_docker_are_sentences(context: ToolContext, engine: Docker, action: str) -> None:
    check_failures(context, engine, "docker", {"base_url": engine.url}, {"action": action, "container": "web"})


@pytest.mark.parametrize("action", ["start", "stop"])
def test_a_switch_without_an_answer_may_have_been_done(context: ToolContext, engine: Docker, action: str) -> None:
    engine.instead = slow
    values, arguments = {"base_url": engine.url}, {"action": action, "container": "web"}

    late = refused(replace(context, timeout=0.5), "docker", values, arguments)
    engine.instead = lambda asked: Reply(200, b"<p>hello", {"Content-Type": "text/html"})
    odd = refused(context, "docker", values, arguments)

    assert "may have been done" in late
    assert "a form that is not understood" in odd


# -- AWS Lambda ------------------------------------------------------------------------------------------------------

KEY = Credentials("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "us-east-1", "service")
THEN = datetime(2015, 8, 30, 12, 36, tzinfo=UTC)


@pytest.mark.parametrize(
    ("method", "target", "signature"),
    [
        ("GET", "/", "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"),
        ("POST", "/", "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"),
        (
            "GET",
            "/?Param2=value2&Param1=value1",
            "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500",
        ),
    ],
)
def test_signatures_of_the_published_test_suite(method: str, target: str, signature: str) -> None:
    headers = signed(method, f"https://example.amazonaws.com{target}", {}, b"", KEY, THEN)

    assert headers == {
        "X-Amz-Date": "20150830T123600Z",
        "Authorization": "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, "
        f"SignedHeaders=host;x-amz-date, Signature={signature}",
    }


def test_the_signature_of_the_published_example() -> None:
    """ListUsers of IAM, of the general reference."""
    url = "https://iam.amazonaws.com/?Action=ListUsers&Version=2010-05-08"
    headers = {"Content-Type": "application/x-www-form-urlencoded; charset=utf-8"}

    proof = signed("GET", url, headers, b"", replace(KEY, service="iam"), THEN)["Authorization"]

    assert proof.endswith("Signature=5d672d79c15b13162d9279b0855cfba6789a8edb4c82c400e06b5924a6f2b5d7")


def values(cloud: Lambda, **more: str) -> dict[str, str]:
    return {
        "region": cloud.region,
        "access_key": cloud.access_key,
        "secret_key": cloud.secret_key,
        "endpoint_url": cloud.url,
    } | more


def test_functions_are_listed(context: ToolContext, cloud: Lambda) -> None:
    found = call_with(context, "aws_lambda", values(cloud), {"action": "list"})

    resize = {
        "name": "resize",
        "runtime": "python3.13",
        "changed": "2026-11-01T10:00:00.000+0000",
        "memory_mb": 128,
        "timeout_s": 3,
    }
    assert found == {"functions": [resize, resize | {"name": "fail"}], "more": True}


@pytest.mark.parametrize("function", ["resize", "arn:aws:lambda:eu-central-1:123456789012:function:resize"])
def test_a_function_is_invoked(context: ToolContext, cloud: Lambda, function: str) -> None:
    arguments = {"action": "invoke", "function": function, "payload": {"width": 5}}

    found = call_with(context, "aws_lambda", values(cloud), arguments)

    assert found == {"function": function, "answer": {"got": {"width": 5}}}


def test_a_function_that_fails_says_why(context: ToolContext, cloud: Lambda) -> None:
    found = call_with(context, "aws_lambda", values(cloud), {"action": "invoke", "function": "fail"})

    assert found == {"function": "fail", "failed": "division by zero", "type": "ZeroDivisionError"}


@pytest.mark.parametrize(
    ("change", "arguments", "told"),
    [
        ({"region": "evil.org/"}, {"action": "list"}, "AWS must be set up with a region such as eu-central-1."),
        ({"secret_key": "x"}, {"action": "list"}, "AWS refuses the request (status 403): The request signature"),
        ({}, {"action": "invoke"}, "Name the function: the action list shows them."),
        (
            {},
            {"action": "invoke", "function": "nothing"},
            "There is no function nothing: the action list shows them.",
        ),
        ({}, {"action": "invoke", "function": "a/../b"}, "function: String should match pattern"),
        ({}, {"action": "invoke", "function": "a", "payload": {"a": "x" * 200_000}}, "The payload has 200,009 bytes"),
    ],
)
def test_what_lambda_cannot_do_is_told(
    context: ToolContext, cloud: Lambda, change: dict[str, str], arguments: dict[str, Any], told: str
) -> None:
    assert refused(context, "aws_lambda", values(cloud, **change), arguments).startswith(told)


def test_a_long_answer_is_cut(context: ToolContext, cloud: Lambda) -> None:
    cloud.instead = lambda asked: json_reply("x" * 30_000)

    found = call_with(context, "aws_lambda", values(cloud), {"action": "invoke", "function": "resize"})

    assert (len(found["answer"]), found["truncated"]) == (20_000, True)


def test_failures_of_lambda_are_sentences(context: ToolContext, cloud: Lambda) -> None:
    check_failures(context, cloud, "aws_lambda", values(cloud), {"action": "list"})
    check_credential_stays(context, cloud, "aws_lambda", values(cloud), {"action": "list"})
    check_credential_stays(context, cloud, "aws_lambda", values(cloud), {"action": "invoke", "function": "resize"})


def test_devops_tools_that_write_never_run_again_after_a_crash() -> None:
    tools = [tool for tool in registry.tools.values() if tool.category == devops.CATEGORY.name]

    assert {(tool.name, tool.effect, tool.on_crash) for tool in tools} == {
        ("github", "read", "retry"),
        ("docker", "external", "never"),
        ("aws_lambda", "external", "never"),
    }
