"""The documents against the code."""

import ast
import json
import re
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace

import environ
import pytest
from django.core.management import BaseCommand, load_command_class
from django.test import RequestFactory
from django.urls import resolve

from django_webhook_guard import checks, conf, counts, handlers, options
from django_webhook_guard.admin import changelist, retrying
from django_webhook_guard.api import answering, paging, views
from django_webhook_guard.api.answering import ContentSerializer
from django_webhook_guard.api.asking import ListQuery, Seen
from django_webhook_guard.api.permissions import ACTS
from django_webhook_guard.management import commands
from django_webhook_guard.models import WebhookReceipt
from django_webhook_guard.models.receipts import Status
from django_webhook_guard.providers import PROVIDERS, Provider
from django_webhook_guard.providers.generic_hmac import OPTIONS
from django_webhook_guard.retries import RetryPolicy
from django_webhook_guard.sources import STATUS
from tests import senders

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
SETTINGS = (ROOT / "docs/settings.md").read_text()
CHECKS = (ROOT / "docs/checks.md").read_text()
HANDLERS = (ROOT / "docs/handlers.md").read_text()
API = (ROOT / "docs/api.md").read_text()
COMMANDS = (ROOT / "docs/commands.md").read_text()
ADMIN = " ".join((ROOT / "docs/admin.md").read_text().split())


def blocks(text, language="python"):
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


EXAMPLES = [
    pytest.param(block, id=f"{page.name}-{number}")
    for page in PAGES
    for number, block in enumerate(blocks(page.read_text()), start=1)
]


def example(text, words, **names):
    """Execute the one Python example that holds the words, and return its names."""
    (found,) = [block for block in blocks(text) if words in block]
    exec(compile(found, words, "exec"), names)
    return names


# -- every document ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("block", EXAMPLES)
def test_every_name_that_an_example_imports_exists(block):
    for node in ast.walk(ast.parse(block)):
        if isinstance(node, ast.ImportFrom) and node.module.startswith(("django_webhook_guard", "django.")):
            module = import_module(node.module)
            assert [alias.name for alias in node.names if not hasattr(module, alias.name)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\((?!https?:)([^)]+)\)", page.read_text()):
        path, _, anchor = target.partition("#")
        linked = (page.parent / path).resolve() if path else page
        assert linked.exists(), target
        assert not anchor or anchor in anchors(linked.read_text()), target


def anchors(text):
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    slugs = {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}
    return slugs | set(re.findall(r'<a id="([^"]+)">', text))


# -- README ------------------------------------------------------------------------------------------------------------


def test_readme_has_both_commands_on_one_line_each():
    commands = [line for block in blocks(README, "sh") for line in block.splitlines() if "venv" in line]
    assert [command.rsplit("python", 1)[1] for command in commands] == [" manage.py demo", " -m tests"]
    assert all(command.startswith("python3 -m venv .venv && ") for command in commands)


def test_the_smallest_settings_work(monkeypatch):
    monkeypatch.setenv("STRIPE_WEBHOOK_SECRETS", senders.STRIPE_SECRET)
    written = example(README, "STRIPE_WEBHOOK_SECRETS", INSTALLED_APPS=[])
    assert written["INSTALLED_APPS"] == ["django_webhook_guard"]
    assert conf.read(written["WEBHOOK_GUARD"]).problems == ()


def test_the_urls_work():
    (pattern,) = example(README, "urlpatterns")["urlpatterns"]
    assert pattern.resolve("webhooks/stripe/").kwargs == {"source": "stripe"}


@pytest.mark.django_db(transaction=True)
def test_the_first_handler_works(monkeypatch, post):
    made = []
    shop = ModuleType("shop.models")
    shop.Invoice = SimpleNamespace(
        objects=SimpleNamespace(create=lambda **values: made.append(values) or SimpleNamespace(pk=7))
    )
    monkeypatch.setitem(sys.modules, "shop", ModuleType("shop"))
    monkeypatch.setitem(sys.modules, "shop.models", shop)
    function = example(README, "shop.models", __name__="shop.webhook_handlers")["create_invoice"]
    paid = {"id": "in_1", "amount_paid": 4200}
    try:
        content = {"id": "evt_1", "type": "invoice.payment_succeeded", "data": {"object": paid}}
        assert post("stripe", content).status_code == 200
    finally:
        handlers.unregister(function)
    assert made == [{"stripe_id": "in_1", "amount": 4200}]
    assert WebhookReceipt.objects.get().result == "created invoice 7"


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("customer", "answer"),
    [
        ({"id": "cus_1"}, (200, "processed")),
        ({}, (200, "gave_up")),
        ({"id": "cus_1", "pending": True}, (503, "retry_later")),
    ],
)
def test_the_handler_example_works(post, customer, answer):
    function = example(README, "sync-customer")["sync_customer"]
    try:
        response = post("stripe", {"id": "evt_1", "type": "customer.updated", "data": {"object": customer}})
    finally:
        handlers.unregister(function)
    assert (response.status_code, response.json()["status"]) == answer


@pytest.mark.django_db(transaction=True)
def test_the_view_example_works():
    view = example(README, "SignedWebhookMixin")["StripeWebhook"].as_view()
    body = senders.dumps({"id": "evt_1", "type": "x"})
    request = RequestFactory().post("/x/", body, content_type="application/json", headers=senders.stripe(body))
    response = view(request)
    assert (response.status_code, response["X-Decision"]) == (200, "ignored")


def test_readme_lists_every_state():
    assert re.findall(r"^\| `(\w+)` \|", README.split("## States")[1].split("##")[0], re.MULTILINE) == Status.values


# -- docs/settings.md --------------------------------------------------------------------------------------------------


def test_every_setting_is_described_and_no_other():
    described = {
        name for title in re.findall(r"^## (.+)$", SETTINGS, re.MULTILINE) for name in re.findall(r"`([A-Z_]+)`", title)
    }
    assert described == {"SOURCES", *options.PER_SOURCE, *options.COMMON, *options.TOP_ONLY}


@pytest.mark.parametrize("part", re.split(r"^## ", SETTINGS, flags=re.MULTILINE)[2:], ids=lambda part: part[:12])
def test_every_setting_says_default_and_example(part):
    title = part.partition("\n")[0]
    if title.startswith("`"):
        assert "required" in title or "Default" in part
        assert ":" in title  # its type
        assert any(word in part for word in ("Example:", "```python", "Say `False`"))


def test_the_examples_of_settings_are_right():
    written = example(SETTINGS, '"RELEASE"')
    assert conf.read(written["WEBHOOK_GUARD"]).problems == ()


def test_every_provider_is_described():
    table = SETTINGS.split('<a id="providers">')[1].split('`"generic-hmac"`')[0]
    assert re.findall(r"^\| `([\w-]+)` \|", table, re.MULTILINE) == list(PROVIDERS)


def test_the_provider_example_works():
    assert isinstance(example(SETTINGS, "ACME = Provider")["ACME"], Provider)


def test_every_option_is_described_and_the_example_works():
    table = SETTINGS.split('<a id="options">')[1].split("The event's id")[0]
    described = [
        name for row in re.findall(r"^\| (`.+?) \|", table, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)
    ]
    assert set(described) == set(OPTIONS)
    source = example(SETTINGS, "ACME = {")["ACME"]
    assert conf.read({"SOURCES": {"acme": source}}).problems == ()


def test_the_secrets_example_works():
    names = example(SETTINGS, "def secrets_for")
    source = conf.read(
        {"SOURCES": {"shops": {"PROVIDER": "stripe", "TENANT": "url", "SECRETS": names["secrets_for"]}}}
    ).sources["shops"]
    (secret,) = source.live_secrets("north", None)
    assert secret.tenant == "north"
    with pytest.raises(names["UnknownTenant"]):
        source.live_secrets("south", None)


def test_the_environment_example_works(monkeypatch):
    monkeypatch.setenv("WEBHOOK_SOURCES", "stripe,acme-eu")
    monkeypatch.setenv("WEBHOOK_STRIPE_SECRETS", senders.STRIPE_SECRET)
    monkeypatch.setenv("WEBHOOK_ACME_EU_PROVIDER", "signed-nonce")
    monkeypatch.setenv("WEBHOOK_ACME_EU_SECRETS", f'[{{"secret": "{senders.PARTNER_SECRET}", "id": "v1"}}]')
    read = conf.read(example(SETTINGS, "sources(env)")["WEBHOOK_GUARD"])
    assert read.problems == ()
    assert [source.provider.name for source in read.sources.values()] == ["stripe", "signed-nonce"]


def test_a_secret_that_begins_with_a_dollar_is_as_described(monkeypatch):
    monkeypatch.setenv("PARTNER", "$ecret-0123456789abcdef")
    with pytest.raises(environ.ImproperlyConfigured):
        environ.Env().str("PARTNER")


def test_retry_is_described_with_its_defaults():
    table = SETTINGS.split("## `RETRY`")[1].split("##")[0]
    described = {
        name: float(value.replace(",", ""))
        for name, value in re.findall(r"^\| `(\w+)` \|.*?, ([\d,.]+)(?: \(.*\))? \|$", table, re.MULTILINE)
    }
    assert described == vars(RetryPolicy())


def test_every_decision_is_described_with_its_status():
    table = SETTINGS.split("## `RESPONSES`")[1]
    described = {name: int(status) for name, status in re.findall(r"^\| `(\w+)` \| (\d+) \|", table, re.MULTILINE)}
    assert described == STATUS


# -- docs/checks.md, docs/handlers.md, docs/admin.md -------------------------------------------------------------------


def test_every_check_is_described_and_no_other():
    package = Path(checks.__file__).parent
    known = {id for file in package.rglob("*.py") for id in re.findall(r"\b[EW]\d{3}\b", code(file))}
    assert set(re.findall(r"^\| `([EW]\d{3})` \|", CHECKS, re.MULTILINE)) == known


def code(file):
    """The text without the ``noqa`` comments, which name rules of the linter."""
    return re.sub(r"#\s*noqa.*", "", file.read_text())


def test_every_argument_of_a_handler_is_described():
    table = HANDLERS.split("| argument |")[1].split("\n\n")[0]
    described = re.findall(r"^\| `?(\w+)`? \|", table, re.MULTILINE)
    arguments = handlers.webhook_handler.__code__
    names = arguments.co_varnames[: arguments.co_argcount + arguments.co_kwonlyargcount]
    assert described == list(names)


def test_the_examples_of_handlers_work():
    function = example(HANDLERS, "mirror")["mirror"]
    handlers.unregister(function)
    assert function(SimpleNamespace(object_key="a/b")) == "mirrored a/b"


def test_the_numbers_and_permissions_of_the_admin_are_right():
    assert f"the first {retrying.RUNS} are run in the request, for at most {retrying.SECONDS:.0f} seconds" in ADMIN
    assert f"At most {changelist.REACH:,} receipts are counted" in ADMIN
    meta = WebhookReceipt._meta
    known = [name for name, _ in meta.permissions] + [f"{each}_webhookreceipt" for each in meta.default_permissions]
    assert set(re.findall(r"`django_webhook_guard\.(\w+_webhookreceipt\w*)`", ADMIN)) == set(known)


# -- docs/api.md -------------------------------------------------------------------------------------------------------


def rows_of(text, title):
    """The first cells of the tables of a part."""
    part = text.split(f"## {title}\n")[1].split("\n## ")[0]
    return [name for row in re.findall(r"^\| (`.+?) \|", part, re.MULTILINE) for name in re.findall(r"`([^`]+)`", row)]


def test_the_addresses_of_the_rest_interface_are_routed(settings):
    urls = ModuleType("documented_urls")
    urls.urlpatterns = example(API, "django_webhook_guard.api.urls")["urlpatterns"]
    settings.ROOT_URLCONF = urls
    addresses = re.findall(r"^\| `([a-z<>/]+/)` \| (GET|POST) \|", API, re.MULTILINE)
    assert len(addresses) == 10
    for address, method in addresses:
        view = resolve(f"/api/webhooks/{address}".replace("<id>", "1")).func
        assert method.lower() in (getattr(view, "actions", None) or vars(view.cls)), address


def test_the_rest_interface_documents_permissions_parameters_and_bounds():
    known = {codename for codename, _name in WebhookReceipt._meta.permissions} | {"view_webhookreceipt"}
    described = set(rows_of(API, "Who may what"))
    assert described == {name for name in known if name.split("_")[0] in (*ACTS, "view")}
    assert set(rows_of(API, "The list")) == set(ListQuery().fields)
    assert f"at most {paging.LONGEST_PAGE};" in API
    assert f"{paging.PAGE} unless said otherwise" in API
    assert f"{answering.LONGEST // 1024} KiB" in API
    assert f"`reach`, {counts.REACH:,}" in API
    assert f"the newest {views.ATTEMPTS} attempts" in API


def test_the_example_of_a_wish_is_one():
    (written,) = blocks(API, "http")
    assert Seen(data=json.loads(written.partition("\n\n")[2])).is_valid()


def test_the_states_of_a_payload_are_described():
    part = API.split("## A receipt")[1].split("##")[0]
    assert all(f"`{state}`" in part for state in ContentSerializer().fields["state"].choices)


@pytest.mark.django_db
def test_the_example_of_who_sees_what_works(rf, django_user_model):
    receipts_for = example(SETTINGS, "def receipts_for")["receipts_for"]
    request = rf.get("/")
    request.user = django_user_model.objects.create_user("vera")
    assert "IN (SELECT" in str(receipts_for(request).query)
    request.user = django_user_model(is_superuser=True)
    assert not receipts_for(request).query.where


# -- docs/commands.md --------------------------------------------------------------------------------------------------

KNOWN_COMMANDS = sorted(file.stem for file in Path(commands.__file__).parent.glob("webhook_*.py"))


def test_every_command_is_described():
    rows = re.findall(r"^\| (`webhook_.+?) \|", COMMANDS, re.MULTILINE)
    assert sorted(name for row in rows for name in re.findall(r"`(\w+)`", row)) == KNOWN_COMMANDS


@pytest.mark.parametrize("name", ["show", "retry", "export", "send", "drill"])
def test_every_option_of_a_command_is_described(name):
    parser = load_command_class("django_webhook_guard", f"webhook_{name}").create_parser("manage.py", "")
    django_own = BaseCommand().create_parser("manage.py", "")
    options = set(parser._option_string_actions) - set(django_own._option_string_actions)
    assert [option for option in options if f"`{option}" not in COMMANDS] == []


def test_the_drill_handler_works():
    function = example(COMMANDS, "on_drill")["on_drill"]
    assert handlers.matching("stripe", "webhook_guard.drill")
    handlers.unregister(function)
    assert function(None) == "the handlers run"
