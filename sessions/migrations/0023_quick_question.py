from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('toolhub_sessions', '0022_budgets_and_usage'),
    ]

    operations = [
        migrations.AddField(
            model_name='turn',
            name='without_tools',
            field=models.BooleanField(default=False),
        ),
    ]
