"""Crashes at length: a shop that writes orders in transactional mode, killed, frozen and cut off a thousand
times, and somebody from outside who counts.

    python -m tests.crash --store postgresql --kills 1000

    orders.py     the shop: an order is two rows and an answer, and they belong together
    traps.py      where one of its workers can be made to die or to freeze
    fleet.py      its workers, on one socket
    clients.py    customers, who try each key until they are answered, or walk away; what they heard
    mischief.py   who kills, freezes and cuts
    audit.py      what is in the database, read through a connection of its own, and what must hold of it
    campaign.py   all of them together
"""
