import ast
import subprocess
import sys
from pathlib import Path

import pytest

import django_webhook_guard

PACKAGE = Path(django_webhook_guard.__file__).parent
MODULES = sorted(path for path in PACKAGE.rglob("*.py") if "migrations" not in path.parts)


def test_imports_go_down_only():
    pytest.importorskip("importlinter.cli")
    # In a process of its own: the linter sets up logging anew, which switches every logger off that is there.
    code = "from importlinter.cli import lint_imports; raise SystemExit(lint_imports(no_cache=True))"
    done = subprocess.run([sys.executable, "-c", code], cwd=PACKAGE.parent, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


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
