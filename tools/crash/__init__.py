"""Crashes at length: a shop whose workers are killed, frozen and cut off thousands of times, and somebody
from outside who counts.

    python -m tools.crash sqlite --kills 100 --freezes 25
    python -m tools.crash postgresql --kills 100 --freezes 25 --cuts 50 --server-kills 5

Several worker processes serve one socket.  Customers order, each with a key of its own, and come again until
they are answered.  Meanwhile workers are killed (SIGKILL) and frozen (SIGSTOP, beyond the lease, and then
SIGCONT), four in ten anywhere, the others at named places: those of `modes.PLACES`, in turn.  A report
says how often each was reached ("named places"), and so which were not.
Connections to the database are cut, and its server is killed and started again.  This is what must hold:

tx      what was committed is what is stored is what everybody was told, once for each key (I14)
hold    nothing is executed twice, ever (I13); where an owner died, and only there, the outcome may be unknown
retry   executed at most once more for each attempt that may have lost its lease (I15)
all     all answers to a key are equal, some headers included (I4, I5), and what a client was told is stored,
        and stays as it is (I1);
        what the clients of a key saw is linearizable (I6); every key is answered when faults are over (I11)

How many attempts can have lost their lease is known from outside, by who was struck when (`chronicle.py`);
the store is not asked.  A campaign in which too few keys are answered has failed, too, and so has one in
which nearly every execution has an excuse: where nothing can be found, that nothing was found says nothing.

    modes.py      what is promised in each mode, and the places
    targets.py    a store under attack; sqlite.py and postgresql.py are two
    shop.py       takes orders; desks.py writes them
    sockets.py    whose connection was cut
    traps.py      where one of its workers can be made to die or to freeze; commits.py
    fleet.py      its workers, on one socket; journal.py is what they write down as it happens
    clients.py    customers, who try each key until they are answered, or walk away; hearing.py
    mischief.py   who kills, freezes and cuts
    audit.py      what is in the database, read through a connection of its own
    chronicle.py  what really happened; reckoning.py holds it against what was promised
    campaign.py   all of them together, with one mode and one way; assault.py is many campaigns
    sabotage.py   a shop that is broken on purpose, for the tests of the harness itself

To bring a store of your own, write a subclass of `targets.Target`, which says how to start the server, how
workers open the store, and how to look at it from outside; and name it as an entry point in your package:

    [project.entry-points."retrysafe.crash"]
    mystore = "mypackage.crash:MyStore"

`python -m tools.crash mystore --kills 100` then attacks it.  A store without transactions says
`modes = ("hold", "retry")` and needs no `desk`.  Its snapshot is a `Sight` with what is stored for each key;
one that has transactions also says what is in the two tables of the shop (`audit.TABLES`).
"""
