from django.apps import AppConfig


class ProjectConfig(AppConfig):
    name = "tests.project"
    label = "project"
    default_auto_field = "django.db.models.BigAutoField"
