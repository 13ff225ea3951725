import pytest
from django.core.management import call_command


@pytest.mark.django_db
def test_the_migrations_say_what_the_models_say():
    call_command("makemigrations", "django_webhook_guard", check=True, dry_run=True)
