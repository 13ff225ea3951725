"""The test project as live servers run it: with handlers, and able to die anywhere."""

from django.conf import settings

from tests.project.apps import ProjectConfig


class LiveConfig(ProjectConfig):
    def ready(self):
        from tests.project import handlers, killer  # noqa: F401 - registers the handlers

        if settings.DISPATCHER == "celery":
            from tests.project import broker  # noqa: F401 - tells shared tasks which app they belong to
        killer.install()
