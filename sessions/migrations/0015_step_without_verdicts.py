from django.db import migrations


class Migration(migrations.Migration):

    dependencies = [
        ('toolhub_sessions', '0014_shared_verdicts'),
    ]

    operations = [
        migrations.RemoveField(
            model_name='step',
            name='verdicts',
        ),
    ]
