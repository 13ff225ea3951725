"""What the overview's template cannot say by itself."""

from django import template

from django_webhook_guard.admin import columns, overview

register = template.Library()
register.simple_tag(columns.moment, name="moment")
register.simple_tag(overview.described, name="described")
