from django.db import migrations, models

from toolhub.tenants.rows.index_operations import DropForeignKeyIndexes

MODELS = (
    "agent",
    "agentnote",
    "agenttool",
    "agenttoolkit",
    "calendarevent",
    "calendarfeed",
    "category",
    "connectiontest",
    "entity",
    "foodentry",
    "grant",
    "grantrequest",
    "groceryitem",
    "invitationrole",
    "journal",
    "journalentry",
    "languagemodel",
    "listitem",
    "memory",
    "message",
    "namedlist",
    "person",
    "place",
    "provider",
    "recipe",
    "relation",
    "role",
    "rolemembership",
    "rolerule",
    "scratchpad",
    "series",
    "seriespoint",
    "servicesetting",
    "task",
    "tool",
    "toolkit",
    "toolkitcategory",
    "toolkittool",
    "toolversion",
)


class Migration(migrations.Migration):
    dependencies = [
        ("capabilities", "0013_invitation_roles"),
        ("tenants", "0004_indexes"),
    ]

    operations = [
        migrations.AddIndex(
            model_name="connectiontest",
            index=models.Index(
                condition=models.Q(("ended_at", None)), fields=["deadline_at"], name="connection_tests_unended"
            ),
        ),
        migrations.AddIndex(
            model_name="grant",
            index=models.Index(fields=["organisation", "id"], name="grants_of_organisation"),
        ),
        migrations.AddIndex(
            model_name="grant",
            index=models.Index(fields=["organisation", "membership"], name="grants_of_member"),
        ),
        migrations.AddIndex(
            model_name="grantrequest",
            index=models.Index(fields=["organisation", "id"], name="requests_of_organisation"),
        ),
        migrations.AddIndex(
            model_name="grantrequest",
            index=models.Index(
                condition=models.Q(("status", "waiting")), fields=["organisation", "id"], name="requests_that_wait"
            ),
        ),
        migrations.AddIndex(
            model_name="languagemodel",
            index=models.Index(fields=["organisation", "id"], name="models_of_organisation"),
        ),
        migrations.RemoveIndex(
            model_name="connectiontest",
            name="connection_tests_open",
        ),
        DropForeignKeyIndexes(*((model, "organisation") for model in MODELS)),
    ]
