from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("capabilities", "0004_starter_tools")]

    operations = [
        migrations.AddField(
            model_name="agenttool",
            name="position",
            field=models.PositiveIntegerField(default=0),
        ),
    ]
