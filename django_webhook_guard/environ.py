"""``SOURCES`` from environment variables, with django-environ. The package reads the environment nowhere else."""

import json
from typing import Any

from environ import Env

from django_webhook_guard.exceptions import Misconfigured


def sources(env: Env) -> dict[str, dict[str, Any]]:
    """Build ``WEBHOOK_GUARD["SOURCES"]`` from environment variables.

    ``WEBHOOK_SOURCES`` is a comma list of names. For each of them, upper-cased and with ``-`` as ``_``,
    ``WEBHOOK_<SOURCE>_PROVIDER`` is its provider (by default the name itself) and ``WEBHOOK_<SOURCE>_SECRETS`` a
    comma list of secrets, or a JSON list of objects with ``secret``, ``id``, ``not_after`` and ``tenant``.

    Args:
        env: The project's ``environ.Env``.

    Returns:
        Name → settings of the source; add further settings to it as you like.

    Raises:
        Misconfigured: Two names read the same variables, or a JSON list cannot be read. The value is not shown.
    """
    names = [name.strip() for name in env.list("WEBHOOK_SOURCES", default=[]) if name.strip()]
    variables: dict[str, str] = {}
    found: dict[str, dict[str, Any]] = {}
    for name in names:
        variable = f"WEBHOOK_{name.upper().replace('-', '_')}"
        if variable in variables:
            raise Misconfigured(
                f"WEBHOOK_SOURCES: {name!r} and {variables[variable]!r} both read {variable}_SECRETS; rename one."
            )
        variables[variable] = name
        found[name] = {
            "PROVIDER": env.str(f"{variable}_PROVIDER", default=name),
            "SECRETS": _secrets(env, f"{variable}_SECRETS"),
        }
    return found


def _secrets(env: Env, variable: str) -> list[Any]:
    # Read as it stands: env.str would take a secret that begins with "$" for the name of another variable.
    text: str = env.ENVIRON.get(f"{env.prefix or ''}{variable}", "")
    if not text.lstrip().startswith("["):
        return [secret for secret in text.split(",") if secret]
    try:
        listed = json.loads(text)
    except ValueError:
        listed = None
    if not isinstance(listed, list):
        raise Misconfigured(f"{variable} begins with '[', but is no JSON list of secrets.") from None
    return listed
