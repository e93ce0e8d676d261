from __future__ import annotations

import pytest
from django.core.exceptions import PermissionDenied

from capabilities.common.refused import ChangeRefused
from capabilities.models import ServiceSetting
from capabilities.running.registry import ServiceField, ServiceSpec, registry
from capabilities.running.services.writes import clear_service, save_service, service_values
from toolhub.tenants.models import AuditEntry, Membership, Organisation

HOME = ServiceSpec(
    "home",
    "Home",
    "Lamps.",
    (
        ServiceField("base_url", "Address"),
        ServiceField("token", "Token", is_secret=True),
        ServiceField("room", "Room", default="kitchen", is_required=False, binds_secrets=False),
    ),
)
SET = {"base_url": "https://home.example.org", "token": "very-secret-token"}


def test_a_service_is_set_up_changed_and_cleared(alice: Membership, in_acme: Organisation) -> None:
    assert save_service(HOME, {"base_url": "https://home.example.org"}, actor=alice).is_complete is False
    assert save_service(HOME, SET, actor=alice).is_complete is True
    save_service(HOME, {"base_url": SET["base_url"], "room": "hall"}, actor=alice)
    assert service_values(HOME) == SET | {"room": "hall"}

    clear_service(HOME, actor=alice)

    assert not ServiceSetting.objects.exists()
    rows = AuditEntry.objects.order_by("pk")
    assert [row.action for row in rows] == ["service.save", "service.save", "service.save", "service.clear"]
    assert "very-secret" not in str([(row.before, row.after) for row in rows])


def test_a_stored_secret_never_goes_to_another_host(alice: Membership, in_acme: Organisation) -> None:
    save_service(HOME, SET, actor=alice)

    for address in ("https://evil.example.org", "http://home.example.org", ""):
        with pytest.raises(ChangeRefused, match="Address changed: type the Token again") as refused:
            save_service(HOME, {"base_url": address}, actor=alice)
        assert refused.value.field == "values.token"
    save_service(HOME, {"base_url": "https://home.example.org/api"}, actor=alice)
    save_service(HOME, {"base_url": "https://other.example.org", "token": "another"}, actor=alice)

    assert service_values(HOME)["token"] == "another"


@pytest.mark.parametrize("change", [{"host": "evil.example.org"}, {"port": "2525"}, {"security": "none"}])
def test_a_mail_password_is_for_one_host_port_and_encryption(
    alice: Membership, in_acme: Organisation, change: dict[str, str]
) -> None:
    mail = registry.services["smtp"]
    values = {"host": "mail.example.org", "user": "acme", "password": "very-secret", "from": "a@example.org"}
    save_service(mail, values, actor=alice)
    kept = {name: value for name, value in values.items() if name != "password"}

    with pytest.raises(ChangeRefused, match="type the Password again") as refused:
        save_service(mail, kept | change, actor=alice)

    assert refused.value.field == "values.password"
    assert service_values(mail)["host"] == "mail.example.org"
    save_service(mail, kept | {"user": "other", "from": "b@example.org", "port": "587"}, actor=alice)
    save_service(mail, values | change, actor=alice)


def test_every_field_that_may_move_a_secret_binds_it() -> None:
    """What does not bind is known by name: a new field of a service binds until somebody says otherwise."""
    free = {
        f"{spec.name}.{field.name}"
        for spec in registry.services.values()
        for field in spec.fields
        if any(each.is_secret for each in spec.fields) and not field.is_secret and not field.binds_secrets
    }

    assert {name.partition(".")[2] for name in free} <= {"region", "access_key", "user", "from", "row_limit", "timeout"}


def test_what_is_no_field_and_what_is_too_long_is_refused(alice: Membership, in_acme: Organisation) -> None:
    with pytest.raises(ChangeRefused) as strange:
        save_service(HOME, {"organisation": "2"}, actor=alice)
    with pytest.raises(ChangeRefused) as long:
        save_service(HOME, {"room": "x" * 4001}, actor=alice)

    assert (strange.value.field, long.value.field) == ("values.organisation", "values.room")


def test_what_the_operator_has_not_switched_on_cannot_be_set_up(alice: Membership, in_acme: Organisation) -> None:
    with pytest.raises(ChangeRefused, match="is not switched on in this installation"):
        save_service(ServiceSpec("later", "Later", "", (), is_available=False), {}, actor=alice)


def test_services_ask_for_the_right_catalogue(bob: Membership, in_acme: Organisation) -> None:
    with pytest.raises(PermissionDenied):
        save_service(HOME, SET, actor=bob)
    with pytest.raises(PermissionDenied):
        clear_service(HOME, actor=bob)
