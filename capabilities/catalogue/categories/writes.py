"""The audited writes of categories, and of which one a tool is in."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from django.db.models import Q

from capabilities.common.names import check_name_free, release_key
from capabilities.common.refused import RESERVED, ChangeRefused, not_there
from capabilities.common.registry_version import touch_registry
from capabilities.common.rights import check_rank, configuration_write, require
from capabilities.common.short_names import CATEGORY_NAME, free_short_name
from capabilities.models import Category, Tool
from capabilities.running.registry import CategorySpec
from toolhub.tenants.audit.writes import record
from toolhub.tenants.models import AuditEntry, Membership, Organisation, Right

MAX_KEYWORDS = 200
MAX_KEYWORD = 60


@dataclass(frozen=True)
class CategoryContent:
    """Content of a category's form; its name is given once."""

    title: str
    description: str = ""
    keywords: tuple[str, ...] = ()
    is_core: bool = False


@configuration_write()
def create_category(name: str, content: CategoryContent, *, actor: Membership) -> Category:
    """Create a category. Without a name it is made from the title. Raises ChangeRefused for a name in use, or one that
    cannot be."""
    require(actor, Right.CATALOGUE)
    name = name or free_short_name(Category.every.all(), "name", content.title, separator="_")
    if not CATEGORY_NAME.match(name) or name in RESERVED:
        raise ChangeRefused("name", "Use 1 to 64 characters of a-z, A-Z, 0-9, _ and -; not “new”.")
    check_name_free(Category.every.all(), "a category", name)
    category = Category(organisation_id=actor.organisation_id, name=name)
    _write(category, content)
    record("category.create", category, actor=actor, after={"name": name} | _audited(category))
    touch_registry(category.organisation_id)
    return category


@configuration_write()
def update_category(category: Category, content: CategoryContent, *, actor: Membership) -> Category:
    """Change a category. A right limited to the category is enough for its words; whether it is core is for the whole
    right. Raises PermissionDenied without it; ChangeRefused for content that is not taken."""
    require(actor, Right.CATALOGUE, [category.name] if content.is_core == category.is_core else [])
    before = _audited(category)
    _write(category, content)
    after = _audited(category)
    if before != after:
        record("category.update", category, actor=actor, before=before, after=after)
        touch_registry(category.organisation_id)
    return category


@configuration_write("category")
def delete_category(category: Category, *, actor: Membership) -> None:
    """Raises ChangeRefused while tools are in it. Rules and grants on it go with it."""
    require(actor, Right.CATALOGUE)
    if Tool.every.filter(category=category).exists():
        raise ChangeRefused("category", f"Tools are in {category}: move them first.", code="in_use")
    check_rank(actor, Membership.objects.filter(Q(grants__category=category) | Q(grant_requests__category=category)))
    record("category.delete", category, actor=actor, before={"name": category.name} | _audited(category))
    category.delete()
    touch_registry(actor.organisation_id)


@configuration_write("category")
def move_tool(tool: Tool, name: str, *, actor: Membership) -> Tool:
    """Put the tool into another category: from then on that one's rules, grants and core are the tool's.

    A limited right is enough where it is held for both. Raises PermissionDenied without it; ChangeRefused for an
    unknown category.
    """
    category = Category.objects.filter(name=name).first()
    if category is None:
        raise not_there("category", "category", name)
    if category.pk == tool.category_id:
        return tool
    require(actor, Right.CATALOGUE, [tool.category.name, category.name])
    before, tool.category = tool.category.name, category
    tool.save(update_fields=["category"])
    record("tool.move", tool, actor=actor, before={"category": before}, after={"category": category.name})
    touch_registry(tool.organisation_id)
    return tool


def install_categories(organisation: Organisation, specs: Iterable[CategorySpec]) -> dict[str, Category]:
    """Add the built-in categories that are missing, and bring the keywords of the others up to the code's.

    Keywords that somebody added stay, and those that somebody removed stay away. Title, description and core are never
    changed. Returns every category of the organisation by name. One query where nothing is new.
    """
    categories = {category.name: category for category in Category.every.filter(organisation=organisation)}
    for spec in specs:
        category = categories.get(spec.name)
        if category is None:
            categories[spec.name] = _install(organisation, spec)
        elif category.installed_keywords != list(spec.keywords):
            _bring_keywords(category, spec)
    return categories


def _install(organisation: Organisation, spec: CategorySpec) -> Category:
    release_key(Category.every.filter(organisation=organisation), spec.name)
    category = Category.objects.create(
        organisation=organisation,
        name=spec.name,
        title=spec.title,
        description=spec.description,
        keywords=list(spec.keywords),
        installed_keywords=list(spec.keywords),
        is_core=spec.is_core,
    )
    record("category.create", category, actor=None, after={"name": spec.name, "is_core": spec.is_core})
    return category


def _bring_keywords(category: Category, spec: CategorySpec) -> None:
    """Make the changes to the category's keywords that the code made since they were installed."""
    installed = category.installed_keywords
    if installed is None:
        installed = _first_installed(category, spec)
    old, new = {word.casefold() for word in installed}, {word.casefold() for word in spec.keywords}
    before = list(category.keywords)
    kept = [word for word in before if word.casefold() not in old or word.casefold() in new]
    known = {word.casefold() for word in kept}
    added = [word for word in spec.keywords if word.casefold() not in old | known]
    category.keywords, category.installed_keywords = (kept + added)[:MAX_KEYWORDS], list(spec.keywords)
    category.save(update_fields=["keywords", "installed_keywords"])
    if category.keywords != before:
        after = {"keywords": category.keywords}
        record("category.update", category, actor=None, before={"keywords": before}, after=after)
        touch_registry(category.organisation_id)


def _first_installed(category: Category, spec: CategorySpec) -> list[str]:
    """Return the keywords that an older version of the service installed, from the audit: those before the first
    change, or what stands there now. Of a category that a member made, the code's own count as known."""
    entries = AuditEntry.objects.filter(target_type="category", target_id=str(category.public_id)).order_by("number")
    for action, actor_id, before, after in entries.values_list("action", "actor_id", "before", "after"):
        if action == "category.create" and actor_id is not None:
            return list(spec.keywords)
        if before.get("keywords") != after.get("keywords"):
            return list(before.get("keywords") or [])
    return list(category.keywords)


def clean_keywords(words: Iterable[str]) -> list[str]:
    """Return the words without white space around and in between, empty ones and repeats; case does not count."""
    found = {" ".join(word.split()).casefold(): " ".join(word.split()) for word in words}
    return [word for word in found.values() if word]


def _write(category: Category, content: CategoryContent) -> None:
    keywords = clean_keywords(content.keywords)
    if len(keywords) > MAX_KEYWORDS:
        raise ChangeRefused("keywords", f"A category has at most {MAX_KEYWORDS} keywords.")
    if any(len(word) > MAX_KEYWORD for word in keywords):
        raise ChangeRefused("keywords", f"A keyword has at most {MAX_KEYWORD} characters.")
    category.title, category.description = content.title, content.description
    category.keywords, category.is_core = keywords, content.is_core
    category.save()


def _audited(category: Category) -> dict[str, Any]:
    return {
        "title": category.title,
        "description": category.description,
        "keywords": category.keywords,
        "is_core": category.is_core,
    }
