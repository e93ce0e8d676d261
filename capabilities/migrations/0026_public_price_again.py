from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('capabilities', '0025_installed_keywords'),
    ]

    operations = [
        migrations.AddField(
            model_name='modelprice',
            name='is_public',
            field=models.BooleanField(default=False),
        ),
    ]
