import django.db.models.deletion
import django.utils.timezone
from django.db import migrations, models

import toolhub.tenants.models
from toolhub.tenants.audit.chain import FIELDS, entry_hash

#: Entries are final for SQL as well. Deleting stays possible: an organisation is deleted with all that is its own.
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


def chain_entries(apps, schema_editor):
    """Number and hash what was recorded so far, in the order in which it was."""
    entries = apps.get_model("tenants", "AuditEntry").objects
    for organisation in apps.get_model("tenants", "Organisation").objects.order_by("pk"):
        count, head = 0, ""
        own = entries.filter(organisation_id=organisation.pk).order_by("pk")
        for row in own.values("pk", *[name for name in FIELDS if name not in ("number", "previous_hash")]).iterator():
            count += 1
            row |= {"number": count, "previous_hash": head}
            head = entry_hash(row)
            entries.filter(pk=row["pk"]).update(number=count, previous_hash=row["previous_hash"], hash=head)
        organisation.audit_count, organisation.audit_head = count, head
        organisation.save(update_fields=["audit_count", "audit_head"])


def make_final(apps, schema_editor):
    schema_editor.execute(POSTGRESQL if schema_editor.connection.vendor == "postgresql" else SQLITE)


def make_changeable(apps, schema_editor):
    schema_editor.execute(POSTGRESQL_DROP if schema_editor.connection.vendor == "postgresql" else SQLITE_DROP)


class Migration(migrations.Migration):
    dependencies = [("tenants", "0001_initial")]

    operations = [
        # Members
        migrations.RemoveConstraint("membership", "one_membership_per_user"),
        migrations.AddField("membership", "ended_at", models.DateTimeField(blank=True, null=True)),
        migrations.AddConstraint(
            "membership",
            models.UniqueConstraint(
                condition=models.Q(("ended_at", None)), fields=("organisation", "user"), name="one_membership_per_user"
            ),
        ),
        migrations.RemoveConstraint("adminright", "one_row_per_admin_right"),
        migrations.AddField("adminright", "category", models.CharField(blank=True, default="", max_length=64)),
        migrations.AddConstraint(
            "adminright",
            models.UniqueConstraint(fields=("membership", "right", "category"), name="one_row_per_admin_right"),
        ),
        migrations.AddField("apitoken", "scopes", models.JSONField(default=toolhub.tenants.models.every_scope)),
        # Links
        migrations.CreateModel(
            "Invitation",
            [
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("email", models.EmailField(max_length=254)),
                (
                    "access",
                    models.CharField(
                        choices=[
                            ("viewer", "Viewer"),
                            ("member", "Member"),
                            ("operator", "Operator"),
                            ("admin", "Admin"),
                        ],
                        default="member",
                        max_length=16,
                    ),
                ),
                ("digest", models.CharField(max_length=64, unique=True)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("expires_at", models.DateTimeField()),
                ("accepted_at", models.DateTimeField(blank=True, null=True)),
                ("revoked_at", models.DateTimeField(blank=True, null=True)),
                (
                    "created_by",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="invitations", to="tenants.membership"
                    ),
                ),
                (
                    "organisation",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to="tenants.organisation"
                    ),
                ),
            ],
            options={"abstract": False, "base_manager_name": "objects"},
        ),
        migrations.CreateModel(
            "ResetLink",
            [
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("digest", models.CharField(max_length=64, unique=True)),
                ("password_mark", models.CharField(max_length=128)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("expires_at", models.DateTimeField()),
                ("ended_at", models.DateTimeField(blank=True, null=True)),
                (
                    "created_by",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to="tenants.membership"
                    ),
                ),
                (
                    "membership",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="reset_links", to="tenants.membership"
                    ),
                ),
                (
                    "organisation",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to="tenants.organisation"
                    ),
                ),
            ],
            options={"abstract": False, "base_manager_name": "objects"},
        ),
        # Audit
        migrations.AddField("organisation", "audit_count", models.PositiveBigIntegerField(default=0)),
        migrations.AddField("organisation", "audit_head", models.CharField(blank=True, default="", max_length=64)),
        migrations.AlterField(
            "auditentry",
            "actor",
            models.ForeignKey(
                db_constraint=False,
                null=True,
                on_delete=django.db.models.deletion.DO_NOTHING,
                related_name="+",
                to="tenants.membership",
            ),
        ),
        migrations.AlterField("auditentry", "created_at", models.DateTimeField(default=django.utils.timezone.now)),
        migrations.AddField("auditentry", "number", models.PositiveBigIntegerField(null=True)),
        migrations.AddField("auditentry", "previous_hash", models.CharField(blank=True, default="", max_length=64)),
        migrations.AddField("auditentry", "hash", models.CharField(default="", max_length=64)),
        migrations.RunPython(chain_entries, migrations.RunPython.noop, elidable=True),
        migrations.AlterField("auditentry", "number", models.PositiveBigIntegerField()),
        migrations.AlterField("auditentry", "previous_hash", models.CharField(blank=True, max_length=64)),
        migrations.AlterField("auditentry", "hash", models.CharField(max_length=64)),
        migrations.AddConstraint(
            "auditentry",
            models.UniqueConstraint(fields=("organisation", "number"), name="audit_entries_have_numbers"),
        ),
        migrations.RunPython(make_final, make_changeable),
    ]
