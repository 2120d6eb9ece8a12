"""One guarded request on its way through Django, from its body to what its client is sent.

request.py      Django's request and response as the engine knows them; body.py, the body's copy
exchange.py     the steps of its flow, and what becomes of the view's response; exchange_async.py awaits
running.py      runs a view that has claimed; transaction.py, in a transaction; atomic.py, ATOMIC_REQUESTS
held.py         what the middleware and the view leave for each other
"""
