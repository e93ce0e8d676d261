from django.db import migrations

from toolhub.tenants.rows.public_ids import public_id_operations


class Migration(migrations.Migration):
    dependencies = [("tenants", "0002_people")]

    operations = [
        *public_id_operations("tenants", "membership"),
        *public_id_operations("tenants", "apitoken"),
        *public_id_operations("tenants", "invitation"),
    ]
