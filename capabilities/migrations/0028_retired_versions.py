"""Versions that a later one replaced are retired; until now only the tool said which one is in force."""

from django.db import migrations
from django.db.models import Exists, OuterRef


def retire(apps, schema_editor):
    versions = apps.get_model("capabilities", "ToolVersion")
    tools = apps.get_model("capabilities", "Tool")
    replaced = versions.objects.filter(~Exists(tools.objects.filter(current_version=OuterRef("pk"))))
    replaced.update(status="retired")


class Migration(migrations.Migration):

    dependencies = [("capabilities", "0027_tools_from_anywhere")]

    operations = [migrations.RunPython(retire, migrations.RunPython.noop, elidable=True)]
