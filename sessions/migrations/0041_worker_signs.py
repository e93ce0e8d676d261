from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("toolhub_sessions", "0040_promised_tools"),
    ]

    operations = [
        migrations.CreateModel(
            name="WorkerSign",
            fields=[
                ("owner", models.CharField(max_length=100, primary_key=True, serialize=False)),
                ("seen_at", models.DateTimeField()),
            ],
        ),
    ]
