"""A new version's keywords reach the organisations that are there, and leave what an operator edited."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from pytest_django import DjangoAssertNumQueries

from capabilities.catalogue.categories.writes import (
    CategoryContent,
    create_category,
    install_categories,
    update_category,
)
from capabilities.models import Category
from capabilities.running.registry import CategorySpec
from tests.capabilities.test_pages import give_right
from toolhub.tenants.models import AuditEntry, Membership, Organisation, Right

pytestmark = pytest.mark.django_db

GIT = CategorySpec("git", "Git", "Looks into a repository.", ("git", "commit", "branch"))
NEWER = replace(GIT, keywords=("git", "branch", "repo", "repository"))


def keywords_of(organisation: Organisation) -> list[str]:
    keywords: list[str] = Category.objects.get(organisation=organisation, name="git").keywords
    return keywords


def test_cx_23_what_nobody_edited_gets_the_new_list_on_record(in_acme: Organisation) -> None:
    install_categories(in_acme, [GIT])
    before = Organisation.objects.get(pk=in_acme.pk).registry_version

    install_categories(in_acme, [NEWER])

    assert keywords_of(in_acme) == list(NEWER.keywords)
    entry = AuditEntry.objects.filter(action="category.update").get()
    assert (entry.actor, entry.before, entry.after) == (
        None,
        {"keywords": ["git", "commit", "branch"]},
        {"keywords": ["git", "branch", "repo", "repository"]},
    )
    assert Organisation.objects.get(pk=in_acme.pk).registry_version == before + 1


def test_cx_23_what_was_added_stays_and_what_was_removed_stays_away(in_acme: Organisation, alice: Membership) -> None:
    install_categories(in_acme, [GIT])
    category = Category.objects.get(name="git")
    update_category(category, CategoryContent("Ours", keywords=("Gitlab", "commit", "REPO", "git")), actor=alice)

    install_categories(in_acme, [NEWER])
    install_categories(in_acme, [NEWER])

    assert keywords_of(in_acme) == ["Gitlab", "REPO", "git", "repository"]
    assert Category.objects.get(name="git").title == "Ours"


@pytest.mark.parametrize(
    ("edits", "keywords"), [([], NEWER.keywords), (["git ours", "git mine"], ["git", "mine", "repo", "repository"])]
)
def test_cx_23_an_older_organisation_is_compared_with_what_its_audit_tells(
    in_acme: Organisation, alice: Membership, edits: list[str], keywords: Sequence[str]
) -> None:
    """Its rows do not say which keywords came with the service."""
    install_categories(in_acme, [GIT])
    Category.objects.update(installed_keywords=None)
    for words in edits:
        content = CategoryContent("Git", keywords=tuple(words.split()))
        update_category(Category.objects.get(name="git"), content, actor=alice)

    install_categories(in_acme, [NEWER])

    assert keywords_of(in_acme) == list(keywords)


def test_cx_23_a_member_s_own_category_of_that_name_keeps_its_words(in_acme: Organisation, alice: Membership) -> None:
    give_right(alice, Right.CATALOGUE)
    create_category("git", CategoryContent("Git", keywords=("gitlab",)), actor=alice)

    install_categories(in_acme, [GIT])

    assert keywords_of(in_acme) == ["gitlab"]


def test_a_start_with_nothing_new_reads_once(
    in_acme: Organisation, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    install_categories(in_acme, [GIT])

    with django_assert_num_queries(1):
        install_categories(in_acme, [GIT])
