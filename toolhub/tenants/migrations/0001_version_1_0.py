import django.core.validators
import django.db.models.deletion
import django.utils.timezone
import toolhub.tenants.models
import toolhub.tenants.rows.table_operations
import uuid
from django.conf import settings
from django.db import migrations, models


SQLITE = """
CREATE TRIGGER audit_entry_is_final BEFORE UPDATE ON tenants_auditentry
BEGIN SELECT RAISE(ABORT, 'What was recorded is never changed.'); END
"""
POSTGRESQL = """
CREATE FUNCTION audit_entry_is_final() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION 'What was recorded is never changed.'; END $$;
CREATE TRIGGER audit_entry_is_final BEFORE UPDATE ON tenants_auditentry
FOR EACH ROW EXECUTE FUNCTION audit_entry_is_final()
"""
SQLITE_DROP = "DROP TRIGGER IF EXISTS audit_entry_is_final"
POSTGRESQL_DROP = """
DROP TRIGGER IF EXISTS audit_entry_is_final ON tenants_auditentry;
DROP FUNCTION IF EXISTS audit_entry_is_final()
"""


def make_final(apps, schema_editor):
    schema_editor.execute(POSTGRESQL if schema_editor.connection.vendor == "postgresql" else SQLITE)


def make_changeable(apps, schema_editor):
    schema_editor.execute(POSTGRESQL_DROP if schema_editor.connection.vendor == "postgresql" else SQLITE_DROP)


class Migration(migrations.Migration):

    replaces = [('tenants', '0001_initial'), ('tenants', '0002_people'), ('tenants', '0003_public_ids'), ('tenants', '0004_indexes'), ('tenants', '0005_time_zone_and_unpriced'), ('tenants', '0006_agents_make_tools'), ('tenants', '0007_last_use_of_tokens')]

    initial = True

    dependencies = [
        ('auth', '0012_alter_user_first_name_max_length'),
    ]

    operations = [
        toolhub.tenants.rows.table_operations.CreateModels(
            operations=[
                migrations.CreateModel(
                    name='User',
                    fields=[
                        ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                        ('password', models.CharField(max_length=128, verbose_name='password')),
                        ('last_login', models.DateTimeField(blank=True, null=True, verbose_name='last login')),
                        ('is_superuser', models.BooleanField(default=False, help_text='Designates that this user has all permissions without explicitly assigning them.', verbose_name='superuser status')),
                        ('first_name', models.CharField(blank=True, max_length=150, verbose_name='first name')),
                        ('last_name', models.CharField(blank=True, max_length=150, verbose_name='last name')),
                        ('is_staff', models.BooleanField(default=False, help_text='Designates whether the user can log into this admin site.', verbose_name='staff status')),
                        ('is_active', models.BooleanField(default=True, help_text='Designates whether this user should be treated as active. Unselect this instead of deleting accounts.', verbose_name='active')),
                        ('date_joined', models.DateTimeField(default=django.utils.timezone.now, verbose_name='date joined')),
                        ('email', models.EmailField(max_length=254, unique=True, verbose_name='email address')),
                        ('groups', models.ManyToManyField(blank=True, help_text='The groups this user belongs to. A user will get all permissions granted to each of their groups.', related_name='user_set', related_query_name='user', to='auth.group', verbose_name='groups')),
                        ('user_permissions', models.ManyToManyField(blank=True, help_text='Specific permissions for this user.', related_name='user_set', related_query_name='user', to='auth.permission', verbose_name='user permissions')),
                    ],
                    options={
                        'verbose_name': 'user',
                        'verbose_name_plural': 'users',
                        'abstract': False,
                    },
                ),
                migrations.CreateModel(
                    name='Organisation',
                    fields=[
                        ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                        ('name', models.CharField(max_length=100)),
                        ('slug', models.CharField(max_length=63, unique=True, validators=[django.core.validators.RegexValidator('^[a-z0-9][a-z0-9-]{0,62}\\Z', 'Use lower-case letters, digits and hyphens, at most 63 of them.')])),
                        ('created_at', models.DateTimeField(auto_now_add=True)),
                        ('registry_version', models.PositiveBigIntegerField(default=1)),
                        ('time_zone', models.CharField(default='UTC', max_length=64)),
                        ('counts_unpriced_as_free', models.BooleanField(default=False)),
                        ('agents_make_tools', models.BooleanField(default=False)),
                        ('audit_count', models.PositiveBigIntegerField(default=0)),
                        ('audit_head', models.CharField(blank=True, default='', max_length=64)),
                    ],
                ),
                migrations.CreateModel(
                    name='Membership',
                    fields=[
                        ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                        ('organisation', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='tenants.organisation')),
                        ('public_id', models.UUIDField(default=uuid.uuid4, editable=False, unique=True)),
                        ('user', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to=settings.AUTH_USER_MODEL)),
                        ('access', models.CharField(choices=[('viewer', 'Viewer'), ('member', 'Member'), ('operator', 'Operator'), ('admin', 'Admin')], default='member', max_length=16)),
                        ('created_at', models.DateTimeField(auto_now_add=True)),
                        ('ended_at', models.DateTimeField(blank=True, null=True)),
                    ],
                    options={
                        'abstract': False,
                        'base_manager_name': 'objects',
                        'constraints': [models.UniqueConstraint(condition=models.Q(('ended_at', None)), fields=('organisation', 'user'), name='one_membership_per_user')],
                    },
                ),
                migrations.CreateModel(
                    name='AdminRight',
                    fields=[
                        ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                        ('organisation', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='tenants.organisation')),
                        ('membership', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='admin_rights', to='tenants.membership')),
                        ('right', models.CharField(choices=[('catalogue', 'Catalogue'), ('toolkits', 'Toolkits'), ('agents', 'Agents'), ('roles', 'Roles'), ('members', 'Members'), ('policies', 'Policies'), ('hooks', 'Hooks'), ('budgets', 'Budgets'), ('providers', 'Providers'), ('approvals', 'Approvals'), ('approve_code', 'Approve code'), ('load_categories', 'Load categories'), ('sessions', 'Sessions'), ('audit', 'Audit')], max_length=32)),
                        ('category', models.CharField(blank=True, default='', max_length=64)),
                    ],
                    options={
                        'abstract': False,
                        'base_manager_name': 'objects',
                        'constraints': [models.UniqueConstraint(fields=('membership', 'right', 'category'), name='one_row_per_admin_right')],
                    },
                ),
                migrations.CreateModel(
                    name='ApiToken',
                    fields=[
                        ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                        ('organisation', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='tenants.organisation')),
                        ('public_id', models.UUIDField(default=uuid.uuid4, editable=False, unique=True)),
                        ('membership', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='api_tokens', to='tenants.membership')),
                        ('name', models.CharField(max_length=100)),
                        ('prefix', models.CharField(max_length=12)),
                        ('digest', models.CharField(max_length=64, unique=True)),
                        ('scopes', models.JSONField(default=toolhub.tenants.models.every_scope)),
                        ('created_at', models.DateTimeField(auto_now_add=True)),
                        ('expires_at', models.DateTimeField(blank=True, null=True)),
                        ('revoked_at', models.DateTimeField(blank=True, null=True)),
                        ('last_used_at', models.DateTimeField(blank=True, null=True)),
                        ('last_client', models.CharField(blank=True, default='', max_length=80)),
                        ('last_agent', models.CharField(blank=True, default='', max_length=80)),
                        ('last_address', models.CharField(blank=True, default='', max_length=45)),
                        ('last_use_changes', models.PositiveSmallIntegerField(default=0)),
                    ],
                    options={
                        'abstract': False,
                        'base_manager_name': 'objects',
                    },
                ),
                migrations.CreateModel(
                    name='Invitation',
                    fields=[
                        ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                        ('organisation', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='tenants.organisation')),
                        ('public_id', models.UUIDField(default=uuid.uuid4, editable=False, unique=True)),
                        ('email', models.EmailField(max_length=254)),
                        ('access', models.CharField(choices=[('viewer', 'Viewer'), ('member', 'Member'), ('operator', 'Operator'), ('admin', 'Admin')], default='member', max_length=16)),
                        ('digest', models.CharField(max_length=64, unique=True)),
                        ('created_by', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='invitations', to='tenants.membership')),
                        ('created_at', models.DateTimeField(auto_now_add=True)),
                        ('expires_at', models.DateTimeField()),
                        ('accepted_at', models.DateTimeField(blank=True, null=True)),
                        ('revoked_at', models.DateTimeField(blank=True, null=True)),
                    ],
                    options={
                        'abstract': False,
                        'base_manager_name': 'objects',
                        'indexes': [models.Index(fields=['organisation', '-id'], name='invitations_newest_first')],
                    },
                ),
                migrations.CreateModel(
                    name='ResetLink',
                    fields=[
                        ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                        ('organisation', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='tenants.organisation')),
                        ('membership', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='reset_links', to='tenants.membership')),
                        ('digest', models.CharField(max_length=64, unique=True)),
                        ('password_mark', models.CharField(max_length=128)),
                        ('created_by', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='tenants.membership')),
                        ('created_at', models.DateTimeField(auto_now_add=True)),
                        ('expires_at', models.DateTimeField()),
                        ('ended_at', models.DateTimeField(blank=True, null=True)),
                    ],
                    options={
                        'abstract': False,
                        'base_manager_name': 'objects',
                    },
                ),
                migrations.CreateModel(
                    name='AuditEntry',
                    fields=[
                        ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                        ('organisation', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='tenants.organisation')),
                        ('number', models.PositiveBigIntegerField()),
                        ('actor', models.ForeignKey(db_constraint=False, null=True, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='tenants.membership')),
                        ('actor_label', models.CharField(max_length=254)),
                        ('action', models.CharField(max_length=64)),
                        ('target_type', models.CharField(max_length=64)),
                        ('target_id', models.CharField(max_length=64)),
                        ('target_label', models.CharField(max_length=200)),
                        ('before', models.JSONField(default=dict)),
                        ('after', models.JSONField(default=dict)),
                        ('request_id', models.CharField(blank=True, max_length=64)),
                        ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                        ('previous_hash', models.CharField(blank=True, max_length=64)),
                        ('hash', models.CharField(max_length=64)),
                    ],
                    options={
                        'abstract': False,
                        'base_manager_name': 'objects',
                        'indexes': [models.Index(fields=['organisation', '-id'], name='audit_newest_first')],
                        'constraints': [models.UniqueConstraint(fields=('organisation', 'number'), name='audit_entries_have_numbers')],
                    },
                ),
            ],
        ),
        migrations.RunPython(make_final, make_changeable),
    ]
