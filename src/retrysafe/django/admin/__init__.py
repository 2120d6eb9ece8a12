"""Django's admin site: records to be found and read, and abandoned ones to be settled.

    records.py        the list, the page of one record, and the page of figures
    settling.py       releasing and resolving: actions, confirmations, and what they do
    base.py           what both have in common: permissions, addresses, cells
    rows.py           rows with their standing by the store's clock, and as the values of the command line
    listing.py        the list without counting: filters, search, the first thousand
    page.py           what the page of one record shows
    interventions.py  what an operator saw, what they say about it, and what came of it
    figures.py        the page of figures
    audit.py          who intervened, when and why

What is shown, hidden and said is what the command line shows, hides and says.
"""

from django.contrib import admin
from django.contrib.admin import AdminSite

from retrysafe.django.admin.audit import AuditEntryAdmin
from retrysafe.django.admin.records import RecordAdmin
from retrysafe.django.models import AuditEntry, Record
from retrysafe.django.settings import database
from retrysafe.errors import ConfigurationError

__all__ = ["AuditEntryAdmin", "RecordAdmin", "register"]


def register(site: AdminSite) -> None:
    """Have a site show records and audit entries, if they are in a database of Django's."""
    try:
        alias = database()
    except ConfigurationError:
        return  # the system checks say what is wrong
    if alias is not None:
        site.register(Record, RecordAdmin)
        site.register(AuditEntry, AuditEntryAdmin)


register(admin.site)
