from django.db import migrations, models

from toolhub.tenants.rows.index_operations import DropForeignKeyIndexes

MODELS = (
    "chatsession",
    "loadedtoolkit",
    "notice",
    "reminder",
    "routine",
    "schedule",
    "step",
    "toolset",
    "trialrun",
    "turn",
    "turnevent",
)


class Migration(migrations.Migration):
    dependencies = [
        ("capabilities", "0014_indexes"),
        ("tenants", "0004_indexes"),
        ("toolhub_sessions", "0012_fair_queue"),
    ]

    operations = [
        migrations.AddIndex(
            model_name="chatsession",
            index=models.Index(
                condition=models.Q(("deleted_at", None), ("depth", 0)),
                fields=["organisation", "-active_at", "-id"],
                name="sessions_newest_first",
            ),
        ),
        migrations.AddIndex(
            model_name="chatsession",
            index=models.Index(
                condition=models.Q(("parent_turn__isnull", False)),
                fields=["parent_turn"],
                name="sessions_of_parent_turn",
            ),
        ),
        migrations.AddIndex(
            model_name="schedule",
            index=models.Index(fields=["organisation", "name", "public_id"], name="schedules_by_name"),
        ),
        migrations.AddIndex(
            model_name="trialrun",
            index=models.Index(condition=models.Q(("ended_at", None)), fields=["deadline_at"], name="trials_unended"),
        ),
        migrations.AddIndex(
            model_name="turn",
            index=models.Index(
                condition=models.Q(("ended_at", None)), fields=["status", "lease_until"], name="unended_turns"
            ),
        ),
        migrations.AddIndex(
            model_name="turn",
            index=models.Index(
                condition=models.Q(("parent_step__isnull", False)), fields=["parent_step"], name="turns_of_parent_step"
            ),
        ),
        migrations.RemoveIndex(
            model_name="trialrun",
            name="trials_open",
        ),
        migrations.RemoveIndex(
            model_name="turn",
            name="open_turns",
        ),
        DropForeignKeyIndexes(*((model, "organisation") for model in MODELS), ("chatsession", "parent_turn")),
    ]
