"""The store in a database of Django's, by its alias in `DATABASES`.

    PostgreSQL, with psycopg 3      the PostgreSQL store, its connections opened as Django opens its own
    MySQL and MariaDB               the MySQL store, by mysqlclient, or PyMySQL in its place
    SQLite, in a file               the SQLite store, on that file

They have connections of their own, so a view that holds Django's never waits for another one, and a
reservation is committed before the view begins.  Django applies the migrations.

Two exceptions work on Django's own connection: inside of the caller's `atomic()`, where whatever is written
has to be undone with it, and in Django's test environment, whose tests roll back what they did, and drop a
database that must have no other connection.
"""

from retrysafe.stores.sql.django.store import DjangoStore

__all__ = ["DjangoStore"]
