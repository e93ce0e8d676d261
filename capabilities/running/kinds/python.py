"""Runner of tools that are Python of the organisation's own, in the sandbox.

What the code can reach is in `capabilities.running.sandbox`; this puts the call's time, credential and context to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.conf import settings

from capabilities.common.refused import ChangeRefused
from capabilities.contract.context import Credential, LinkNeeded, ToolContext, ToolError
from capabilities.contract.spec import ToolSpec
from capabilities.models import HelperVersion, ToolVersion, VersionStatus
from capabilities.running.credentials.signing import after_refusal
from capabilities.running.egress import Fetched
from capabilities.running.kinds.checks import Content
from capabilities.running.sandbox import (
    CONTEXT,
    MAX_CODE,
    RUNTIMES,
    WORKSPACE,
    HostError,
    HostFunctions,
    Limits,
    SandboxResult,
    guarded_http,
    isolation,
    run_python,
    takes_context,
)
from toolhub.tenants.models import Organisation

#: Share of the call's time that the code may take; the rest is for reading its result.
SHARE = 0.9
#: Bytes of a result, and of what is printed.
OUTPUT = 1_000_000
#: Characters of what was printed that the model reads beside an error.
PRINTED_CHARS = 500
#: Helper versions that code may still use: those that were in force once stay with the tools that were approved so.
USABLE = (VersionStatus.APPROVED, VersionStatus.RETIRED)
MAX_HELPERS = 20


def run(
    *,
    spec: ToolSpec,
    version: ToolVersion,
    credential: Credential,
    context: ToolContext,
    arguments: Mapping[str, Any],
) -> Any:
    """Return the result of the code's `run`, as JSON. Raises ToolError with its error and what to write instead, and
    LinkNeeded where the first request shows that the member has to connect an account.

    One query where the code uses helper modules, one where it asks for the context.
    """
    implementation = version.implementation
    runtime = str(implementation.get("runtime", ""))
    code = str(implementation.get("code", ""))
    ready = isolation()
    if not ready.has(runtime):
        raise ToolError(f"{spec.name} cannot run: {ready.reason(runtime)}", nothing_came=True)
    given = dict(arguments)
    if takes_context(code) and CONTEXT not in given:
        given[CONTEXT] = context_of(spec, version, context)
    result = run_python(
        code,
        given,
        helpers=helpers_of(implementation.get("helpers") or {}),
        runtime=runtime,
        limits=limits_of(context.timeout),
        host=HostFunctions(http=_http(credential, context), timezone=str(context.now().tzinfo or "UTC")),
        organisation_id=context.organisation_id,
        stopped=context.stopped,
    )
    if result.host_calls:
        context.untrusted.set()
    if result.error is not None:
        raise ToolError(failure_text(result), nothing_came=not result.host_calls)
    return result.value


def limits_of(timeout: float) -> Limits:
    """Return the limits of one call that has so many seconds."""
    return Limits(
        seconds=max(0.1, timeout * SHARE),
        memory=settings.TOOLHUB_PYTHON_MEMORY_MB * 1_000_000,
        output=OUTPUT,
        host_calls=settings.TOOLHUB_PYTHON_REQUESTS,
    )


def failure_text(result: SandboxResult) -> str:
    """The error as the model reads it: with the line, what to write instead, and the end of what was printed."""
    text = str(result.error)
    printed = result.printed.strip()
    return f"{text}\nIt printed: {printed[-PRINTED_CHARS:]}" if printed else text


def context_of(spec: ToolSpec, version: ToolVersion, context: ToolContext) -> dict[str, Any]:
    """Return the facts that the code gets of the call it runs for: data alone, nothing that opens anything. One query.

    `workspace` is the organisation's folder under the name that it has for commands; file tools take paths in it.
    """
    organisation = Organisation.objects.values_list("slug", flat=True).get(pk=context.organisation_id)
    return {
        "agent": context.agent,
        "organisation": organisation,
        "workspace": WORKSPACE,
        "session": None if context.session_id is None else str(context.session_id),
        "tool": spec.name,
        "version": version.number,
        "status": version.status,
        "now": context.now().isoformat(timespec="seconds"),
    }


def helpers_of(wanted: Mapping[str, Any]) -> dict[str, str]:
    """The code of these versions of the organisation's helper modules: name -> number. Raises ToolError where one is
    not there or may not be used. One query, none for no modules."""
    if not wanted:
        return {}
    rows = HelperVersion.objects.filter(module__name__in=list(wanted), status__in=USABLE)
    found = {(name, number): code for name, number, code in rows.values_list("module__name", "number", "code")}
    missing = [f"version {number} of {name}" for name, number in wanted.items() if (name, number) not in found]
    if missing:
        raise ToolError(f"The Python module is not there, or not approved: {', '.join(missing)}.", nothing_came=True)
    return {name: found[name, number] for name, number in wanted.items()}


def _http(credential: Credential, context: ToolContext) -> Any:
    """The web for this call. A refused credential is renewed where it can be; the member is asked to sign in again
    only at the first request: later ones may have changed something, and the code would do that again."""
    asked = 0

    def refused(answer: Fetched, remaining: float) -> Credential | None:
        if credential.secret_id is None:
            return None
        try:
            return after_refusal(
                credential,
                answer.status,
                answer.headers.get("www-authenticate", ""),
                membership_id=context.membership_id,
                at_most=max(0.0, remaining),
            )
        except (LinkNeeded, ToolError) as error:
            if isinstance(error, LinkNeeded) and asked == 1:
                raise
            raise HostError(str(error)) from None

    ask = guarded_http(credential, refused=refused)

    def counted(method: str, url: str, **more: Any) -> Any:
        nonlocal asked
        asked += 1
        return ask(method, url, **more)

    return counted


def check_implementation(content: Content) -> None:
    """Raise ChangeRefused unless this has the form of a Python tool and its runtime is there; `field` says which part
    is at fault. Problems in the code itself are found by `check_python`: that takes a process, so it is asked before a
    transaction begins."""
    implementation = content.implementation
    unknown = set(implementation) - {"runtime", "code", "helpers"}
    if unknown:
        raise ChangeRefused("implementation", f"A Python tool has no {', '.join(sorted(map(str, unknown)))}.")
    runtime, code, helpers = (implementation.get(name) for name in ("runtime", "code", "helpers"))
    if runtime not in RUNTIMES:
        raise ChangeRefused("implementation.runtime", f"The runtime must be {' or '.join(RUNTIMES)}.")
    if not isinstance(code, str) or not code.strip():
        raise ChangeRefused("implementation.code", "Write the code, with a function `run`.")
    if len(code) > MAX_CODE:
        raise ChangeRefused("implementation.code", f"The code is longer than {MAX_CODE:,} characters.")
    _check_helpers(helpers)
    ready = isolation()
    if not ready.has(str(runtime)):
        raise ChangeRefused("implementation.runtime", ready.reason(str(runtime)))


def _check_helpers(helpers: Any) -> None:
    if helpers is None:
        return
    if not isinstance(helpers, Mapping) or len(helpers) > MAX_HELPERS:
        raise ChangeRefused("implementation.helpers", f"Name at most {MAX_HELPERS} modules, each with its version.")
    for name, number in helpers.items():
        if not isinstance(name, str) or not name.isidentifier():
            raise ChangeRefused("implementation.helpers", "A module is named as Python names one, such as prices.")
        if not isinstance(number, int) or isinstance(number, bool) or number < 1:
            raise ChangeRefused("implementation.helpers", f"Say which version of {name}: a number from 1.")
    stored_versions = set(
        HelperVersion.objects.filter(module__name__in=list(helpers)).values_list("module__name", "number")
    )
    for name, number in sorted(helpers.items()):
        if (name, number) not in stored_versions:
            raise ChangeRefused("implementation.helpers", f"There is no version {number} of a module {name}.")
