"""Receipts in the admin: evidence to look at, and a button to try again."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from django.contrib import admin
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.utils import flatten_fieldsets, quote, unquote
from django.contrib.admin.views.main import SEARCH_VAR
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.http import urlencode
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_POST, require_safe

from django_webhook_guard import bulk, contents, groups, plans, scope
from django_webhook_guard.admin import columns, detail, errors, overview, pauses, payload, retrying
from django_webhook_guard.admin.bulk import PERMISSIONS, may
from django_webhook_guard.admin.changelist import (
    FILTERS,
    REACH,
    BoundedPaginator,
    ErrorFilter,
    ReceiptChangeList,
    is_number,
    numbers,
    search,
)
from django_webhook_guard.admin.reporting import (
    all_of_them,
    asked,
    asked_about_all,
    audited,
    question,
    tell_about_many,
    tell_about_one,
)
from django_webhook_guard.admin.retrying import ACTS, DISCARD, RELEASE, RERUN, RETRY, SETTLE, Act
from django_webhook_guard.admin.tree import tree
from django_webhook_guard.conf import receipts_alias
from django_webhook_guard.exceptions import MalformedContent
from django_webhook_guard.models import WebhookReceipt
from django_webhook_guard.models.bulk import Wish
from django_webhook_guard.models.receipts import ReceiptQuerySet
from django_webhook_guard.parsing import parse_json
from django_webhook_guard.text import shortened, visible

if TYPE_CHECKING:
    _ModelAdmin = admin.ModelAdmin[WebhookReceipt]
else:
    _ModelAdmin = admin.ModelAdmin

MAX_REASON = 200
MAX_ABOUT = 1_000
_BOUNDS = {"slowest": f"{bulk.SLOWEST:g}", "fastest": f"{bulk.FASTEST:g}"}

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

    A project that wants other people to see other receipts says so in ``RECEIPTS_FOR``. Who may act on which receipt
    can be narrowed in a subclass: ``has_retry_permission`` and its like are asked for each.
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
        js = ["django_webhook_guard/admin.js"]

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

    def has_rerun_permission(self, request: HttpRequest, obj: WebhookReceipt | None = None) -> bool:
        """Tell whether the person may have handlers run again that are done, of receipts or of this one."""
        return self._may(RERUN, request, obj)

    def has_settle_permission(self, request: HttpRequest, obj: WebhookReceipt | None = None) -> bool:
        """Tell whether the person may settle effects, of receipts or of this one."""
        return self._may(SETTLE, request, obj)

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
        return scope.receipts_of(request).defer("body")

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

    # -- many receipts -------------------------------------------------------------------------------------------------

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """Show the list, with links to what can be done with all of it."""
        asked_for = request.GET.urlencode()
        tools = [
            (_("Overview"), self._page("overview")),
            (_("What fails"), self._page("errors")),
            (_("Sources"), self._page("sources")),
        ]
        for wish in (Wish.RETRY, Wish.RELEASE, Wish.DISCARD):
            if self._may_wish(request, wish):
                tools.append((all_of_them(wish), f"{self._page('bulk', wish)}?{asked_for}"))
        context = {"tools": tools, "paused": pauses.paused(), "sources_url": self._page("sources")}
        return super().changelist_view(request, {**context, **(extra_context or {})})

    def sources_view(self, request: HttpRequest) -> HttpResponse:
        """Show what is paused; pause and resume."""
        user: Any = request.user
        # A source is everybody's: who does not see all of its receipts must not hold them.
        may_pause = user.has_perm("django_webhook_guard.pause_webhookreceipt") and scope.sees_all(request)
        if not self.has_view_permission(request) or (request.method == "POST" and not may_pause):
            raise PermissionDenied
        if request.method == "POST":
            pauses.act(request)
            return HttpResponseRedirect(self._page("sources"))
        context = {
            **self.admin_site.each_context(request),
            "title": _("Sources"),
            "opts": self.opts,
            "media": self.media,
            "rows": pauses.rows(),
            "may_pause": may_pause,
            "max_reason": pauses.MAX_REASON,
            **_BOUNDS,
            "list_url": self._page("changelist"),
        }
        return TemplateResponse(request, "admin/django_webhook_guard/webhookreceipt/sources.html", context)

    def _may_wish(self, request: HttpRequest, wish: str) -> bool:
        """Tell whether the person may wish it for many receipts; not where a subclass asks for each of them."""
        name = f"has_{PERMISSIONS[wish]}_permission"
        return may(request, wish) and getattr(type(self), name) is getattr(WebhookReceiptAdmin, name)

    def errors_view(self, request: HttpRequest) -> HttpResponse:
        """Show failed and dead receipts by what went wrong."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        receipts: Any = self.get_queryset(request)
        found = groups.found(receipts)
        context = {
            **self.admin_site.each_context(request),
            "title": _("What fails"),
            "opts": self.opts,
            "media": self.media,
            "rows": [self._group(request, errors.row(group)) for group in found.groups],
            "more": found.more,
            "reach": groups.REACH,
            "list_url": self._page("changelist"),
        }
        return TemplateResponse(request, "admin/django_webhook_guard/webhookreceipt/errors.html", context)

    def _group(self, request: HttpRequest, row: errors.Row) -> dict[str, Any]:
        example = row.example
        narrowed = urlencode({ErrorFilter.parameter_name: row.key})
        probe = example is not None and self.has_retry_permission(request, example)
        return {
            "row": row,
            "list_url": f"{self._page('changelist')}?{narrowed}",
            "example_url": self._url("change", example) if example is not None else "",
            "probe_url": self._url("retry", example) if example is not None and probe else "",
            "shown": retrying.row_shown(example) if example is not None else "",
            "retry_url": f"{self._page('bulk', Wish.RETRY)}?{narrowed}" if self._may_wish(request, Wish.RETRY) else "",
        }

    def bulk_view(self, request: HttpRequest, wish: str) -> HttpResponse:
        """Count what a filter of the list finds, ask once more, and leave it to the sweeper."""
        if wish not in Wish.values:
            raise Http404
        if not self._may_wish(request, wish):
            raise PermissionDenied
        until = retrying.moment(request.POST.get("until", "")) or timezone.now()
        receipts = bulk.fit(self._filtered(request), wish).filter(received_at__lte=until)
        problems = []
        if request.method == "POST":
            rate, reason = _rate(request), shortened(request.POST.get("reason", "").strip(), MAX_REASON)
            if rate is None:
                problems.append(_("Give a rate of %(slowest)s to %(fastest)s receipts a second.") % _BOUNDS)
            if not reason:
                problems.append(_("Give a reason."))
            if rate is not None and reason:
                user: Any = request.user
                action = bulk.begin(
                    receipts, wish, actor=user.get_username(), reason=reason, about=self._about(request), rate=rate
                )
                shown = f"{self.admin_site.name}:{action._meta.app_label}_{action._meta.model_name}_change"
                return HttpResponseRedirect(reverse(shown, args=[action.pk]))
        count = receipts.order_by().values("pk")[: bulk.MOST + 1].count()
        context = {
            **self.admin_site.each_context(request),
            "title": all_of_them(wish),
            "opts": self.opts,
            "media": self.media,
            "lines": asked_about_all(wish, min(count, bulk.MOST), cut=count > bulk.MOST),
            "about": self._about(request),
            "handlers": detail.handlers_of(receipts) if wish in (Wish.MISSING, Wish.RERUN) else [],
            "errors": problems,
            "discards": wish == Wish.DISCARD,
            "count": count,
            "until": until.isoformat(),
            "rate": request.POST.get("rate", f"{bulk.RATE:g}"),
            "slowest": f"{bulk.SLOWEST:g}",
            "fastest": f"{bulk.FASTEST:g}",
            "max_reason": MAX_REASON,
            "button": all_of_them(wish),
            "list_url": f"{self._page('changelist')}?{request.GET.urlencode()}",
            "others": [
                (all_of_them(other), f"{self._page('bulk', other)}?{request.GET.urlencode()}")
                for other in Wish.values
                if other != wish and self._may_wish(request, other)
            ],
        }
        return TemplateResponse(request, "admin/django_webhook_guard/webhookreceipt/bulk.html", context)

    def _filtered(self, request: HttpRequest) -> ReceiptQuerySet:
        """Return the receipts that the list would show for the same address."""
        try:
            found = self.get_changelist_instance(request).queryset
        except IncorrectLookupParameters:
            raise Http404 from None
        receipts: Any = self.get_queryset(request).filter(pk__in=found.order_by().values("pk"))
        return receipts  # type: ignore[no-any-return]

    def _about(self, request: HttpRequest) -> str:
        """Return the filter in words that can be read later."""
        asked_for = [f"{name}={value}" for name, value in sorted(request.GET.items()) if value]
        return shortened(", ".join(asked_for) or _("all receipts"), MAX_ABOUT)

    # -- one receipt ---------------------------------------------------------------------------------------------------

    def get_urls(self) -> list[URLPattern]:
        views: list[tuple[str, Callable[..., HttpResponse]]] = [
            (act.name, require_POST(partial(self.act_view, act=act))) for act in ACTS
        ]
        views += [("body", require_safe(self.body_view)), ("rerun", self.rerun_view), ("settle", self.settle_view)]
        own = [
            path(f"<path:object_id>/{name}/", self.admin_site.admin_view(view), name=self._url_name(name))
            for name, view in views
        ]
        pages = [
            path("errors/", self.admin_site.admin_view(require_safe(self.errors_view)), name=self._url_name("errors")),
            path(
                "overview/",
                self.admin_site.admin_view(require_safe(self.overview_view)),
                name=self._url_name("overview"),
            ),
            path("sources/", self.admin_site.admin_view(self.sources_view), name=self._url_name("sources")),
            path("bulk/<slug:wish>/", self.admin_site.admin_view(self.bulk_view), name=self._url_name("bulk")),
        ]
        return [*pages, *own, *super().get_urls()]

    def _page(self, name: str, *args: Any) -> str:
        """Return the address of a page that is about no single receipt."""
        return reverse(f"{self.admin_site.name}:{self._url_name(name)}", args=args, current_app=self.admin_site.name)

    def overview_view(self, request: HttpRequest) -> HttpResponse:
        """Show what became of every source's deliveries; who sees some receipts only sees numbers of these."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        narrowed = type(self).get_queryset is not WebhookReceiptAdmin.get_queryset
        period = overview.PERIODS.get(request.GET.get("period", ""), overview.PERIODS["day"])
        context = {
            **self.admin_site.each_context(request),
            "title": _("Overview"),
            "opts": self.opts,
            "media": self.media,
            "list_url": self._page("changelist"),
            "periods": overview.PERIODS.values(),
            "page": overview.look(self.get_queryset(request), period, limited=narrowed or not scope.sees_all(request)),
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
            found = plans.marks(obj)
            readable = scope.may_read_body(request, obj)
            content = contents.content(obj, scope.hidden(request, obj), longest=payload.SHOWN)
            attempts, earlier = detail.attempt_rows(obj)
            context |= {
                "acts": self._acts(request, obj),
                "waiting": detail.waiting(obj, found),
                "held": detail.held(obj, self.get_queryset(request), partial(self._url, "change")),
                "row_shown": retrying.row_shown(obj),
                "rerun_url": self._url("rerun", obj) if self._may_now(RERUN, request, obj) else "",
                "settle_url": self._url("settle", obj) if self._may_now(SETTLE, request, obj) else "",
                "max_reason": MAX_REASON,
                "plan": detail.plan(obj, found),
                "payload": payload.shown(obj) if readable else payload.parsed(content),
                "masked": not readable,
                "tree": tree(content.data) if content.state in ("shown", "masked") else "",
                "related": self._related(obj),
                "payload_limit": payload.SHOWN,
                "body_url": self._url("body", obj),
                "header_rows": detail.header_rows(obj),
                "checkpoints": detail.checkpoint_rows(obj, found),
                "unread_databases": found.unread,
                "effects": detail.effect_rows(obj),
                "attempts": attempts,
                "earlier_attempts": earlier,
            }
            if not scope.sees_all(request):
                obj.result = obj.outcome  # on the page only; else it names a receipt that may be another tenant's
        return super().render_change_form(request, context, add, change, form_url, obj)

    def _acts(self, request: HttpRequest, receipt: WebhookReceipt) -> dict[str, str]:
        """Return what the person may do to a receipt as it is, with the address of each."""
        may = [act for act in ACTS if act.possible(receipt) and self._allows(act)(request, receipt)]
        return {act.name: self._url(act.name, receipt) for act in may}

    def _related(self, receipt: WebhookReceipt) -> list[tuple[str, str]]:
        """Return words and addresses of lists that have something in common with a receipt."""
        found = []
        if receipt.object_key:
            found.append((_("Receipts of the same object"), urlencode({SEARCH_VAR: receipt.object_key})))
        group = detail.error_group(receipt) if receipt.retryable else ""
        if group:
            found.append((_("Receipts that fail in the same way"), urlencode({ErrorFilter.parameter_name: group})))
        return [(words, f"{self._page('changelist')}?{query}") for words, query in found]

    def _may_now(self, act: Act, request: HttpRequest, receipt: WebhookReceipt) -> bool:
        return act.possible(receipt) and self._allows(act)(request, receipt)

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

    def rerun_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Ask which handlers run again, and have them run."""
        receipt = self._permitted(request, object_id, self.has_rerun_permission)
        plan = detail.plan(receipt, plans.marks(receipt))
        if request.method == "POST":
            ticked = set(request.POST.getlist("handler"))
            return self._done(request, receipt, retrying.rerun_of([name for name in plan.handlers if name in ticked]))
        return self._form(request, receipt, "rerun", title=_("Run handlers again"), plan=plan)

    def settle_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Ask what became of an effect of unknown outcome, and write it down."""
        receipt = self._permitted(request, object_id, self.has_settle_permission)
        effects = {str(row.pk): row for row in detail.unknown_effects(receipt)}
        error = ""
        if request.method == "POST":
            effect, answer = effects.get(request.POST.get("effect", "")), request.POST.get("happened", "")
            result, readable = _result(request.POST.get("result", ""))
            if effect is not None and answer in ("yes", "no") and readable:
                act = retrying.settle_of(effect.handler, effect.name, happened=answer == "yes", result=result)
                return self._done(request, receipt, act)
            error = _("Say which effect, whether it happened, and the result as JSON or nothing.")
        rows = [{"pk": pk, "name": visible(row.name), "handler": visible(row.handler), "key": visible(row.key)}
                for pk, row in effects.items()]  # fmt: skip
        return self._form(request, receipt, "settle", title=_("Settle an effect"), effects=rows, error=error)

    def _done(self, request: HttpRequest, receipt: WebhookReceipt, act: Act) -> HttpResponse:
        shown = retrying.read_shown(request.POST.getlist("shown"))
        reason = shortened(request.POST.get("reason", "").strip(), MAX_REASON)
        tell_about_one(request, act, self._do(act, request, [receipt], shown, reason), receipt)
        return HttpResponseRedirect(self._url("change", receipt))

    def _form(self, request: HttpRequest, receipt: WebhookReceipt, name: str, **more: Any) -> HttpResponse:
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "media": self.media,
            "original": receipt,
            "row_shown": retrying.row_shown(receipt),
            "max_reason": MAX_REASON,
            "list_url": self._page("changelist"),
            "back_url": self._url("change", receipt),
            **more,
        }
        return TemplateResponse(request, f"admin/django_webhook_guard/webhookreceipt/{name}.html", context)

    def body_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Hand out the raw bytes as a file, so that nothing in them can run."""
        receipt = self._permitted(request, object_id, self.has_view_permission)
        if not scope.may_read_body(request, receipt):
            raise PermissionDenied
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


def _result(text: str) -> tuple[Any, bool]:
    """Return what a person gave as an effect's result, and whether it could be read."""
    if not text.strip():
        return None, True
    try:
        return parse_json(text.encode()), True
    except (MalformedContent, UnicodeEncodeError):
        return None, False


def _rate(request: HttpRequest) -> float | None:
    try:
        rate = float(request.POST.get("rate", ""))
    except ValueError:
        return None
    return rate if bulk.SLOWEST <= rate <= bulk.FASTEST else None
