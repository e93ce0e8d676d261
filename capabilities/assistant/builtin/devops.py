"""GitHub, Docker and AWS Lambda, one tool each. How each one speaks is in its own module."""

from __future__ import annotations

import json
import re
import time
from typing import Annotated, Any, Literal

from pydantic import Field

from capabilities.assistant.builtin._lib import docker as _docker
from capabilities.assistant.builtin._lib import github as _github
from capabilities.assistant.builtin._lib.remote import Remote, a_dict, bearer, dicts, filled, remote, short
from capabilities.assistant.builtin._lib.sigv4 import Credentials, signed
from capabilities.contract.context import ToolContext, ToolError
from capabilities.running.egress import Fetched
from capabilities.running.registry import CategorySpec, ServiceField, ServiceSpec, tool
from toolhub.bounded_json import load_json

CATEGORY = CategorySpec(
    name="devops",
    title="DevOps",
    description="Docker, AWS and GitHub tools for infrastructure work.",
    keywords=(
        "docker",
        "container",
        "github",
        "pull request",
        "issue",
        "repository",
        "aws",
        "lambda",
        "serverless",
        "deploy",
        "infrastructure",
    ),
)
GITHUB = ServiceSpec(
    name="github",
    title="GitHub",
    description="Public repositories work without set-up; a token allows more calls and private ones.",
    fields=(
        ServiceField("base_url", "Address", "Of GitHub Enterprise: ends in /api/v3.", default="https://api.github.com"),
        ServiceField("token", "Token", "Give it the right to read only.", is_secret=True, is_required=False),
    ),
    test=lambda context: _hub(context).json("GET", "rate_limit", shape=dict),
)
DOCKER = ServiceSpec(
    name="docker",
    title="Docker",
    description="A Docker Engine that listens on HTTP, best behind a proxy that lets through only what tools need.",
    fields=(ServiceField("base_url", "Address", "Such as http://docker.internal:2375."),),
    test=lambda context: docker(context, "containers"),
)
AWS = ServiceSpec(
    name="aws",
    title="AWS",
    description="An account of AWS. Use a key that may only list and invoke functions.",
    fields=(
        ServiceField("region", "Region", "Such as eu-central-1.", binds_secrets=False),
        ServiceField("access_key", "Access key", binds_secrets=False),
        ServiceField("secret_key", "Secret key", is_secret=True),
        ServiceField("endpoint_url", "Address", "Only where it is not AWS itself.", is_required=False),
    ),
    test=lambda context: aws_lambda(context, "list"),
)
SERVICES = (GITHUB, DOCKER, AWS)

#: Bytes of a payload, and characters of an answer that are shown.
PAYLOAD_LIMIT = 200_000
ANSWER_LIMIT = 20_000
REGION = re.compile(r"[a-z]{2}(-[a-z]+){1,3}-\d{1,2}")


@tool(category="devops", effect="read", service="github", timeout=30.0, untrusted=True, human_format="GitHub: {action}")
def github(
    context: ToolContext,
    action: Literal["repo", "issues", "pulls", "issue", "file", "search_repos", "search_issues", "search_code"],
    repo: Annotated[str, Field(description="owner/name.", max_length=140)] = "",
    query: Annotated[str, Field(description="For the searches.", max_length=250)] = "",
    number: Annotated[int | None, Field(ge=1, le=10_000_000, description="For issue; also of a pull request.")] = None,
    path: Annotated[str, Field(description="For file; of a folder lists it.", max_length=1_000)] = "",
    ref: Annotated[str, Field(description="Branch, tag or commit.", max_length=200)] = "",
    state: Literal["open", "closed", "all"] = "open",
    count: Annotated[int, Field(ge=1, le=30)] = 10,
) -> dict[str, Any]:
    """Read GitHub: a repository, its issues and pull requests, a file or folder, or search."""
    return _github.ACTIONS[action](_hub(context), _github.Wanted(repo.strip(), query, number, path, ref, state, count))


@tool(
    category="devops",
    effect="external",
    service="docker",
    timeout=40.0,
    untrusted=True,
    in_untrusted="ask",
    reads_with={"action": ("containers", "logs", "inspect")},
    human_format="Docker: {action} {container}",
)
def docker(
    context: ToolContext,
    action: Literal["containers", "logs", "inspect", "start", "stop"],
    container: Annotated[str, Field(pattern=r"^[a-zA-Z0-9_.-]{0,128}$", description="Name or id.")] = "",
    lines: Annotated[int, Field(ge=1, le=1000, description="Of logs, the last.")] = 100,
) -> dict[str, Any]:
    """List Docker containers, read logs, inspect, start or stop one."""
    if not container and action != "containers":
        raise ToolError("Name the container: the action containers lists them.")
    return _docker.ACTIONS[action](remote(context, DOCKER), container, lines)


@tool(
    category="devops",
    effect="external",
    service="aws",
    timeout=60.0,
    untrusted=True,
    in_untrusted="ask",
    reads_with={"action": ("list",)},
    human_format="AWS Lambda: {action} {function}",
)
def aws_lambda(
    context: ToolContext,
    action: Literal["list", "invoke"],
    function: Annotated[str, Field(pattern=r"^[a-zA-Z0-9_:.$-]{0,170}$", description="Name or ARN.")] = "",
    payload: Annotated[dict[str, Any] | None, Field(description="What the function is given.")] = None,
) -> dict[str, Any]:
    """List the functions of AWS Lambda, or invoke one and return its answer."""
    cloud = _lambda(context)
    if action == "list":
        found = cloud.parsed(cloud.good(_asked(context, cloud, "GET", ["functions"])), dict)
        rows = [_function(row) for row in dicts(found.get("Functions"))]
        return {"functions": rows[:100]} | ({"more": True} if found.get("NextMarker") or len(rows) > 100 else {})
    if not function:
        raise ToolError("Name the function: the action list shows them.")
    content = json.dumps(payload or {}).encode()
    if len(content) > PAYLOAD_LIMIT:
        raise ToolError(f"The payload has {len(content):,} bytes; at most {PAYLOAD_LIMIT:,} are sent.")
    answer = _asked(context, cloud, "POST", ["functions", function, "invocations"], content)
    return _invoked(
        cloud, function, cloud.good(answer, f"There is no function {function}: the action list shows them.")
    )


def _hub(context: ToolContext) -> Remote:
    headers = bearer(context.service.get("token", "")) | {"X-GitHub-Api-Version": "2022-11-28"}
    return remote(context, GITHUB, headers=headers)


def _lambda(context: ToolContext) -> Remote:
    """Its address follows from the region, which is checked: no other host can be made of it."""
    region, address = context.service.get("region", "").strip(), context.service.get("endpoint_url", "").strip()
    if not REGION.fullmatch(region):
        raise ToolError("AWS must be set up with a region such as eu-central-1.")
    return Remote(
        AWS.title, address or f"https://lambda.{region}.amazonaws.com", time.monotonic() + context.timeout * 0.9
    )


def _asked(context: ToolContext, cloud: Remote, method: str, segments: list[str], content: bytes = b"") -> Fetched:
    values = context.service
    credentials = Credentials(
        values.get("access_key", "").strip(), values.get("secret_key", "").strip(), values["region"].strip(), "lambda"
    )
    path = ("2015-03-31", *segments)
    headers = {"Accept": "application/json"} | ({"Content-Type": "application/json"} if content else {})
    proof = signed(method, cloud.url(*path), headers, content, credentials, context.now())
    return cloud.ask(method, *path, content=content or None, headers=proof)


def _function(row: dict[str, Any]) -> dict[str, Any]:
    memory, timeout = row.get("MemorySize"), row.get("Timeout")
    return filled(
        {
            "name": short(row.get("FunctionName"), 140),
            "about": short(row.get("Description"), 200),
            "runtime": short(row.get("Runtime"), 40),
            "changed": short(row.get("LastModified"), 30),
            "memory_mb": memory if isinstance(memory, int) else None,
            "timeout_s": timeout if isinstance(timeout, int) else None,
        }
    )


def _invoked(cloud: Remote, function: str, answer: Fetched) -> dict[str, Any]:
    text = answer.text
    try:
        value = load_json(text) if len(text) <= ANSWER_LIMIT else text[:ANSWER_LIMIT]
    except ValueError:
        value = text[:ANSWER_LIMIT]
    cut = {"truncated": True} if len(text) > ANSWER_LIMIT else {}
    if "x-amz-function-error" in answer.headers:
        complaint = short(a_dict(value).get("errorMessage"), 500) or "it does not say why"
        return {"function": function, "failed": complaint} | filled(
            {"type": short(a_dict(value).get("errorType"), 100)}
        )
    return {"function": function, "answer": value} | cut
