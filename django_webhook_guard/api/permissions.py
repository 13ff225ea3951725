"""Who may see receipts, and who may do what to them."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from rest_framework.permissions import BasePermission
from rest_framework.request import Request

#: What a person may do to a receipt; each has a permission of its own.
ACTS = ("retry", "rerun", "release", "discard", "settle")
_NEEDED: Mapping[str, tuple[str, ...]] = MappingProxyType({act: ("view", act) for act in ACTS})


class MayOperate(BasePermission):
    """Asks for the permission to see receipts, and for that of an act. A stranger never has any."""

    def has_permission(self, request: Request, view: Any) -> bool:
        user: Any = request.user
        if user is None or not user.is_authenticated:
            return False
        needed = _NEEDED.get(getattr(view, "action", None) or "", ("view",))
        return all(user.has_perm(f"django_webhook_guard.{name}_webhookreceipt") for name in needed)
