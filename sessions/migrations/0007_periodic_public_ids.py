from django.db import migrations

from toolhub.tenants.rows.public_ids import public_id_operations


class Migration(migrations.Migration):
    dependencies = [("toolhub_sessions", "0006_origin_key")]

    operations = [
        *public_id_operations("toolhub_sessions", "reminder"),
        *public_id_operations("toolhub_sessions", "schedule"),
    ]
