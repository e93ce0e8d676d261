from django.db import migrations

from toolhub.tenants.rows.public_ids import public_id_operations


class Migration(migrations.Migration):
    dependencies = [("capabilities", "0007_public_ids")]

    operations = [
        *public_id_operations("capabilities", "task"),
        *public_id_operations("capabilities", "scratchpad"),
        *public_id_operations("capabilities", "memory"),
        *public_id_operations("capabilities", "agentnote"),
        *public_id_operations("capabilities", "journal"),
        *public_id_operations("capabilities", "journalentry"),
        *public_id_operations("capabilities", "namedlist"),
        *public_id_operations("capabilities", "listitem"),
        *public_id_operations("capabilities", "groceryitem"),
        *public_id_operations("capabilities", "foodentry"),
        *public_id_operations("capabilities", "recipe"),
        *public_id_operations("capabilities", "place"),
        *public_id_operations("capabilities", "person"),
        *public_id_operations("capabilities", "message"),
        *public_id_operations("capabilities", "calendarevent"),
        *public_id_operations("capabilities", "entity"),
        *public_id_operations("capabilities", "series"),
    ]
