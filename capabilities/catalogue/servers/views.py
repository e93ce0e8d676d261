"""The pages of MCP servers: the list, one server with its tools, its form, and removing it."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from capabilities.catalogue.servers.forms import ServerForm, ServersAddress
from capabilities.catalogue.servers.queries import (
    imports_of_server,
    offered_tools,
    removal_text,
    server_numbers,
    server_or_404,
    servers_page,
    test_of_server,
    tools_of_server,
)
from capabilities.catalogue.servers.writes import (
    create_server,
    delete_server,
    processes_for,
    read_tools,
    update_server,
    use_as_offered,
)
from capabilities.common.pages import refused, show_refusal, status_of
from capabilities.common.refused import ChangeRefused
from capabilities.models import McpServer
from toolhub.tenants.access import MemberRequest, member_or_404
from toolhub.tenants.list_address import ListAddress
from toolhub.tenants.models import Membership, Right
from toolhub.tenants.pages import signed_in


@require_GET
@signed_in
def server_list(request: MemberRequest, org: str) -> HttpResponse:
    """List the servers by name, with how each is doing."""
    member = member_or_404(request, right=Right.CATALOGUE, category=None)
    address = ServersAddress(request.GET)
    q = address.filters["q"]
    context = {
        **address.context(servers_page(q=q, **address.place)),
        "q": q,
        "numbers": server_numbers(),
        "may_save": member.has_right(Right.CATALOGUE),
    }
    return render(request, "capabilities/catalogue/servers/server_list.html", context)


@require_http_methods(["GET", "POST"])
@signed_in
def server_create(request: MemberRequest, org: str) -> HttpResponse:
    member = member_or_404(request, right=Right.CATALOGUE)
    form = ServerForm(request.POST or None, processes=processes_for(member.organisation))
    return _form_page(request, member, None, form)


@require_http_methods(["GET", "POST"])
@signed_in
def server_update(request: MemberRequest, org: str, name: str) -> HttpResponse:
    member = member_or_404(request, right=Right.CATALOGUE)
    server = server_or_404(name)
    form = ServerForm(request.POST or None, server=server, processes=processes_for(member.organisation))
    if vars(server)["tool_count"]:
        form.keep_name()
    return _form_page(request, member, server, form)


def _form_page(request: MemberRequest, member: Membership, server: McpServer | None, form: ServerForm) -> HttpResponse:
    if form.is_valid():
        try:
            if server is None:
                saved = create_server(form.content(), actor=member)
            else:
                saved = update_server(server, form.content(), actor=member)
        except ChangeRefused as error:
            show_refusal(form, error)
        else:
            reads = request.POST.get("then") == "read"
            next_step = "Test it, then read its tools." if server is None and not reads else ""
            messages.success(request, f"{saved} is saved. {next_step}".strip())
            if reads:
                return _read(request, member, saved)
            return redirect("server_detail", member.organisation.slug, saved.name)
    context = {"form": form, "server": server}
    return render(request, "capabilities/catalogue/servers/server_form.html", context, status=status_of(form))


@require_GET
@signed_in
def server_detail(request: MemberRequest, org: str, name: str) -> HttpResponse:
    """Show one server: how it is doing, its tools, what waits for a decision."""
    member = member_or_404(request, right=Right.CATALOGUE, category=None)
    server = server_or_404(name)
    address = ListAddress(request.GET)
    may_save = member.has_right(Right.CATALOGUE)
    context = {
        **address.context(tools_of_server(server, **address.place)),
        "server": server,
        "imports": imports_of_server(server),
        "test": test_of_server(server),
        "may_save": may_save,
        "may_test": may_save,
        "may_decide": bool(member.reach(Right.APPROVE_CODE)),
        "offered_count": len(offered_tools(server)) if server.kept_back_count else 0,  # type: ignore[attr-defined]
        "is_listening": server.listening_until is not None and server.listening_until > timezone.now(),
        "consequence": removal_text(server) if may_save else "",
    }
    return render(request, "capabilities/catalogue/servers/server_detail.html", context)


@require_POST
@signed_in
def server_read(request: MemberRequest, org: str, name: str) -> HttpResponse:
    """Have a worker read the server's tools, for a person to review."""
    member = member_or_404(request, right=Right.CATALOGUE, category=None)
    return _read(request, member, server_or_404(name))


def _read(request: MemberRequest, member: Membership, server: McpServer) -> HttpResponse:
    org = member.organisation.slug
    try:
        asked = read_tools(server, actor=member)
    except ChangeRefused as error:
        return refused(request, error, "server_detail", org, server.name)
    messages.success(request, f"The tools of {server} are being read. Nothing is used before somebody accepted it.")
    return redirect("import_detail", org, asked.public_id)


@require_POST
@signed_in
def server_accept(request: MemberRequest, org: str, name: str) -> HttpResponse:
    """Use tools that are kept back as they were accepted: those that are ticked, or all that the server offers so."""
    member = member_or_404(request, right=Right.APPROVE_CODE, category=None)
    server = server_or_404(name)
    names = request.POST.getlist("tools") or offered_tools(server)
    try:
        count = use_as_offered(server, names, actor=member)
    except ChangeRefused as error:
        return refused(request, error, "server_detail", org, name)
    messages.success(request, f"{count} tool{' is' if count == 1 else 's are'} used again, as accepted before.")
    return redirect("server_detail", org, name)


@require_POST
@signed_in
def server_delete(request: MemberRequest, org: str, name: str) -> HttpResponse:
    member = member_or_404(request, right=Right.CATALOGUE)
    server = server_or_404(name)
    try:
        delete_server(server, actor=member)
    except ChangeRefused as error:
        return refused(request, error, "server_detail", org, name)
    messages.success(request, f"{server} is removed. Its tools are taken out of use; their history stays.")
    return redirect("server_list", org)
