"""The API, its description, and the admin site."""

from django.contrib import admin
from django.urls import include, path
from drf_spectacular.views import SpectacularAPIView
from rest_framework.routers import DefaultRouter

from examples.validation_service.validations.callbacks import check_finished
from examples.validation_service.validations.views import OrganisationView, RunViewSet, WorkflowViewSet

router = DefaultRouter()
router.register("workflows", WorkflowViewSet)
router.register("runs", RunViewSet)

urlpatterns = [
    path("api/", include(router.urls)),
    path("api/organisation/", OrganisationView.as_view(), name="organisation"),
    path("api/callbacks/", check_finished, name="callbacks"),
    path(
        "api/schema/",
        SpectacularAPIView.as_view(authentication_classes=[], permission_classes=[]),
        name="schema",
    ),
    path("admin/", admin.site.urls),
]
