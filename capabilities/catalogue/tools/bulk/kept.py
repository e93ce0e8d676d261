"""The form below the list of tools as it was sent, for the next page of the list after a refusal."""

from __future__ import annotations

from django.http import HttpRequest

#: Its key in the login session, and the fields that the form sets.
KEPT, FIELDS = "tools_form", ("effect", "category", "ask", "in_untrusted")
#: Ticks that are kept: as many as the login session should hold.
MOST = 200


def keep_form(request: HttpRequest) -> None:
    """Keep ticks and fields until the next page of the list."""
    fields = {name: request.POST.get(name, "")[:64] for name in FIELDS}
    request.session[KEPT] = {"names": request.POST.getlist("names")[:MOST], **fields}


def kept_form(request: HttpRequest) -> dict[str, object]:
    """Return the form that was refused just now: `names` that were ticked, and the fields; empty for none."""
    found = request.session.pop(KEPT, None)
    return found if isinstance(found, dict) else {}
