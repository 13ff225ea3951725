"""The test project as live servers run it: with handlers, and able to die anywhere."""

from tests.project.apps import ProjectConfig


class LiveConfig(ProjectConfig):
    def ready(self):
        from tests.project import handlers, killer  # noqa: F401 - registers the handlers

        killer.install()
