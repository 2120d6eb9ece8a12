"""One small, deliberately strange service, written once per framework and started as a real server.

It does everything that breaks an idempotency layer: it is slow, it streams, it fails half-way, it
kills its own process.  The adapter suite runs against it over real sockets, and so can your
own checks, in any language:

    python -m retrysafe.testing.reference asgi --store sqlite:///keys.db --port 8000
    python -m retrysafe.testing.reference wsgi --store sqlite:///keys.db --port 8000 --server waitress
    python -m retrysafe.testing.reference django-async --store postgresql://… --port 8000

`service.py` says what the routes do, `ledger.py` remembers it across processes, `routes.py` names
them.  What has the name of a framework puts it on the wire; `serve.py` and `serve_wsgi.py` start it.
"""
