"""The page of one's own browsers that show notifications, and the script that shows them."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

from django.conf import settings
from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from capabilities.common.pages import show_refusal, status_of
from capabilities.common.refused import ChangeRefused
from capabilities.models import PushSubscription
from capabilities.running.push.forms import BrowserForm
from capabilities.running.push.queries import browsers_of
from capabilities.running.push.writes import add_browser, application_server_key, remove_browser
from capabilities.running.services.writes import shown_service
from toolhub.tenants.access import MemberRequest, member_or_404
from toolhub.tenants.models import Right
from toolhub.tenants.pages import signed_in

#: Service of the tool that notifies.
SERVICE = "web_push"


@require_http_methods(["GET", "POST"])
@signed_in
def browser_list(request: MemberRequest, org: str) -> HttpResponse:
    """One's own browsers, and the button that adds the one that shows the page."""
    member = member_or_404(request)
    form = BrowserForm(request.POST if request.method == "POST" else None)
    if form.is_valid():
        try:
            row = add_browser(member, form.browser())
        except ChangeRefused as error:
            show_refusal(form, error)
        else:
            messages.success(request, f"Notifications for you are shown in {row.label} from now on.")
            return redirect("browser_list", org)
    service = shown_service(member.organisation, SERVICE)
    context = {
        "form": form,
        "browsers": browsers_of(member),
        "server_key": application_server_key(member.organisation_id),
        "is_set_up": service is not None and service.state == "ready",
        "may_set_up": member.has_right(Right.CATALOGUE),
        "service": SERVICE,
    }
    return render(request, "capabilities/running/push/browser_list.html", context, status=status_of(form))


@require_POST
@signed_in
def browser_remove(request: MemberRequest, org: str, own_browser: UUID) -> HttpResponse:
    member = member_or_404(request)
    row = PushSubscription.objects.filter(membership=member, public_id=own_browser).first()
    if row is None:
        raise Http404("No such browser.")
    remove_browser(row, actor=member)
    messages.success(request, f"Nothing is shown in {row.label} any more.")
    return redirect("browser_list", org)


@require_GET
def worker_script(request: HttpRequest) -> HttpResponse:
    """The service worker, at the root of the site: a browser lets it show notifications for what is below it."""
    text = (Path(settings.BASE_DIR) / "static" / "push-worker.js").read_text()
    return HttpResponse(text, content_type="text/javascript", headers={"Cache-Control": "no-cache"})
