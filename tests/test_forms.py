"""Every form of the product is submitted once in Chromium, as Alice, admin of a filled organisation.

The forms are found by walking pages: every address of the resolver that answers GET with a page, asked as in ROUTES of
test_tenancy_routes.py. A form without an entry in FORMS fails, and so does an entry without a form. Each starts from
the same database, so the order does not matter.
"""

from __future__ import annotations

import os
import re
import socket
import sqlite3
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from django.conf import settings
from django.db import connection, transaction
from django.urls import Resolver404, resolve, reverse

from capabilities.models import Agent, AgentToolkit, Tool, Toolkit, ToolRefusal
from sessions.models import TurnStatus
from sessions.selection.loading.loadable import LoadTarget
from sessions.selection.loading.queries import load_for
from tests.browser import chromium, complaints, sign_in
from tests.cast import (
    PASSWORD,
    give_tool,
    make_agent,
    make_member,
    make_organisation,
    make_session,
    make_tool,
    make_turn,
)
from tests.paths import ROOT
from tests.processes import wait_for
from tests.tenants.test_factors import code_of
from tests.test_tenancy_routes import ADDRESSES, KNOWN, ROUTES, Ask, OrganisationRows, fill
from toolhub.embedded.supervisor import free_port, uvicorn
from toolhub.tenants.identity.resets import issue_reset_link
from toolhub.tenants.models import Access, AdminRight, Membership, Right
from toolhub.tenants.people.invitations import invite
from toolhub.tenants.rows.scope import organisation_scope

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, Locator, Page, Response

pytestmark = [
    pytest.mark.browser,
    pytest.mark.django_db,
    pytest.mark.timeout(300),
    pytest.mark.skipif(connection.vendor != "sqlite", reason="puts the database back by copying its file"),
]


@dataclass(frozen=True)
class Form:
    """How one form is filled in, and what the page says afterwards. Fields that are not named stay as they are.

    A value is a text, a list of texts for a choice of several, or True and False for a checkbox; {name} in a text is
    the field of that name of the OrganisationRows, the names of the organisation's rows.
    """

    fields: Mapping[str, str | bool | list[str]] = field(default_factory=dict)
    #: Text on the page afterwards.
    shows: str = ""
    #: Of the last answer: the page, or the part that htmx swaps.
    status: int = 200
    #: Whether it changes the database. None: by POST it does.
    writes: bool | None = None


PYTHON_TOOL = {"name": "fresh", "description": "Writes in capitals."}
#: "METHOD route", and the name of the button or field where it has one: what to fill in, and what the page then says.
#: A later form for the same address without a field in common has the name of its first field behind it, or "alone".
FORMS: dict[str, Form] = {
    # One's own account
    "POST account_logout": Form(shows="Sign in"),
    "POST account": Form({"first_name": "Fresh"}, "Fresh"),
    "POST account_change_password": Form(
        {"oldpassword": PASSWORD, "password1": "another-good-one", "password2": "another-good-one"}, "Sign in"
    ),
    "POST account_reauthenticate": Form({"password": PASSWORD}),
    "POST token_list": Form({"name": "Fresh"}, "Fresh"),
    "POST token_revoke": Form(),
    "POST connect": Form({"name": "Fresh"}, "The new token is in the blocks below"),
    "GET connect": Form(shows="Connect a client"),
    "POST saved_filter_create": Form({"name": "Fresh words"}, "Fresh words"),
    "POST saved_filter_delete": Form(shows="Removed the saved filter"),
    "POST browser_remove": Form(shows="Nothing is shown in word any more"),
    # Doors
    "POST account_login": Form({"login": "alice@example.com", "password": PASSWORD}, "First steps"),
    "POST join": Form({"first_name": "Fresh", "password": "another-good-one"}, "Fresh"),
    "POST join alone": Form(shows="You belong to"),
    "POST reset": Form({"password": "another-good-one"}, "The new password is set"),
    "POST mfa_activate_totp": Form({"code": "{code}"}, "Recovery codes"),
    # People
    "GET member_list": Form({"q": "colleague"}, "colleague"),
    "POST member_invite": Form({"email": "fresh@example.com", "roles": ["{role}"]}, "/join/"),
    "POST member_invitation_revoke": Form(shows="Revoked"),
    "POST member_access": Form({"access": "viewer"}, "viewer"),
    "POST member_right_give": Form({"right": "roles"}, "Roles"),
    "POST member_token_revoke": Form(),
    "POST member_right_take": Form(),
    "POST member_reset": Form(shows="/reset/"),
    "POST member_remove": Form(shows="is no longer a member"),
    "GET audit_list": Form({"q": "tool"}, "tool.update"),
    # Agents
    "POST agent_create": Form({"name": "Fresh"}, "Fresh"),
    "POST agent_create find": Form(shows="word_tool", writes=False),
    "POST agent_create tools-q": Form({"tools-q": "word"}, "word_tool", writes=False),
    "POST agent_update": Form({"name": "Fresh"}, "Fresh"),
    "POST agent_update preview": Form({"name": "Fresh"}, "What will change", writes=False),
    "POST agent_update find": Form(shows="word_tool", writes=False),
    "POST agent_update tools-q": Form({"tools-q": "word"}, "word_tool", writes=False),
    "POST agent_delete": Form(shows="is removed"),
    # Categories, tools, services
    "GET find": Form({"q": "word"}, "word_tool"),
    "GET tool_list": Form({"q": "word"}, "word_tool"),
    "GET tool_members": Form({"q": "alice"}, "Alice"),
    "POST tool_version_decide decision=approve": Form(shows="is in force, from the next call on"),
    "POST tool_version_decide decision=reject": Form({"reason": "Fresh."}, "is rejected"),
    "POST tool_version_withdraw": Form(shows="is a draft"),
    "POST tool_version_rollback": Form(shows="Version 1 of word_python is in force again"),
    "POST tool_retire": Form({"reason": "Fresh."}, "is out of use"),
    "POST tool_keep_back": Form({"reason": "Fresh."}, "is kept back, from the next call on"),
    "POST tool_try_again": Form(shows="again, with the next call"),
    "POST tool_release": Form(shows="is used again, from the next call on"),
    "POST tool_agents_switch allowed": Form(shows="Agents may make tools now"),
    "POST tool_python_create do=submit": Form(PYTHON_TOOL, "waits for approval by somebody else"),
    "POST tool_python_create do=draft": Form(PYTHON_TOOL, "is saved as a draft"),
    "POST tool_python_create do=check": Form(PYTHON_TOOL, "Nothing is saved by a check.", writes=False),
    "POST tool_python_update do=submit": Form({"code": "def run():\n    return 2"}, "It cannot be submitted while"),
    "POST tool_python_update do=draft": Form({"code": "def run():\n    return 2"}, "is saved as a draft"),
    "POST tool_python_update do=check": Form(shows="Nothing is saved by a check.", writes=False),
    "POST tool_test_save": Form({"name": "Fresh", "arguments": "{{}}"}, "The test Fresh is saved."),
    "POST tool_test_delete": Form(shows="is deleted"),
    # Python modules
    "GET module_list": Form({"q": "word"}, "word_module"),
    "POST module_create do=submit": Form({"name": "fresh"}, "Version 1 of fresh waits for approval"),
    "POST module_create do=check": Form({"name": "fresh"}, "Nothing is saved by a check.", writes=False),
    "POST module_update do=submit": Form({"code": "FRESH = 1"}, "Version 4 of word_module waits for approval"),
    "POST module_update do=check": Form({"code": "FRESH = "}, "This is not Python", writes=False),
    "POST module_version_decide decision=approve": Form(shows="Tools keep the version that they were approved with"),
    "POST module_version_decide decision=reject": Form({"reason": "Fresh."}, "is rejected"),
    "POST module_version_rollback": Form(shows="is in force again"),
    "POST module_retire": Form({"reason": "Fresh."}, "is out of use"),
    "POST module_delete": Form(shows="is removed"),
    "POST tool_switch": Form(),
    "POST tool_switch message": Form({"message": "Out of order."}, "Models and users read: “Out of order.”"),
    "POST tool_instruct": Form({"instructions": "Fresh"}, "Fresh"),
    "POST tool_give": Form({"agents": ["{agent}"]}, "now"),
    "POST tool_move": Form({"category": "{empty_category}"}, "is in word title now"),
    "POST tools_switch enabled=1": Form({"names": ["{name}"]}, writes=False),
    "POST tools_switch enabled=0": Form({"names": ["{name}"]}),
    "POST tools_change preview": Form(
        {"names": ["{name}"], "category": "{empty_category}"}, "1 of 1 tool", writes=False
    ),
    "POST tools_change": Form({"names": ["{name}"], "category": "{empty_category}"}, "Changed 1 of 1 tool"),
    "POST tool_try": Form({"arg-expression": "2+40"}),
    "POST tool_try alone": Form(),
    "POST category_create": Form({"title": "Fresh"}, "Fresh"),
    "POST category_update": Form({"title": "Fresh"}, "Fresh"),
    "POST category_delete": Form(shows="is removed"),
    "GET keyword_list": Form({"message": "word"}, "What is sent, in this order"),
    "GET keyword_findings": Form(shows="A miss: a tool that a turn needed"),
    "POST keyword_update": Form({"keywords": "fresh"}, "fresh"),
    "POST service_update": Form({"base_url": "https://search.example"}, "SearXNG"),
    "POST service_test": Form(shows="Testing"),
    "POST service_clear": Form(shows="is forgotten"),
    # HTTP tools
    "POST http_tool_create do=save": Form(
        {
            "name": "fresh",
            "description": "Fresh.",
            "url": "https://mcp.example.org/users/{{id}}",
            "credential": "{credential}",
            "arguments-0-name": "id",
            "arguments-0-place": "path",
            "arguments-0-is_required": True,
        },
        "fresh is added",
    ),
    "POST http_tool_create do=preview": Form(
        {"name": "fresh", "description": "Fresh.", "url": "https://mcp.example.org/"}, "nothing is saved", writes=False
    ),
    "POST http_tool_create do=rows": Form({"arguments-2-name": "third"}, "Argument 4", writes=False),
    "POST http_tool_update do=save": Form({"description": "Fresh."}, "in force from the next call on"),
    "POST http_tool_update do=preview": Form({"description": "Fresh."}, "nothing is saved", writes=False),
    "POST http_tool_update do=rows": Form({"arguments-2-name": "third"}, "Argument 4", writes=False),
    # MCP servers
    "GET server_list": Form({"q": "word"}, "word server"),
    "POST server_create": Form({"name": "fresh", "url": "https://mcp.example.org/mcp"}, "fresh is saved"),
    "POST server_create then": Form({"name": "fresher", "url": "https://mcp.example.org/mcp"}, "are being read"),
    "POST server_update": Form({"title": "Fresh"}, "Fresh is saved"),
    "POST server_test": Form(shows="Testing"),
    "POST server_read": Form(shows="are being read"),
    "POST server_accept": Form(shows="1 tool is used again"),
    "POST server_delete": Form(shows="is removed"),
    # Imports
    "GET import_list": Form({"q": "word"}, "word import"),
    "POST import_create": Form({"url": "https://api.example.org/spec"}, "It waits for a worker"),
    "GET import_detail": Form({"q": "word"}, "word_found"),
    "POST import_decide act=accept": Form(
        {"category": "{category}", "tools": ["{imported_id}"]}, "Accepted: 1 new tool"
    ),
    "POST import_decide act=accept_all": Form({"category": "{category}"}, "Accepted: 1 new tool"),
    "POST import_decide act=set": Form({"tools": ["{imported_id}"], "effect": "write"}, "of 1 definition is changed"),
    "POST import_decide act=dismiss": Form({"tools": ["{imported_id}"]}, "Dismissed: 1 definition"),
    "POST import_decide act=dismiss_all": Form(shows="Dismissed: 1 definition"),
    "POST import_address": Form({"base_url": "https://other.example.org"}, "The base address is saved"),
    "POST import_close": Form(shows="is closed"),
    "POST import_tool": Form({"effect": "external"}, "is saved"),
    # Credentials
    "GET credential_list": Form({"q": "word"}, "word own_credential"),
    "POST credential_update": Form({"title": "Fresh"}, "is saved"),
    "POST credential_disconnect": Form(shows="is disconnected"),
    "POST credential_delete": Form(shows="is deleted"),
    "POST accounts_connect": Form({"token": "typed-secret"}, "is connected"),
    "POST accounts_disconnect": Form(shows="is disconnected"),
    # Toolkits
    "POST toolkit_create": Form({"name": "fresh"}, "fresh"),
    "POST toolkit_create find": Form(shows="word_tool", writes=False),
    "POST toolkit_create tools-q": Form({"tools-q": "word"}, "word_tool", writes=False),
    "POST toolkit_update": Form({"description": "Fresh"}, "Fresh"),
    "POST toolkit_update preview": Form({"description": "Fresh"}, "What will change", writes=False),
    "POST toolkit_update find": Form(shows="word_tool", writes=False),
    "POST toolkit_update tools-q": Form({"tools-q": "word"}, "word_tool", writes=False),
    "POST toolkit_publish": Form({"audience": "address"}, "is published as number"),
    "POST toolkit_agents": Form(shows="may load"),
    "GET publication_list": Form({"q": "word"}, "word_kit"),
    "POST toolkit_delete": Form(shows="Agents use word_kit", writes=False),
    # Providers
    "POST price_model": Form({"input": "1.5", "output": "2", "note": "Fresh"}, "has a price of its own"),
    "POST price_public": Form(shows="the public price of"),
    "POST price_remove": Form(shows="is taken back"),
    "POST provider_create": Form({"name": "Fresh", "model_name": "fresh-model", "context_window": "8000"}, "Fresh"),
    "POST provider_update": Form({"name": "Fresh", "base_url": ""}, "Fresh"),
    "POST provider_delete": Form(shows="is removed"),
    "POST model_create": Form({"name": "fresh", "context_window": "8000"}, "fresh"),
    "POST model_update": Form({"context_window": "9000"}, "is saved"),
    "POST provider_test": Form(shows="Reading"),
    "POST provider_models_add": Form({"names": ["word-provider-listed"]}, "1 model added"),
    "POST model_forget": Form(shows="Forgotten"),
    "POST model_test": Form(shows="Testing"),
    "POST model_delete": Form(shows="is removed"),
    # Policies, runtime settings, approvals
    "POST policy_update": Form({"also_allow": "word_*"}, "What will change", writes=False),
    "POST policy_update preview": Form({"deny": "word_*"}, "What will change", writes=False),
    "POST policy_update look": Form({"deny": "word_*"}, "denies word_*", writes=False),
    "POST policy_provider_update": Form({"also_allow": "word_*"}, "What will change", writes=False),
    "POST policy_provider_update preview": Form({"deny": "word_*"}, "What will change", writes=False),
    "POST policy_provider_update look": Form({"deny": "word_*"}, "denies word_*", writes=False),
    "POST policy_profile_create": Form({"name": "fresh", "patterns": "word_*"}, "fresh is saved"),
    "POST policy_profile_update": Form({"patterns": "word_*"}, "is saved"),
    "POST policy_profile_update preview": Form({"patterns": "word_*"}, "What will change", writes=False),
    "POST policy_profile_delete": Form(shows="is removed"),
    "POST runtime_organisation": Form({"pattern": "shell", "knob_timeout_sec": "9"}, "The settings are saved"),
    "POST runtime_organisation shared": Form({"profile": "zeus"}, "The settings are saved"),
    "POST runtime_organisation_remove": Form(shows="is removed"),
    "POST runtime_provider": Form({"pattern": "shell", "knob_timeout_sec": "9"}, "The settings are saved"),
    "POST runtime_provider shared": Form({"profile": "zeus"}, "The settings are saved"),
    "POST runtime_provider_remove": Form(shows="is removed"),
    "POST runtime_agent": Form({"pattern": "shell", "knob_timeout_sec": "9"}, "The settings are saved"),
    "POST runtime_agent shared": Form({"profile": "zeus"}, "The settings are saved"),
    "GET runtime_find": Form({"tool": "{name}"}, "word_tool"),
    "GET runtime_find agent": Form({"agent": "{agent}"}, "word"),
    "GET runtime_tool": Form({"agent": "{agent}"}, "word_tool"),
    "POST approval_approve": Form(shows="Approved"),
    "POST approval_approve remember=session": Form(shows="Approved"),
    "POST approval_approve remember=hours": Form({"hours": "1"}, "Approved"),
    "POST approval_deny": Form({"proposal": "Fresh"}, "Fresh"),
    "POST approval_answer action=accept": Form({"field-0": "Fresh"}),
    "POST approval_answer action=decline": Form(),
    "POST approval_answer action=cancel": Form(),
    "POST approval_respond": Form({"response": "Fresh"}, "Fresh"),
    "POST approval_consent_revoke": Form(shows="Revoked"),
    "POST approval_rule_create": Form({"tool_pattern": "word_*"}, "Saved"),
    "POST approval_rule_create preview": Form({"tool_pattern": "word_*"}, "word_*", writes=False),
    "POST approval_rule_edit": Form({"tool_pattern": "word_*"}, "Saved"),
    "POST approval_rule_edit preview": Form({"tool_pattern": "word_*"}, "word_*", writes=False),
    "POST approval_rule_delete": Form(shows="Removed"),
    # Hooks
    "GET hook_list": Form(shows="word"),
    "POST hook_update": Form({"name": "Fresh"}, "Fresh is saved"),
    "POST hook_delete": Form(shows="is removed"),
    # Roles, grants, requests, Explain
    "POST role_create": Form({"name": "Fresh"}, "Fresh"),
    "POST role_create preview": Form({"name": "Fresh", "slug": "fresh"}, "What will change", writes=False),
    "POST role_detail": Form({"name": "Fresh"}, "Fresh"),
    "POST role_detail preview": Form({"mode": "none"}, "What will change", writes=False),
    "POST role_delete": Form(shows="is removed"),
    "POST role_create find": Form({"member_q": "alice"}, "Alice", writes=False),
    "POST role_detail find": Form({"member_q": "alice"}, "Alice", writes=False),
    "GET role_matrix": Form({"q": "word"}, "word"),
    "POST role_matrix": Form({"collect": True, "{listed}:c:{category}:": "allow"}, "What will change", writes=False),
    "POST role_matrix preview": Form(
        {"collect": True, "{listed}:c:{category}:": "allow"}, "What will change", writes=False
    ),
    "GET member_tools": Form({"q": "nothing-of-that-name"}, "No tool matches"),
    "GET grant_list": Form({"q": "word"}, "word"),
    "POST grant_create": Form(
        {"member": "{email}", "effect": "deny", "category": "{category}", "until": "tonight", "reason": "Fresh"},
        "Fresh",
    ),
    "POST grant_revoke": Form(),
    "POST member_roles": Form({"roles": ["{listed}"]}, "What will change", writes=False),
    "POST member_grant": Form({"until": "tonight", "reason": "Fresh"}, "Saved:"),
    "POST request_list": Form({"category": "{empty_category}", "reason": "Fresh"}, "Fresh"),
    "POST request_grant": Form({"until": "1h"}, "Granted for 1 hour"),
    "POST request_refuse": Form({"answer": "Fresh"}, "Refused"),
    "POST request_withdraw": Form(shows="Withdrawn"),
    "GET explain q": Form({"q": "word"}, "word_tool"),
    "GET explain": Form(shows="word agent sends"),
    # Chats
    "POST session_list": Form(),
    "POST session_list agent": Form(),
    "GET tool_file_list": Form(shows="Tool files"),
    "GET usage": Form(shows="There is nothing to draw for this choice"),
    "GET session_list": Form({"q": "talk"}, "talk"),
    "POST session_update": Form({"title": "Fresh"}, "Fresh"),
    "POST session_delete": Form(shows="is deleted"),
    "POST turn_create": Form({"message": "hello fresh"}, "hello fresh"),
    "POST turn_create without_tools": Form({"message": "quick fresh"}, "Quick question: sent without tools"),
    "POST session_tools_switch tools_off": Form(shows="Tools are off in this session"),
    "POST budget_create": Form({"name": "Fresh", "limit": "1,000"}, "Fresh"),
    "POST budget_update": Form({"name": "Fresh"}, "Fresh"),
    "POST budget_switch": Form(shows="is off"),
    "POST budget_delete": Form(shows="Removed"),
    "POST budget_reset": Form(shows="Reset"),
    "POST budget_top_up": Form({"amount": "250"}, "Added 250 tok"),
    "POST organisation_settings": Form({"name": "Fresh"}, "Saved"),
    "POST budget_rules": Form({"time_zone": "Asia/Tokyo"}, "Asia/Tokyo"),
    "POST schedule_list": Form({"name": "Fresh", "message": "Fresh", "cron": "0 9 * * *"}, "Fresh"),
    "POST schedule_update": Form({"name": "Fresh", "cron": "0 9 * * *", "timezone": "UTC"}, "Fresh"),
    "POST schedule_switch": Form(),
    "POST schedule_delete": Form(),
    "POST turn_cancel": Form(shows="Stopped by Alice"),
    "POST turn_create alone": Form(shows="word ended"),
    "POST session_load": Form({"toolkit": "{idle_toolkit}"}),
    "POST session_load category": Form({"category": "{category}"}),
    "POST session_unload": Form(),
    "POST session_share": Form(),
    "POST explain_fix": Form(shows="off_tool is switched on."),
    # Your data
    "GET data_list": Form({"q": "word"}, "word"),
    "POST data_create": Form({"title": "Fresh"}, "Fresh"),
    "POST data_record": Form({"title": "Fresh"}, "Fresh"),
    "POST data_switch": Form(),
    "POST data_delete": Form(),
}

#: Forms that a device fills in, or that stand in a longer walk, and the test that sends them.
ELSEWHERE = {
    "POST toolkit_export": "tests/capabilities/agents/sharing/test_sharing_browser.py",  # a download
    "POST browser_list": "tests/capabilities/running/push/test_push_browser.py",
    "POST mfa_login_webauthn": "tests/tenants/test_factors.py",
    "POST mfa_add_webauthn": "tests/tenants/test_factors.py",
    # A link into the matrix whose open category has no cell: sent as it is, it says that nothing was changed (422).
    "POST role_matrix alone": "POST role_matrix",
    "POST role_matrix preview alone": "POST role_matrix preview",
    "POST mfa_generate_recovery_codes": "test_an_app_is_set_up_asked_for_and_switched_off_again",
    "POST mfa_authenticate": "test_an_app_is_set_up_asked_for_and_switched_off_again",
    "POST mfa_deactivate_totp": "test_an_app_is_set_up_asked_for_and_switched_off_again",
}

#: Pages that are no HTML, or never end.
NO_PAGES = {
    "audit_csv",
    "session_export",
    "usage_csv",
    "account_logout",
    "healthz",
    "readyz",
    "metrics",
    "api-schema",
    "api-docs",
    "calendar_feed",
    "push_worker",
    "oauth_client",
    "file_download",
    "turn_stream",
}

HOW = """
{key} is on the page {page} and has no entry. Add one line to FORMS in tests/test_forms.py, such as
    "{key}": Form({{{fields}}}, "text on the page afterwards"),"""

FIND = """() => {
  const found = [];
  const add = (element, method, address, button) => {
    const form = element.closest("form") || element.form || document;
    const names = [...form.querySelectorAll("[name]")]
      .filter(each => !["hidden", "submit"].includes(each.type)).map(each => each.name);
    const path = new URL(address || location.href, location.href).pathname;
    found.push({method: method.toUpperCase(), path, button, names: [...new Set(names)]});
    element.dataset.form = String(found.length - 1);
  };
  for (const form of document.querySelectorAll("form")) {
    const action = form.getAttribute("action"), method = form.getAttribute("method") || "get";
    const buttons = [...form.elements].filter(each => each.type === "submit" && each.ariaHidden !== "true");
    for (const button of buttons)
      add(button, button.getAttribute("formmethod") || method, button.getAttribute("formaction") || action,
          buttons.some(each => each !== button && button.name && each.name === button.name)
            ? `${button.name}=${button.value}` : button.name);
    if (!buttons.length) add(form, method, action, "");
  }
  for (const method of ["post", "put", "patch", "delete"])
    for (const element of document.querySelectorAll(`[hx-${method}]`))
      if (element.dataset.form === undefined && element.tagName !== "FORM")
        add(element, method, element.getAttribute(`hx-${method}`), element.name || "");
  return found;
}"""


@dataclass(frozen=True)
class Found:
    key: str
    page: str
    path: str
    number: int
    #: Whether it is there for whoever is not signed in.
    is_outside: bool
    names: tuple[str, ...]


def forms_on(page: Page, name: str, path: str, is_outside: bool = False) -> list[Found]:
    """The forms of the open page; each submit button with an address or name of its own counts as one."""
    found = []
    for number, each in enumerate(page.evaluate(FIND)):
        route = name_of(each["path"]) or each["path"]
        key = " ".join(filter(None, (each["method"], route, each["button"])))
        found.append(Found(key, name, path, number, is_outside, tuple(each["names"])))
    return found


def load_parts(page: Page) -> None:
    """Have the parts of the page that come when they are seen, and wait for them."""
    if page.locator(PARTS).count():
        page.wait_for_load_state("load")  # htmx is there
        page.evaluate(f"""() => document.querySelectorAll("{PARTS}").forEach(each => htmx.trigger(each, "revealed"))""")
        page.wait_for_function("() => !document.querySelector('.htmx-request')")


PARTS = "[hx-trigger='revealed']"

#: WCAG 2.2, levels A and AA, and what axe-core calls best practice; the second time in the other theme, for contrast.
AXE = """async (script) => {
  if (!window.axe) (0, eval)(script);
  const tags = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"];
  const html = document.documentElement, theme = html.dataset.bsTheme;
  const light = await axe.run(document, {runOnly: tags, resultTypes: ["violations"]});
  html.dataset.bsTheme = theme === "dark" ? "light" : "dark";
  const dark = await axe.run(document, {runOnly: {type: "rule", values: ["color-contrast"]}});
  html.dataset.bsTheme = theme;
  const why = node => [...node.any, ...node.all, ...node.none][0]?.message;
  return [...light.violations, ...dark.violations].flatMap(
    rule => rule.nodes.map(node => `${rule.id}: ${node.target.join(" ")}: ${node.html.slice(0, 150)}: ${why(node)}`));
}"""


@cache
def axe_core() -> str:
    return files("axe_playwright_python").joinpath("axe.min.js").read_text()


def barriers(page: Page) -> list[str]:
    """What axe-core finds on the open page, as `rule: selector: element: message`."""
    found: list[str] = page.evaluate(AXE, axe_core())
    return found


@dataclass
class Walk:
    """Alice's browser, her rows, and the database to begin with."""

    context: BrowserContext
    #: Of whoever is not signed in.
    outside: BrowserContext
    side: OrganisationRows
    database: Path
    before: sqlite3.Connection
    cookies: Any
    found: dict[str, Found] = field(default_factory=dict)
    #: Rules of axe-core that a page breaks, by the page's name.
    barriers: dict[str, set[str]] = field(default_factory=dict)

    def restore(self) -> None:
        with closing(sqlite3.connect(self.database, timeout=20)) as live:
            self.before.backup(live)
        self.context.clear_cookies()
        self.context.add_cookies(self.cookies)
        self.outside.clear_cookies()

    def visit(self, page: Page, name: str, path: str, *, is_outside: bool = False) -> None:
        page.goto(path, wait_until="domcontentloaded")
        load_parts(page)
        is_part = not page.locator("main").count()  # of a page that was visited, or will be
        if not is_part:
            self.barriers.setdefault(name, set()).update(barriers(page))
        for each in forms_on(page, name, path, is_outside):
            first = self.found.setdefault(each.key, each)
            if not is_part and not {*first.names} & {*each.names} and first.names != each.names:
                self.found.setdefault(f"{each.key} {each.names[0] if each.names else 'alone'}", each)

    def context_of(self, found: Found) -> BrowserContext:
        return self.outside if found.is_outside else self.context


@dataclass(frozen=True)
class Filled:
    """A copy of the tests' database with Acme in it, the names of its rows, and pages beside those of ROUTES."""

    database: sqlite3.Connection
    side: OrganisationRows
    #: Name of a page, and its path: for Alice, and for whoever is not signed in.
    pages: tuple[tuple[str, str], ...]
    outside: tuple[tuple[str, str], ...]
    #: For Alice too, with forms that share an address with one found before.
    more_pages: tuple[tuple[str, str], ...]


@pytest.fixture(scope="module")
def filled(django_db_setup: None, django_db_blocker: Any) -> Filled:
    empty, full = sqlite3.connect(":memory:"), sqlite3.connect(":memory:")
    with django_db_blocker.unblock():
        connection.close()
        with closing(sqlite3.connect(connection.settings_dict["NAME"], timeout=20)) as live:
            live.backup(empty)
            try:
                filled = fill_more(full)
                live.backup(full)
            finally:
                connection.close()
                empty.backup(live)
    return filled


def fill_more(database: sqlite3.Connection) -> Filled:
    """Beside the rows of `fill`: what makes pages show the rest of their forms."""
    with transaction.atomic():
        alice = make_member(make_organisation("acme"), "alice", Access.ADMIN)
        side = fill(alice, "word")
        make_tool(alice.organisation, "calculator")
        with organisation_scope(alice.organisation):
            colleague = Membership.objects.get(user__email="word-colleague@example.com")
            AdminRight.objects.create(organisation=alice.organisation, membership=colleague, right=Right.AUDIT)
            joining = invite("newcomer@example.com", Access.MEMBER, actor=alice)[1]
            switching = invite("somebody@example.com", Access.MEMBER, actor=alice)[1]
            resetting = issue_reset_link(colleague, actor=alice)[1]
            agent, other = Agent.objects.get(slug=side.agent), make_agent(alice.organisation, slug="other")
            loaded = make_session(alice, agent, title="word loaded")
            make_turn(loaded, "word ended", status=TurnStatus.FAILED, agent=other, error_message="word")
            load_for(LoadTarget(loaded, agent), actor=alice, category=side.category)
            mark = ToolRefusal.objects.get()
            calculator = Tool.objects.get(name="calculator")
            assert calculator.current_version is not None
            mark.pk, mark.public_id = None, uuid4()
            mark.tool, mark.version = calculator, calculator.current_version
            mark.save(force_insert=True)
            give_tool(other, make_tool(alice.organisation, "off_tool"))
            Tool.objects.filter(name="off_tool").update(is_enabled=False)
            AgentToolkit.objects.create(
                organisation=alice.organisation, agent=agent, toolkit=Toolkit.objects.get(name=side.idle_toolkit)
            )
        charlie = make_member(make_organisation("globex"), "charlie", Access.ADMIN)
        with organisation_scope(charlie.organisation):
            confirming = invite(alice.user.email, Access.MEMBER, actor=charlie)[1]
    pages = (
        ("tool_try", reverse("tool_try", args=["acme", "calculator"])),
        ("service_update", reverse("service_update", args=["acme", "searxng"])),
        ("member_tools", reverse("member_tools", args=["acme", alice.public_id]) + "?show=all&q=calculator"),
        ("provider_preset", f"{reverse('provider_create', args=['acme'])}?vendor=openai"),
        ("service_ready", reverse("service_update", args=["acme", "wikipedia"])),
        ("join", reverse("join_link", args=[switching])),
        ("tool_version", reverse("tool_version", args=["acme", side.python_tool, side.retired])),
        ("tool_detail", reverse("tool_detail", args=["acme", side.kept_back_tool])),
        ("tool_detail", reverse("tool_detail", args=["acme", "calculator"])),
        ("module_detail", reverse("module_detail", args=["acme", side.idle_module])),
        ("module_version", reverse("module_version", args=["acme", side.idle_module, side.retired])),
    )
    more_pages = (
        ("join", reverse("join_link", args=[confirming])),
        ("session_detail", reverse("session_detail", args=["acme", loaded.pk])),
        ("explain", f"{reverse('explain', args=['acme'])}?agent=other&q=off_tool"),
        ("tool_list", f"{reverse('tool_list', args=['acme'])}?q=word&sort=tokens"),
    )
    outside = (
        ("account_login", reverse("account_login")),
        ("join", reverse("join_link", args=[joining])),
        ("reset", reverse("reset_link", args=[resetting])),
    )
    return Filled(database, side, pages, outside, more_pages)


@contextmanager
def server(folder: Path, port: int) -> Iterator[None]:
    """The web server as it runs, on a database of its own."""
    env = os.environ | {
        "DJANGO_SETTINGS_MODULE": "tests.live_settings",
        "TOOLHUB_DATA_DIR": str(folder),
        "SECRET_KEY": settings.SECRET_KEY,
        "TOOLHUB_FIELD_KEYS": ",".join(settings.TOOLHUB_FIELD_KEYS),
        "TOOLHUB_LOG_LEVEL": "WARNING",
    }
    with (folder / "log").open("wb") as log:
        command = uvicorn("toolhub.asgi:application", "127.0.0.1", port)
        process = subprocess.Popen(command, cwd=ROOT, env=env, stdout=log, stderr=subprocess.STDOUT)
    try:
        wait_for(lambda: is_listening(port) or process.poll() is not None, 60)
        yield
    finally:
        process.kill()
        process.wait()


def is_listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(scope="module")
def walk(filled: Filled, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Walk]:
    """Every page visited once."""
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "1"  # playwright runs a loop in this thread
    folder, port = tmp_path_factory.mktemp("forms"), free_port()
    database = folder / "toolhub.sqlite3"
    with closing(sqlite3.connect(database)) as live:
        filled.database.backup(live)
    with server(folder, port), chromium() as browser:
        # Without motion no colour is on its way while it is measured.
        context, outside = (
            browser.new_context(base_url=f"http://localhost:{port}", reduced_motion="reduce") for _ in range(2)
        )
        page, stranger = context.new_page(), outside.new_page()
        page.goto("/accounts/login/")
        sign_in(page, "alice@example.com", PASSWORD)
        page.wait_for_url("**/o/acme/**")
        page.goto("/accounts/reauthenticate/")  # or pages that ask for the password again would show no form of theirs
        page.get_by_label("Password").fill(PASSWORD)
        page.get_by_role("button", name="Confirm").click()
        page.wait_for_load_state()
        with closing(sqlite3.connect(database, timeout=20)) as live:
            live.backup(filled.database)  # with her login
        walk = Walk(context, outside, filled.side, database, filled.database, context.cookies())
        for name, path in (*filled.pages, *pages_of_routes(filled.side)):
            walk.visit(page, name, path)
        for name, path in filled.outside:
            walk.visit(stranger, name, path, is_outside=True)
        for name, path in filled.more_pages:
            walk.visit(page, name, path)
        yield walk
    del os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"]


def pages_of_routes(side: OrganisationRows) -> Iterator[tuple[str, str]]:
    """Name and path of each address that answers GET with a page, or sends to one."""
    for name in KNOWN:
        address, route = ADDRESSES[name], ROUTES[name]
        if not address.is_api and name not in NO_PAGES and any(is_plain_get(way) for way in route.asks):
            yield name, address.url(side, route)


def is_plain_get(way: Ask) -> bool:
    return way.method == "GET" and way.status in (200, 302) and way.query is None


def test_every_form_has_an_entry(walk: Walk) -> None:
    missing = [
        HOW.format(key=key, page=each.page, fields=", ".join(f'"{name}": ""' for name in each.names))
        for key, each in walk.found.items()
        if key not in FORMS and key not in ELSEWHERE
    ]

    assert missing == [], "\n".join(missing)


def test_no_page_has_a_barrier(walk: Walk) -> None:
    assert len(walk.barriers) > 100
    assert {name: sorted(found) for name, found in walk.barriers.items() if found} == {}


@pytest.mark.parametrize("key", FORMS)
def test_a_form_is_sent_in_a_browser(walk: Walk, key: str) -> None:
    assert key in walk.found, f"No page has the form {key} any more: take its entry out of FORMS."
    form, found = FORMS[key], walk.found[key]
    walk.restore()
    page = walk.context_of(found).new_page()
    page.set_default_timeout(10_000)
    heard = complaints(page)
    page.on("response", lambda each: heard.append(f"{each.status} {each.url}") if each.status >= 400 else None)
    page.on("dialog", lambda dialog: dialog.accept())
    page.goto(found.path)
    load_parts(page)
    page.evaluate("document.querySelectorAll('main details').forEach(each => each.open = true)")
    if page.locator("[sse-connect]").count():
        page.wait_for_timeout(1_000)  # it swaps what it shows once, at its beginning
    same = [each for each in forms_on(page, found.page, found.path) if each.key == found.key]
    number = next((each.number for each in same if each.names == found.names), None)
    assert number is not None, f"{key} with {found.names} is not on {page.url} now: {page.locator('body').inner_text()}"
    element = page.locator(f"[data-form='{number}']")
    element.evaluate(CLOSE_OTHER_MENUS)

    with closing(sqlite3.connect(walk.database)) as look:
        before = version(look)
        answer = submit(page, element, found.key, {fill_in(k, walk): v for k, v in form.fields.items()}, walk)
        page.wait_for_load_state()
        if form.shows:
            page.wait_for_function(SHOWS, arg=fill_in(form.shows, walk))

        assert answer.status == form.status
        assert heard == []
        assert (before != version(look)) == (form.writes if form.writes is not None else key.startswith("POST"))
    page.close()


def test_an_app_is_set_up_asked_for_and_switched_off_again(walk: Walk) -> None:
    walk.restore()
    page = walk.context.new_page()
    page.set_default_timeout(10_000)
    heard = complaints(page)
    page.goto("/accounts/2fa/totp/activate/")
    page.get_by_label("code").fill(code_of(page.locator("#secret").inner_text()))
    page.get_by_role("button", name="Switch on").click()
    page.wait_for_url("**/recovery-codes/")

    page.goto("/accounts/2fa/recovery-codes/generate/")
    page.get_by_role("button", name="Make new codes").click()
    page.wait_for_url("**/recovery-codes/")
    code = page.locator("main").inner_text()
    page.goto("/accounts/logout/")
    page.locator("main").get_by_role("button", name="Sign out").click()
    sign_in(page, "alice@example.com", PASSWORD)
    page.get_by_label("code").fill(RECOVERY_CODE.findall(code)[0])
    page.get_by_role("button", name="Sign in", exact=True).click()
    page.wait_for_url("**/o/acme/")

    page.goto("/accounts/2fa/totp/deactivate/")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Confirm").click()
    page.get_by_role("button", name="Switch off").click()
    page.wait_for_url("**/accounts/2fa/")
    assert page.get_by_text("Off").is_visible()
    assert heard == []
    page.close()


RECOVERY_CODE = re.compile(r"\b[0-9a-f]{8}\b")

#: As a click elsewhere does: the page of the walk has all of them open, over what is below them.
CLOSE_OTHER_MENUS = """field => {
  for (const menu of document.querySelectorAll("details.menu[open]")) if (!menu.contains(field)) menu.open = false;
}"""

SHOWS = """text => document.body.innerText.includes(text)
  || [...document.querySelectorAll("input, textarea")].some(each => each.value.includes(text))"""


def version(look: sqlite3.Connection) -> int:
    """Another number after each write of the server."""
    return int(look.execute("PRAGMA data_version").fetchone()[0])


def fill_in(text: str, walk: Walk) -> str:
    return text.format(**vars(walk.side)) if "{" in text else text


def submit(page: Page, element: Locator, key: str, fields: Mapping[str, Any], walk: Walk) -> Response:
    """Fill in and send; the last answer of the page or part that came back."""
    method, route, *button = key.split()
    is_button = element.evaluate("each => each.type === 'submit' || each.tagName === 'BUTTON'")
    is_form = element.evaluate("each => each.tagName === 'FORM'")
    form = element if is_form else element.locator("xpath=ancestor::form")
    if not is_form and element.get_attribute("form"):
        form = page.locator(f"#{element.get_attribute('form')}")

    def is_it(response: Response) -> bool:
        asked = response.request
        here = asked.url.partition("?")[0].partition("//")[2].partition("/")[2]
        return asked.method == method and name_of(f"/{here}") == route

    def send() -> None:
        for name, value in fields.items():
            if not is_button and not is_form and name == button[0]:
                element.press_sequentially(str(value))
            else:
                put(field_of(form, name), value, walk)
        if is_form:
            element.evaluate("each => each.requestSubmit()")
        elif is_button and element.is_visible():
            element.click()
        elif is_button:
            element.evaluate("each => each.form.requestSubmit(each)")

    if not is_swapped(element, method):
        with page.expect_navigation() as navigation:
            send()
        assert navigation.value is not None
        return navigation.value
    with page.expect_response(is_it) as waiting:
        send()
    return waiting.value


def is_swapped(element: Locator, method: str) -> bool:
    """Whether htmx sends it, and puts the answer into the page."""
    closest = f"each => !!each.closest('[hx-{method.lower()}]') || !!each.form?.matches('[hx-{method.lower()}]')"
    return bool(element.evaluate(closest))


def field_of(form: Locator, name: str) -> Locator:
    """In the form, or elsewhere on the page with a `form` attribute."""
    inside = form.locator(f"[name='{name}']")
    return inside if inside.count() else form.page.locator(f"main [name='{name}']")


def name_of(path: str) -> str | None:
    try:
        return resolve(path).url_name
    except Resolver404:
        return None


def put(element: Locator, value: str | bool | list[str], walk: Walk) -> None:
    """One field's value, as its kind of element takes it; "{code}" is what the app of the key on the page shows."""
    if value == "{code}":
        value = code_of(element.page.locator("#secret").inner_text())
    kind = element.first.evaluate("each => each.type")
    if isinstance(value, list) and kind == "checkbox":
        wanted = {fill_in(each, walk) for each in value}
        for each in element.all():
            each.set_checked(each.get_attribute("value") in wanted)
    elif isinstance(value, bool):
        element.first.set_checked(value)
    elif kind.startswith("select"):
        element.first.select_option([fill_in(each, walk) for each in ([value] if isinstance(value, str) else value)])
    elif kind == "button":  # a cell of the matrix, which takes the value that it has
        assert element.first.get_attribute("value") == value
        element.first.click()
    elif kind == "radio":
        element.and_(element.page.locator(f"[value='{fill_in(str(value), walk)}']")).check()
    else:
        element.first.fill(fill_in(str(value), walk))
