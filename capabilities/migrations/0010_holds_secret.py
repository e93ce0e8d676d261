import json

from django.db import migrations, models

from capabilities.common.secrets import SecretUnreadable

#: The secret fields of the services there were, by service.
SECRETS = {
    "sql_database": "url",
    "github": "token",
    "aws": "secret_key",
    "home_assistant": "token",
    "smtp": "password",
    "nextcloud": "password",
    "open_meteo": "api_key",
}


def note_secrets(apps, schema_editor):
    """Note which services hold a secret. What cannot be read with any key counts as one."""
    settings = apps.get_model("capabilities", "ServiceSetting")._base_manager
    for key, service in list(settings.filter(service__in=SECRETS).values_list("pk", "service")):
        try:
            values = json.loads(settings.values_list("values_json", flat=True).get(pk=key) or "{}")
        except SecretUnreadable:
            values = {SECRETS[service]: "unreadable"}
        if values.get(SECRETS[service]):
            settings.filter(pk=key).update(holds_secret=True)


class Migration(migrations.Migration):
    dependencies = [("capabilities", "0009_notes_of_agents")]

    operations = [
        migrations.AddField("servicesetting", "holds_secret", models.BooleanField(default=False)),
        migrations.RunPython(note_secrets, migrations.RunPython.noop),
    ]
