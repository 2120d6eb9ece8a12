"""Routes that nothing imports before the first request of a test."""

from django.urls import path
from django.views import View

from retrysafe.callbacks import receipts
from retrysafe.django import guard

late = receipts(guard("job-callbacks"), source="late")


class Late(View):
    @late.django
    def post(self, event: object) -> None: ...


urlpatterns = [path("late/", Late.as_view())]
