import ast
from pathlib import Path

import pytest
from django.core.management import call_command
from django.db import connection

import django_webhook_guard
from django_webhook_guard.models import WebhookReceipt

MIGRATIONS = sorted((Path(django_webhook_guard.__file__).parent / "migrations").glob("0*.py"))


@pytest.mark.django_db
def test_the_migrations_say_what_the_models_say():
    call_command("makemigrations", "django_webhook_guard", check=True, dry_run=True)


@pytest.mark.parametrize("path", MIGRATIONS, ids=lambda path: path.stem)
def test_a_migration_imports_django_alone(path):
    tree = ast.walk(ast.parse(path.read_text()))
    modules = [node.module for node in tree if isinstance(node, ast.ImportFrom)]
    modules += [
        name.name
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Import)
        for name in node.names
    ]
    assert modules
    assert {module.partition(".")[0] for module in modules} == {"django"}


def tables():
    return {name for name in connection.introspection.table_names() if name.startswith("django_webhook_guard")}


@pytest.mark.django_db(transaction=True)
def test_the_migrations_go_backwards_to_zero_and_forwards_again(post):
    before = tables()
    assert len(before) == 9
    try:
        call_command("migrate", "django_webhook_guard", "zero", verbosity=0)
        assert tables() == set()
    finally:
        call_command("migrate", "django_webhook_guard", verbosity=0)
    assert tables() == before
    post("stripe", {"id": "evt_1", "type": "x"})
    assert WebhookReceipt.objects.count() == 1
