import ast
from pathlib import Path

import pytest

import django_webhook_guard

PACKAGE = Path(django_webhook_guard.__file__).parent
MODULES = sorted(path for path in PACKAGE.rglob("*.py") if "migrations" not in path.parts)


def test_imports_go_down_only(monkeypatch):
    cli = pytest.importorskip("importlinter.cli")
    monkeypatch.chdir(PACKAGE.parent)
    assert cli.lint_imports(no_cache=True) == 0


def inner_imports(tree):
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    found = [node for function in functions for node in ast.walk(function) if isinstance(node, ast.ImportFrom)]
    return [node for node in found if (node.module or "").startswith("django_webhook_guard")]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_nothing_internal_is_imported_inside_a_function(path):
    start_up = path.name == "apps.py"  # whose models must be loaded first
    assert len(inner_imports(ast.parse(path.read_text()))) == start_up


def test_only_the_statements_speak_sql():
    speaking = {path.name for path in MODULES if ".cursor()" in path.read_text()}
    assert speaking - {"statements.py"} == set()
