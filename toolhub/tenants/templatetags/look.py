"""Small marks that every page writes the same way: icons, badges, numbers, times, form fields."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime, timedelta

from django import template
from django.apps import apps
from django.contrib.humanize.templatetags.humanize import intcomma, naturaltime
from django.forms import BoundField, CheckboxInput, CheckboxSelectMultiple, Select
from django.templatetags.static import static
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.timezone import localtime, now

from toolhub.durations import duration
from toolhub.tenants.rows.cursors import sealed_place
from toolhub.tenants.rows.money import rounded_dollars
from toolhub.tenants.times import day, day_and_time, exact

register = template.Library()

#: Icon of each state: never shown by colour alone.
STATE_ICONS = {
    "ok": "check-circle-fill",
    "run": "arrow-repeat",
    "wait": "hourglass-split",
    "bad": "x-circle-fill",
    "warn": "exclamation-triangle-fill",
    "off": "dash-circle",
}


@register.simple_tag
def icon(name: str, label: str = "") -> SafeString:
    """One icon of the sprite; hidden from screen readers unless it stands alone, with a label."""
    href = f"{static('vendor/icons.svg')}#{name}"
    if label:
        return format_html('<svg class="icon" role="img" aria-label="{}"><use href="{}"/></svg>', label, href)
    return format_html('<svg class="icon" aria-hidden="true"><use href="{}"/></svg>', href)


#: Width and height of a sparkline, in its own units.
SPARK_WIDTH, SPARK_HEIGHT = 100, 24


@register.simple_tag
def sparkline(points: Sequence[float]) -> SafeString | str:
    """A line through numbers, from left to right, that begins at 0; nothing for fewer than two, or zeros alone."""
    most = max(points, default=0)
    if len(points) < 2 or most <= 0:
        return ""
    step = SPARK_WIDTH / (len(points) - 1)
    heights = (SPARK_HEIGHT - 1 - (SPARK_HEIGHT - 2) * max(point, 0) / most for point in points)
    line = " ".join(f"{number * step:.1f},{height:.1f}" for number, height in enumerate(heights))
    return format_html(
        '<svg class="sparkline" viewBox="0 0 {} {}" preserveAspectRatio="none" aria-hidden="true">'
        '<polyline points="{}"/></svg>',
        SPARK_WIDTH,
        SPARK_HEIGHT,
        line,
    )


@register.simple_tag
def badge(state: str, text: str) -> SafeString:
    """A state with its colour, its icon and its word."""
    return format_html('<span class="badge is-{}">{}{}</span>', state, icon(STATE_ICONS[state]), text)


@register.simple_tag
def ago(moment: datetime | None) -> SafeString | str:
    """Show how long ago, or how long from now, with the exact time on hover. A time to come is rounded to the
    nearest."""
    if moment is None:
        return "never"
    return format_html(
        '<time datetime="{}" title="{}">{}</time>',
        localtime(moment).isoformat(timespec="seconds"),
        exact(moment),
        naturaltime(_rounded(moment)),
    )


register.filter("day", day)
register.filter("day_and_time", day_and_time)


def _rounded(moment: datetime) -> datetime:
    """Round a moment up, so that eight hours from now is not shown as seven, a second later."""
    remaining = moment - now()
    if remaining < timedelta(minutes=1):
        return moment
    return moment + (timedelta(minutes=30) if remaining > timedelta(hours=1) else timedelta(seconds=30))


@register.filter
def kind_words(model_name: str) -> str:
    """A kind of row in words: "language model" for languagemodel."""
    found = {model._meta.model_name: str(model._meta.verbose_name) for model in apps.get_models()}
    return found.get(model_name, model_name)


@register.filter
def sealed(key: int) -> str:
    """A key for an address, encrypted: read as it is, it would tell how many rows there are."""
    return sealed_place(key)


@register.filter
def tok(number: int | None) -> str:
    return f"{intcomma(number or 0)} tok"


@register.filter
def money(nano: int | None) -> str:
    """Billionths of a dollar for a page: $12.50, $0.0027; a dash where there is no price."""
    return "–" if nano is None else rounded_dollars(nano)


@register.filter
def without_sign(number: int) -> int:
    """Return a number without its sign, for a word that says which way it goes: "lost" and "saved"."""
    return abs(number)


@register.filter
def seconds(value: float | None) -> str:
    """Show seconds as `duration` does; nothing for None."""
    return "" if value is None else duration(value)


@register.filter
def styled(field: BoundField) -> SafeString:
    """The field's widget with its component class; described by its help and its error, which `_field.html` writes."""
    widget = field.field.widget
    if isinstance(widget, CheckboxSelectMultiple):
        return field.as_widget()
    if isinstance(widget, CheckboxInput):
        css = "form-check-input"
    else:
        css = "form-select" if isinstance(widget, Select) else "form-control"
    if field.errors:
        css += " is-invalid"
    return field.as_widget(attrs={"class": css})


@register.filter
def indented(value: object) -> str:
    """A value as JSON for people."""
    return json.dumps(value, indent=2, ensure_ascii=False)
