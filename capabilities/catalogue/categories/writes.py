"""The audited writes of categories, and of which one a tool is in."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from django.db.models import Q

from capabilities.common.refused import RESERVED, ChangeRefused, not_there
from capabilities.common.registry_version import touch_registry
from capabilities.common.rights import check_rank, configuration_write, require
from capabilities.common.short_names import free_short_name
from capabilities.models import Category, Tool
from toolhub.tenants.audit.writes import record
from toolhub.tenants.models import Membership, Right

CATEGORY_NAME = re.compile(r"^[a-zA-Z0-9][a-zA-Z0-9_-]{0,63}\Z")
MAX_KEYWORDS = 200
MAX_KEYWORD = 60


@dataclass(frozen=True)
class CategoryContent:
    """What a category's form says; its name is given once."""

    title: str
    description: str = ""
    keywords: tuple[str, ...] = ()
    is_core: bool = False


@configuration_write()
def create_category(name: str, content: CategoryContent, *, actor: Membership) -> Category:
    """Without a name it is made from the title. Raises ChangeRefused for a name in use, or one that cannot be."""
    require(actor, Right.CATALOGUE)
    name = name or free_short_name(Category.objects.all(), "name", content.title, separator="_")
    if not CATEGORY_NAME.match(name) or name in RESERVED:
        raise ChangeRefused("name", "Use 1 to 64 characters of a-z, A-Z, 0-9, _ and -; not “new”.")
    if Category.objects.filter(name=name).exists():
        raise ChangeRefused("name", f"There is a category {name} already.", code="taken")
    category = Category(organisation_id=actor.organisation_id, name=name)
    _write(category, content)
    record("category.create", category, actor=actor, after={"name": name} | _told(category))
    touch_registry(category.organisation_id)
    return category


@configuration_write()
def update_category(category: Category, content: CategoryContent, *, actor: Membership) -> Category:
    """A right limited to the category is enough for its words; whether it is core is for the whole right."""
    require(actor, Right.CATALOGUE, [category.name] if content.is_core == category.is_core else [])
    before = _told(category)
    _write(category, content)
    after = _told(category)
    if before != after:
        record("category.update", category, actor=actor, before=before, after=after)
        touch_registry(category.organisation_id)
    return category


@configuration_write("category")
def delete_category(category: Category, *, actor: Membership) -> None:
    """Raises ChangeRefused while tools are in it. Rules and grants on it go with it."""
    require(actor, Right.CATALOGUE)
    if Tool.objects.filter(category=category).exists():
        raise ChangeRefused("category", f"Tools are in {category}: move them first.", code="in_use")
    check_rank(actor, Membership.objects.filter(Q(grants__category=category) | Q(grant_requests__category=category)))
    record("category.delete", category, actor=actor, before={"name": category.name} | _told(category))
    category.delete()
    touch_registry(actor.organisation_id)


@configuration_write("category")
def move_tool(tool: Tool, name: str, *, actor: Membership) -> Tool:
    """Put the tool into another category: from then on that one's rules, grants and core are the tool's.

    A limited right is enough where it is held for both.
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


def clean_keywords(words: Iterable[str]) -> list[str]:
    """Without white space around and in between, empty ones and repeats; case does not count."""
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


def _told(category: Category) -> dict[str, Any]:
    return {
        "title": category.title,
        "description": category.description,
        "keywords": category.keywords,
        "is_core": category.is_core,
    }
