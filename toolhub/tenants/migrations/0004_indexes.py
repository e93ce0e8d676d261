from django.db import migrations, models

from toolhub.tenants.rows.index_operations import DropForeignKeyIndexes

MODELS = ("adminright", "apitoken", "auditentry", "invitation", "membership", "resetlink")


class Migration(migrations.Migration):
    dependencies = [
        ("tenants", "0003_public_ids"),
    ]

    operations = [
        migrations.AddIndex(
            model_name="invitation",
            index=models.Index(fields=["organisation", "-id"], name="invitations_newest_first"),
        ),
        DropForeignKeyIndexes(*((model, "organisation") for model in MODELS)),
    ]
