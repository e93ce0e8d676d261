"""Notes which versions of helper modules the versions of tools name that are on record."""

from __future__ import annotations

from typing import Any

from django.db import migrations


def note(apps: Any, schema_editor: Any) -> None:
    versions = apps.get_model("capabilities", "ToolVersion")._base_manager.filter(tool__kind="python")
    helpers = apps.get_model("capabilities", "HelperVersion")._base_manager
    use = apps.get_model("capabilities", "HelperUse")
    rows = helpers.values_list("organisation_id", "module__name", "number", "pk")
    keys = {(organisation, name, number): key for organisation, name, number, key in rows}
    if not keys:
        return
    uses = []
    for key, organisation, implementation in versions.values_list("pk", "organisation_id", "implementation").iterator():
        for name, number in (implementation.get("helpers") or {}).items():
            if (helper := keys.get((organisation, name, number))) is not None:
                uses.append(use(organisation_id=organisation, tool_version_id=key, helper_version_id=helper))
    use._base_manager.bulk_create(uses, batch_size=500)


class Migration(migrations.Migration):
    dependencies = (("capabilities", "0038_helper_uses"),)

    operations = (migrations.RunPython(note, migrations.RunPython.noop, elidable=True),)
