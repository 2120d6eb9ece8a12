"""Routes of the service with an endpoint that was forgotten: for the test of what CI would say of it."""

from django.urls import path
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from examples.validation_service.urls import urlpatterns as own


class Invoices(APIView):
    def post(self, request: Request) -> Response:  # noqa: ARG002 - it is never called
        return Response()


urlpatterns = [*own, path("api/invoices/", Invoices.as_view())]
