from django.db import migrations

from toolhub.tenants.rows.public_ids import public_id_operations


class Migration(migrations.Migration):
    dependencies = [("toolhub_sessions", "0004_loading")]

    operations = [
        *public_id_operations("toolhub_sessions", "notice"),
        *public_id_operations("toolhub_sessions", "loadedtoolkit"),
    ]
