"""Samples of refused deliveries, to look at: what strangers sent, as text."""

from typing import TYPE_CHECKING, Any, ClassVar

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.html import format_html, format_html_join
from django.utils.translation import gettext_lazy as _

from django_webhook_guard.admin import columns
from django_webhook_guard.conf import receipts_alias
from django_webhook_guard.models import WebhookRejected
from django_webhook_guard.text import visible

if TYPE_CHECKING:
    _ModelAdmin = admin.ModelAdmin[WebhookRejected]
else:
    _ModelAdmin = admin.ModelAdmin


@admin.display(description=_("received at"))
def came(sample: WebhookRejected) -> str:
    return columns.moment(sample.received_at)


@admin.display(description=_("reason"))
def reason(sample: WebhookRejected) -> str:
    return columns.text(sample.reason, columns.CELL * 2)


@admin.display(description=_("method and path"))
def asked(sample: WebhookRejected) -> str:
    return columns.text(f"{sample.method} {sample.path}", columns.CELL * 3)


@admin.display(description=_("headers"))
def headers(sample: WebhookRejected) -> str:
    rows = [(visible(str(name)), visible(str(value))) for name, value in dict(sample.headers).items()]
    lines = format_html_join("", "<div><dt>{}</dt><dd><bdi>{}</bdi></dd></div>", rows)
    return format_html('<dl class="webhook-headers">{}</dl>', lines)


@admin.display(description=_("body, as far as it was kept"))
def body(sample: WebhookRejected) -> str:
    shown = visible(bytes(sample.body).decode("utf-8", "backslashreplace"), lines=True)
    return format_html('<pre class="webhook-pre">{}</pre>', shown) if shown else columns.EMPTY


@admin.register(WebhookRejected)
class WebhookRejectedAdmin(_ModelAdmin):
    """Shows samples, and changes nothing about them."""

    list_display = ("source", came, "decision", reason, asked)
    list_per_page = 50
    list_max_show_all = 0
    show_full_result_count = False
    sortable_by = ()
    ordering = ("-received_at", "-pk")
    actions = None
    fields: ClassVar[Any] = ("source", came, "decision", reason, asked, headers, "body_size", body)
    readonly_fields: ClassVar[Any] = fields

    class Media:
        css = {"all": ["django_webhook_guard/admin.css"]}

    def get_queryset(self, request: HttpRequest) -> QuerySet[WebhookRejected]:
        """Return the samples; what they hold is read for the one page that shows it."""
        return super().get_queryset(request).using(receipts_alias()).defer("headers", "body")

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: WebhookRejected | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: WebhookRejected | None = None) -> bool:
        return False
