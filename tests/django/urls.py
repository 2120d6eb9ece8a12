"""No routes: each module of tests has its own, see the fixture `client`."""

from django.urls import URLPattern

urlpatterns: list[URLPattern] = []
