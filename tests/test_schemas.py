import pytest
from rest_framework import serializers

from django_webhook_guard import schemas
from django_webhook_guard.schemas import SchemaMismatch, schema_for, validated


class Line(serializers.Serializer):
    sku = serializers.CharField()


class Order(serializers.Serializer):
    amount = serializers.IntegerField(min_value=1)
    lines = Line(many=True, required=False)
    tags = serializers.DictField(child=serializers.IntegerField(), required=False)


class Other(serializers.Serializer):
    pass


SCHEMAS = (("order.*", Order), ("*", Other))


@pytest.mark.parametrize(("event_type", "found"), [("order.paid", Order), ("Order.paid", Other), ("", Other)])
def test_the_first_pattern_that_matches_counts(event_type, found):
    assert schema_for(SCHEMAS, event_type) is found


def test_a_missing_type_is_matched_by_the_star_only():
    assert schema_for((("?*", Order), ("", Order)), "") is None


def test_validated_data_is_what_the_serializer_makes():
    assert validated(Order, {"amount": "5", "more": 1}) == {"amount": 5}


@pytest.mark.parametrize(
    ("data", "told"),
    [
        ({}, "amount: required"),
        ({"amount": 0}, "amount: min_value"),
        ({"amount": "secret"}, "amount: invalid"),
        ({"amount": 1, "lines": [{"sku": "a"}, {}]}, "lines.1.sku: required"),
        ({"amount": 1, "tags": {"a\r\nb": "x"}}, "tags.a??b: invalid"),
        ([], "non_field_errors: invalid"),
        (None, "non_field_errors: null"),
    ],
)
def test_a_mismatch_says_where_and_which_rule_and_no_value(data, told):
    with pytest.raises(SchemaMismatch) as raised:
        validated(Order, data)
    assert raised.value.detail == f"does not fit the schema: {told}"


def test_a_mismatch_in_many_places_is_short(monkeypatch):
    monkeypatch.setattr(schemas, "MAX_ERRORS", 2)
    with pytest.raises(SchemaMismatch, match=r"0\.sku: required; lines\.1\.sku: required; and 3 more$"):
        validated(Order, {"amount": 1, "lines": [{}] * 5})
