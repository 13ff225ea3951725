"""Bulk actions in the admin: how far they are, and a button to stop them."""

from typing import TYPE_CHECKING, Any, ClassVar

from django.contrib import admin, messages
from django.contrib.admin.utils import flatten, quote, unquote
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, path, reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_POST

from django_webhook_guard import scope
from django_webhook_guard.admin import columns
from django_webhook_guard.conf import receipts_alias
from django_webhook_guard.models import WebhookBulkAction
from django_webhook_guard.models.bulk import Wish

if TYPE_CHECKING:
    _ModelAdmin = admin.ModelAdmin[WebhookBulkAction]
else:
    _ModelAdmin = admin.ModelAdmin

#: Which permission on receipts a wish takes.
PERMISSIONS: dict[str, str] = {
    Wish.RETRY: "retry",
    Wish.MISSING: "retry",
    Wish.RERUN: "rerun",
    Wish.RELEASE: "release",
    Wish.DISCARD: "discard",
}


def may(request: HttpRequest, wish: str) -> bool:
    """Tell whether a person may wish it."""
    user: Any = request.user
    return all(user.has_perm(f"django_webhook_guard.{name}_webhookreceipt") for name in ("view", PERMISSIONS[wish]))


@admin.display(description=gettext_lazy("begun at"))
def created_at(action: WebhookBulkAction) -> str:
    return columns.moment(action.created_at)


@admin.display(description=gettext_lazy("ended at"))
def finished_at(action: WebhookBulkAction) -> str:
    return columns.moment(action.finished_at)


@admin.display(description=gettext_lazy("receipts"))
def about(action: WebhookBulkAction) -> str:
    return columns.text(action.about)


@admin.display(description=gettext_lazy("reason"))
def reason(action: WebhookBulkAction) -> str:
    return columns.text(action.reason)


@admin.display(description=gettext_lazy("by"))
def actor(action: WebhookBulkAction) -> str:
    return columns.text(action.actor)


_FIELDS: Any = (
    ("wish", "state", "rate"),
    (about, reason, actor),
    (created_at, finished_at),
    ("total", "done", "left_alone"),
)


@admin.register(WebhookBulkAction)
class WebhookBulkActionAdmin(_ModelAdmin):
    """Shows who wants what done to how many receipts, and why; stops it.

    Who may see receipts sees bulk actions; where ``RECEIPTS_FOR`` limits what people see, only their own.
    """

    list_display = ("__str__", "state", created_at, actor, reason, "total", "done", "left_alone")
    list_per_page = 50
    list_max_show_all = 0
    show_full_result_count = False
    sortable_by = ()
    ordering = ("-pk",)
    actions = None
    fields: ClassVar[Any] = _FIELDS
    readonly_fields: ClassVar[Any] = flatten(_FIELDS)

    class Media:
        css = {"all": ["django_webhook_guard/admin.css"]}

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: WebhookBulkAction | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: WebhookBulkAction | None = None) -> bool:
        return False

    def has_view_permission(self, request: HttpRequest, obj: WebhookBulkAction | None = None) -> bool:
        user: Any = request.user
        return bool(user.has_perm("django_webhook_guard.view_webhookreceipt"))

    def has_module_permission(self, request: HttpRequest) -> bool:
        return self.has_view_permission(request)

    def get_queryset(self, request: HttpRequest) -> QuerySet[WebhookBulkAction]:
        rows = super().get_queryset(request).using(receipts_alias())
        user: Any = request.user
        if scope.sees_all(request):
            return rows
        return rows.filter(actor=user.get_username())

    def get_urls(self) -> list[URLPattern]:
        stop = self.admin_site.admin_view(require_POST(self.stop_view))
        return [path("<path:object_id>/stop/", stop, name=self._name("stop")), *super().get_urls()]

    def _name(self, name: str) -> str:
        return f"{self.opts.app_label}_{self.opts.model_name}_{name}"

    def _url(self, name: str, action: WebhookBulkAction) -> str:
        return reverse(f"{self.admin_site.name}:{self._name(name)}", args=[quote(action.pk)])

    def render_change_form(
        self,
        request: HttpRequest,
        context: dict[str, Any],
        add: bool = False,
        change: bool = False,
        form_url: str = "",
        obj: WebhookBulkAction | None = None,
    ) -> HttpResponse:
        """Add how far it is, and the button."""
        if obj is not None:
            numbers = {"done": obj.done, "left": obj.left_alone, "waiting": obj.waiting, "total": obj.total}
            context |= {
                "touched": obj.done + obj.left_alone,
                "words": _("%(done)d of %(total)d done, %(left)d left alone, %(waiting)d to come.") % numbers,
                "stop_url": self._url("stop", obj) if obj.state == "running" and may(request, obj.wish) else "",
            }
        return super().render_change_form(request, context, add, change, form_url, obj)

    def stop_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Stop it; receipts that were made due before still run."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        action = self.get_object(request, unquote(object_id))
        if action is None:
            raise Http404
        if not may(request, action.wish):
            raise PermissionDenied
        if action.stop():
            self.log_change(request, action, _("Stopped."))
            self.message_user(request, _("It is stopped: no further receipt is touched."), messages.SUCCESS)
        else:
            self.message_user(request, _("It had ended before."), messages.WARNING)
        return HttpResponseRedirect(self._url("change", action))
