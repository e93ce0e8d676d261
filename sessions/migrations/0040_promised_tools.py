import json

from django.db import migrations, models

ENDED = ("done", "failed", "cancelled", "expired")


def note_promised(apps, schema_editor):
    """Put what the answers of turns that still run promise into its column: earlier releases read it in the results."""
    steps = apps.get_model("toolhub_sessions", "Step")._base_manager
    open_ones = steps.filter(kind="tool", result__contains="comes_with").exclude(turn__status__in=ENDED)
    for key, name, status, result in list(open_ones.values_list("pk", "tool_name", "status", "result")):
        promised = sorted(set(_promised(name, status, result)))
        if promised:
            steps.filter(pk=key).update(promised=promised)


def _promised(name, status, result):
    is_search = name == "search_tools" and status == "done"
    try:
        answer = json.loads(result)
    except ValueError:
        return
    if not isinstance(answer, dict) or not (is_search or status == "refused"):
        return
    found = answer.get("tools") if is_search else [{**answer, "name": answer.get("tool")}]
    for each in found if isinstance(found, list) else ():
        if isinstance(each, dict) and each.get("comes_with") == "your next step" and isinstance(each.get("name"), str):
            yield each["name"]


class Migration(migrations.Migration):
    dependencies = [("toolhub_sessions", "0039_unused_sets")]

    operations = [
        migrations.AddField(
            model_name="step",
            name="promised",
            field=models.JSONField(blank=True, default=list),
        ),
        migrations.RunPython(note_promised, migrations.RunPython.noop, elidable=True),
    ]
