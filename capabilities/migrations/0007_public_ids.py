from django.db import migrations

from toolhub.tenants.rows.public_ids import public_id_operations


class Migration(migrations.Migration):
    dependencies = [("capabilities", "0006_toolkits")]

    operations = [
        *public_id_operations("capabilities", "category"),
        *public_id_operations("capabilities", "tool"),
        *public_id_operations("capabilities", "toolkit"),
        *public_id_operations("capabilities", "provider"),
        *public_id_operations("capabilities", "languagemodel"),
        *public_id_operations("capabilities", "agent"),
        *public_id_operations("capabilities", "role"),
        *public_id_operations("capabilities", "grant"),
        *public_id_operations("capabilities", "grantrequest"),
        *public_id_operations("capabilities", "servicesetting"),
    ]
