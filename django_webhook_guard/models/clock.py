"""The clock that all of several processes share."""

from typing import Any

from django.db.models.functions import Now


class DatabaseNow(Now):
    """The database's clock in UTC, as the columns are; Django's own follows the time zone of MariaDB's session."""

    def as_mysql(self, compiler: Any, connection: Any, **extra_context: Any) -> Any:
        return self.as_sql(compiler, connection, template="UTC_TIMESTAMP(6)", **extra_context)
