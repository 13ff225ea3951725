"""Receipts in the admin: evidence to look at, and a button to try again."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from django.contrib import admin
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.utils import flatten_fieldsets, quote, unquote
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.translation import gettext, gettext_lazy
from django.views.decorators.http import require_POST, require_safe

from django_webhook_guard.admin import columns, detail, overview, payload, retrying
from django_webhook_guard.admin.changelist import (
    FILTERS,
    REACH,
    BoundedPaginator,
    ReceiptChangeList,
    is_number,
    numbers,
    search,
)
from django_webhook_guard.admin.reporting import asked, audited, question, tell_about_many, tell_about_one
from django_webhook_guard.admin.retrying import ACTS, DISCARD, RELEASE, RETRY, Act
from django_webhook_guard.conf import receipts_alias
from django_webhook_guard.models import WebhookReceipt
from django_webhook_guard.text import shortened

if TYPE_CHECKING:
    _ModelAdmin = admin.ModelAdmin[WebhookReceipt]
else:
    _ModelAdmin = admin.ModelAdmin

MAX_REASON = 200

_STATE = (
    (columns.status, columns.attempts, columns.plain("deliveries")),
    (columns.time("received_at"), columns.time("last_delivered_at"), columns.time("processed_at")),
    (columns.time("due_at"), columns.time("lease_until")),
    (columns.plain("result"), columns.reply),
)
_IDENTITY = (
    (columns.plain("source"), columns.plain("tenant"), columns.plain("event_type")),
    (columns.plain("event_id"), columns.plain("object_key")),
    (columns.plain("idempotency_key"), columns.plain("key_origin")),
    (columns.time("signed_at"), columns.time("occurred_at")),
    (columns.plain("key_id"), columns.plain("request_id"), columns.reference),
    (columns.plain("fingerprint"), columns.item),
)
_FIELDSETS: Any = (
    (gettext_lazy("State"), {"fields": _STATE}),
    (gettext_lazy("Identity"), {"fields": _IDENTITY}),
)


@admin.register(WebhookReceipt)
class WebhookReceiptAdmin(_ModelAdmin):
    """Shows receipts and changes nothing about them; retries those that failed.

    A project that wants other people to see other receipts subclasses this and narrows ``get_queryset``, or
    ``has_retry_permission``, which is asked for each receipt.
    """

    list_display = (
        columns.status,
        columns.event,
        columns.key,
        columns.time("received_at", gettext_lazy("received")),
        columns.attempts_with_form,
        columns.plain("deliveries", label=gettext_lazy("deliveries")),
        columns.time("due_at", gettext_lazy("due")),
        columns.about,
    )
    list_display_links = (columns.key,)
    list_filter = FILTERS
    list_per_page = 50
    list_max_show_all = 0
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER
    sortable_by = ()
    paginator = BoundedPaginator
    search_fields = ("event_id",)  # makes the search box appear; get_search_results says what is searched
    search_help_text = gettext_lazy(
        "An event id, a reference from an answer, an object of a configured source, or the number of a receipt; exact."
    )
    actions = ("retry_selected", "release_selected", "discard_selected")
    readonly_fields: ClassVar[Any] = flatten_fieldsets(_FIELDSETS)
    fieldsets: ClassVar[Any] = _FIELDSETS

    class Media:
        css = {"all": ["django_webhook_guard/admin.css"]}

    # -- who may what --------------------------------------------------------------------------------------------------

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: WebhookReceipt | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: WebhookReceipt | None = None) -> bool:
        return False

    def has_retry_permission(self, request: HttpRequest, obj: WebhookReceipt | None = None) -> bool:
        """Tell whether the person may retry receipts, or this one."""
        return self._may(RETRY, request, obj)

    def has_release_permission(self, request: HttpRequest, obj: WebhookReceipt | None = None) -> bool:
        """Tell whether the person may release held receipts, or this one."""
        return self._may(RELEASE, request, obj)

    def has_discard_permission(self, request: HttpRequest, obj: WebhookReceipt | None = None) -> bool:
        """Tell whether the person may discard receipts, or this one."""
        return self._may(DISCARD, request, obj)

    def _may(self, act: Act, request: HttpRequest, obj: WebhookReceipt | None) -> bool:
        user: Any = request.user
        permission = f"django_webhook_guard.{act.name}_webhookreceipt"
        return self.has_view_permission(request, obj) and user.has_perm(permission)

    def _allows(self, act: Act) -> Callable[..., bool]:
        """Return the method that a subclass may have narrowed."""
        allows: Callable[..., bool] = getattr(self, f"has_{act.name}_permission")
        return allows

    # -- the list ------------------------------------------------------------------------------------------------------

    def get_queryset(self, request: HttpRequest) -> QuerySet[WebhookReceipt]:
        """Return the receipts that the person may see, from the database that they are written to."""
        return super().get_queryset(request).using(receipts_alias()).defer("body")

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ReceiptChangeList]:
        return ReceiptChangeList

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest | None = None) -> bool:
        """Allow the filters on the page, and no look-up that somebody types into the address."""
        return lookup in {each.parameter_name for each in FILTERS}

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        if not search_term.strip():
            return queryset, False
        return queryset.filter(pk__in=search(self.get_queryset(request), search_term)), False

    def response_action(self, request: Any, queryset: QuerySet[Any], *args: Any, **kwargs: Any) -> Any:
        """Take what is no number out of the selection first: the database would refuse all of it."""
        post = request.POST.copy()
        post.setlist(ACTION_CHECKBOX_NAME, list(filter(is_number, post.getlist(ACTION_CHECKBOX_NAME))))
        request.POST = post
        return super().response_action(request, queryset, *args, **kwargs)

    @admin.action(permissions=["retry"], description=gettext_lazy("Retry selected failed and dead receipts"))
    def retry_selected(self, request: HttpRequest, queryset: QuerySet[WebhookReceipt]) -> None:
        """Make the selected receipts due and run the first of them, the oldest first."""
        self._do_to_selected(RETRY, request, queryset)

    @admin.action(permissions=["release"], description=gettext_lazy("Release selected quarantined receipts"))
    def release_selected(self, request: HttpRequest, queryset: QuerySet[WebhookReceipt]) -> HttpResponse | None:
        """Release the selected receipts and run the first of them, once a second page has asked for a reason."""
        return self._confirmed(RELEASE, request, queryset)

    @admin.action(permissions=["discard"], description=gettext_lazy("Discard selected receipts"))
    def discard_selected(self, request: HttpRequest, queryset: QuerySet[WebhookReceipt]) -> HttpResponse | None:
        """End the selected receipts without their work being done, once a second page has asked for a reason."""
        return self._confirmed(DISCARD, request, queryset)

    def _confirmed(self, act: Act, request: HttpRequest, queryset: QuerySet[WebhookReceipt]) -> HttpResponse | None:
        """Do it, if the person has said so on the page that asks once more; else return that page."""
        if "confirmed" in request.POST:
            self._do_to_selected(act, request, queryset)
            return None
        chosen = list(self.get_queryset(request).filter(pk__in=numbers(queryset[:REACH])).only("status", "reason"))
        possible = [receipt for receipt in chosen if act.possible(receipt)]
        sent = ("action", "select_across", "index", ACTION_CHECKBOX_NAME, "shown", "shown_at")
        context = {
            **self.admin_site.each_context(request),
            "title": question(act),
            "opts": self.opts,
            "media": self.media,
            "lines": asked(act, possible),
            "button": question(act),
            "fields": [(name, value) for name in sent for value in request.POST.getlist(name)],
            "max_reason": MAX_REASON,
        }
        return TemplateResponse(request, "admin/django_webhook_guard/webhookreceipt/confirm.html", context)

    def _do_to_selected(self, act: Act, request: HttpRequest, queryset: QuerySet[WebhookReceipt]) -> None:
        columns_needed = ("fingerprint", "source", "event_type", "status", "attempts", "budget_from", "handlers")
        chosen = self.get_queryset(request).filter(pk__in=numbers(queryset[:REACH]))
        receipts = list(chosen.only(*columns_needed).order_by("received_at", "pk"))
        shown = retrying.read_shown(request.POST.getlist("shown"), request.POST.getlist("shown_at"))
        reason = shortened(request.POST.get("reason", "").strip(), MAX_REASON)
        report = self._do(act, request, receipts, shown, reason)
        tell_about_many(request, act, report)

    # -- one receipt ---------------------------------------------------------------------------------------------------

    def get_urls(self) -> list[URLPattern]:
        views: list[tuple[str, Callable[..., HttpResponse]]] = [
            (act.name, require_POST(partial(self.act_view, act=act))) for act in ACTS
        ]
        views.append(("body", require_safe(self.body_view)))
        own = [
            path(f"<path:object_id>/{name}/", self.admin_site.admin_view(view), name=self._url_name(name))
            for name, view in views
        ]
        view = self.admin_site.admin_view(require_safe(self.overview_view))
        return [path("overview/", view, name=self._url_name("overview")), *own, *super().get_urls()]

    def overview_view(self, request: HttpRequest) -> HttpResponse:
        """Show what became of every source's deliveries; who sees some receipts only sees numbers of these."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        receipts, ruled = overview.receipts_of(request, self.get_queryset(request))
        narrowed = type(self).get_queryset is not WebhookReceiptAdmin.get_queryset
        period = overview.PERIODS.get(request.GET.get("period", ""), overview.PERIODS["day"])
        context = {
            **self.admin_site.each_context(request),
            "title": gettext("Overview"),
            "opts": self.opts,
            "media": self.media,
            "periods": overview.PERIODS.values(),
            "page": overview.look(receipts, period, limited=ruled or narrowed),
        }
        return TemplateResponse(request, "admin/django_webhook_guard/webhookreceipt/overview.html", context)

    def _url_name(self, name: str) -> str:
        return f"{self.opts.app_label}_{self.opts.model_name}_{name}"

    def _url(self, name: str, receipt: WebhookReceipt) -> str:
        where = f"{self.admin_site.name}:{self._url_name(name)}"
        return reverse(where, args=[quote(receipt.pk)], current_app=self.admin_site.name)

    def _permitted(self, request: HttpRequest, object_id: str, allowed: Callable[..., bool]) -> WebhookReceipt:
        """Return a receipt that the person may do this with; who may with none does not learn whether it is there."""
        if not allowed(request):
            raise PermissionDenied
        receipt = self.get_object(request, unquote(object_id))
        if receipt is None:
            raise Http404
        if not allowed(request, receipt):
            raise PermissionDenied
        return receipt

    def render_change_form(
        self,
        request: HttpRequest,
        context: dict[str, Any],
        add: bool = False,
        change: bool = False,
        form_url: str = "",
        obj: WebhookReceipt | None = None,
    ) -> HttpResponse:
        """Add what hangs on the receipt: its body, headers, marks and attempts, and what a retry would do."""
        if obj is not None:
            found = detail.marks(obj)
            attempts, earlier = detail.attempt_rows(obj)
            context |= {
                "acts": self._acts(request, obj),
                "waiting": detail.waiting(obj, found),
                "held": detail.held(obj, self.get_queryset(request), partial(self._url, "change")),
                "row_shown": retrying.row_shown(obj),
                "max_reason": MAX_REASON,
                "plan": detail.plan(obj, found),
                "payload": payload.shown(obj),
                "payload_limit": payload.SHOWN,
                "body_url": self._url("body", obj),
                "header_rows": detail.header_rows(obj),
                "checkpoints": detail.checkpoint_rows(obj, found),
                "unread_databases": found.unread,
                "effects": detail.effect_rows(obj),
                "attempts": attempts,
                "earlier_attempts": earlier,
            }
        return super().render_change_form(request, context, add, change, form_url, obj)

    def _acts(self, request: HttpRequest, receipt: WebhookReceipt) -> dict[str, str]:
        """Return what the person may do to a receipt as it is, with the address of each."""
        may = [act for act in ACTS if act.possible(receipt) and self._allows(act)(request, receipt)]
        return {act.name: self._url(act.name, receipt) for act in may}

    def history_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show the history; who may see no receipt does not learn whether this one is there."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        return super().history_view(request, object_id, extra_context)

    def act_view(self, request: HttpRequest, object_id: str, act: Act) -> HttpResponse:
        """Do something to one receipt, if it is as the page with the button showed it."""
        receipt = self._permitted(request, object_id, self._allows(act))
        shown = retrying.read_shown(request.POST.getlist("shown"))
        reason = shortened(request.POST.get("reason", "").strip(), MAX_REASON)
        report = self._do(act, request, [receipt], shown, reason)
        tell_about_one(request, act, report, receipt)
        return HttpResponseRedirect(self._url("change", receipt))

    def body_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Hand out the raw bytes as a file, so that nothing in them can run."""
        receipt = self._permitted(request, object_id, self.has_view_permission)
        body = receipt.raw_body
        if body is None:
            raise Http404
        return HttpResponse(
            body,
            content_type="application/octet-stream",
            headers={
                "Content-Disposition": f'attachment; filename="webhook-receipt-{receipt.pk}.bin"',
                "X-Content-Type-Options": "nosniff",
                "Content-Security-Policy": "default-src 'none'; sandbox",
            },
        )

    def _do(
        self, act: Act, request: HttpRequest, receipts: list[WebhookReceipt], shown: retrying.Shown, reason: str
    ) -> retrying.Report:
        user: Any = request.user

        def audit(receipt: WebhookReceipt) -> None:
            about = {"status": receipt.status, "attempts": receipt.attempts, "reason": reason or "-"}
            self.log_change(request, receipt, audited(act) % about)

        return retrying.do_all(
            act,
            receipts,
            shown=shown,
            actor=user.get_username(),
            reason=reason,
            allowed=lambda receipt: self._allows(act)(request, receipt),
            audit=audit,
            using=receipts_alias(),
        )
