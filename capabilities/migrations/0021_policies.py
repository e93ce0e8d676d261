import django.db.models.deletion
import django.db.models.functions.comparison
import uuid
from django.db import migrations, models


#: What comes with the service, as it is when this migration is run for an existing organisation.
SHIPPED = (
    (
        "minimal",
        "Looks things up and asks the user: for constrained runs, debugging and evals. Nothing in it changes anything.",
        ["read", "file_search", "web_fetch", "web_search", "memory", "knowledge", "ask_user"],
    ),
    ("read-only", "Every tool that only reads.", ["*"]),
)


def add_profiles(apps, schema_editor):
    """Give every organisation that is there the profiles that come with the service."""
    organisations = apps.get_model("tenants", "Organisation")._base_manager
    profiles = apps.get_model("capabilities", "PolicyProfile")._base_manager
    for key in list(organisations.values_list("pk", flat=True)):
        for name, description, patterns in SHIPPED:
            own = {"organisation_id": key, "name": name, "description": description}
            profiles.create(**own, patterns=patterns, reads_only=True, is_shipped=True)


class Migration(migrations.Migration):

    dependencies = [
        ('capabilities', '0020_hooks'),
        ('tenants', '0004_indexes'),
    ]

    operations = [
        migrations.CreateModel(
            name='PolicyProfile',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('public_id', models.UUIDField(default=uuid.uuid4, editable=False, unique=True)),
                ('name', models.CharField(max_length=64)),
                ('description', models.TextField(blank=True, default='')),
                ('patterns', models.JSONField(default=list)),
                ('reads_only', models.BooleanField(default=False)),
                ('is_shipped', models.BooleanField(default=False)),
                ('organisation', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='tenants.organisation')),
            ],
            options={
                'abstract': False,
                'base_manager_name': 'objects',
            },
        ),
        migrations.CreateModel(
            name='Policy',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('public_id', models.UUIDField(default=uuid.uuid4, editable=False, unique=True)),
                ('allow', models.JSONField(blank=True, default=list)),
                ('also_allow', models.JSONField(blank=True, default=list)),
                ('deny', models.JSONField(blank=True, default=list)),
                ('organisation', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='tenants.organisation')),
                ('provider', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='policies', to='capabilities.provider')),
                ('profile', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.RESTRICT, related_name='policies', to='capabilities.policyprofile')),
            ],
            options={
                'abstract': False,
                'base_manager_name': 'objects',
            },
        ),
        migrations.AddConstraint(
            model_name='policyprofile',
            constraint=models.UniqueConstraint(fields=('organisation', 'name'), name='policy_profile_name_once'),
        ),
        migrations.AddConstraint(
            model_name='policy',
            constraint=models.UniqueConstraint(models.F('organisation'), django.db.models.functions.comparison.Coalesce('provider', 0), name='policy_layer_once'),
        ),
        migrations.RunPython(add_profiles, migrations.RunPython.noop),
    ]
