import django.db.models.deletion
from django.db import migrations, models


def bind_notes(apps, schema_editor):
    """Give each page of notes the agent of its organisation that bears its slug now, where there is one."""
    agents = apps.get_model("capabilities", "Agent")._base_manager
    notes = apps.get_model("capabilities", "AgentNote")._base_manager
    slugs = notes.exclude(former_agent="").values_list("organisation_id", "former_agent").distinct()
    for organisation_id, slug in list(slugs):
        agent = agents.filter(organisation_id=organisation_id, slug=slug).first()
        if agent is not None:
            own = notes.filter(organisation_id=organisation_id, former_agent=slug)
            own.update(agent_id=agent.pk, former_agent="")


def unbind_notes(apps, schema_editor):
    """Give each page the slug that its agent has now."""
    notes = apps.get_model("capabilities", "AgentNote")._base_manager
    for key, slug in list(notes.exclude(agent=None).values_list("pk", "agent__slug")):
        notes.filter(pk=key).update(former_agent=slug)


class Migration(migrations.Migration):
    dependencies = [("capabilities", "0008_record_public_ids")]

    operations = [
        migrations.RemoveConstraint("agentnote", "one_note_per_agent"),
        migrations.RenameField("agentnote", "agent", "former_agent"),
        migrations.AlterField("agentnote", "former_agent", models.CharField(blank=True, max_length=100)),
        migrations.AddField(
            "agentnote",
            "agent",
            models.ForeignKey(
                null=True, on_delete=django.db.models.deletion.CASCADE, related_name="+", to="capabilities.agent"
            ),
        ),
        migrations.RunPython(bind_notes, unbind_notes),
        migrations.AddConstraint(
            "agentnote",
            models.UniqueConstraint(fields=("membership", "agent"), name="one_page_of_notes_per_agent"),
        ),
        migrations.AddConstraint(
            "agentnote",
            models.UniqueConstraint(
                condition=models.Q(("agent__isnull", True)),
                fields=("membership", "former_agent"),
                name="one_page_of_notes_without_agent",
            ),
        ),
    ]
