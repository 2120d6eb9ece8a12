"""The crash harness: workers of an application are killed, frozen and cut off thousands of times, and what
clients received is compared with what was executed and what is stored.

    python -m tools.crash sqlite --kills 100 --freezes 25
    python -m tools.crash postgresql --kills 100 --freezes 25 --cuts 50 --server-kills 5 --outages 5
    python -m tools.crash postgresql --kills 100 --freezes 25 --door operation
    python -m tools.crash postgresql --kills 100 --freezes 25 --door callback

Several worker processes serve one socket.  Clients order, each with a key of its own, and retry until they
have a response that lasts; or senders deliver events, late, in any order and several times, until they are
acknowledged.  Meanwhile workers are killed (SIGKILL) and frozen (SIGSTOP, beyond the lease, and then
SIGCONT), four in ten anywhere, the others at named places: those of `modes.places`, in turn.  A report has
how often each was reached ("named places"), and so which were not.  Connections to the database are cut, its
server is killed and started again, and it is out of reach for longer than a lease while a response that is
too large to store flows.  This is what must hold:

tx      what was committed is what is stored is what every client received, once for each key (I14)
nested  the same where a part of an order is an operation in its transaction, with a key that two orders may
        share: done once, and with its record only beside an order that was committed (`--door operation`)
hold    nothing is executed twice, ever (I13); where an owner died, and only there, the outcome may be unknown
retry   executed at most once more for each attempt that may have lost its lease (I15); an operation passes
        on a derived key, which is the same in every attempt
payload as tx; and what a delivery has begun and left is handled by a worker, although its sender does not
        come back (`--door callback`)
inbox   as retry; and what was acknowledged is handled by a worker (`--door callback`)
all     all responses to a key are equal, some headers included (I4, I5); what a client received is stored,
        and stays as it is (I1): after a response that arrived whole, no retry gets `outcome-unknown`;
        what the clients of a key saw is linearizable (I6); once faults are over, every key gets a response
        (I11)
events  what was acknowledged has been handled, and its receipt says so; or its payload is stored (I23).  Once
        it was handled, every later delivery is told so.  Once faults are over, nothing is left to a worker

How many attempts can have lost their lease is known from outside, by which worker was interrupted when
(`journal.py`); the store is not asked.  A run in which too few keys get a response has failed, too, and so
has one in which nearly every execution has an excuse: where nothing can be found, finding nothing means
nothing.

    modes.py         what is promised in each mode, and the named places
    targets.py       a store under test; sqlite.py and postgresql.py are two
    application.py   takes orders; operations.py: by operations that workers call; deliveries.py: as events
    payloads.py      workers that handle stored payloads
    handlers.py      how an order has its effect
    traps.py         where one of its workers can be killed or frozen
    workers.py       its worker processes, on one socket
    journal.py       what they write while they serve, and what follows from it
    callers.py       retry each key until they have a response that lasts, or give up: clients.py with orders,
                     senders.py with events
    faults.py        kills, freezes, cuts, takes the database away
    audit.py         what is in the database, read through a connection of its own
    checks.py        what must hold of all that
    rounds.py        all of them together, with one mode and one way; run.py is many rounds
    planted.py       bugs in the application, for the tests of the harness itself

To test a store of your own, write a subclass of `targets.Target`, which has how to start the server, how
workers open the store, and how to read it from outside; and name it as an entry point of your package:

    [project.entry-points."retrysafe.crash"]
    mystore = "mypackage.crash:MyStore"

`python -m tools.crash mystore --kills 100` then runs against it.  A store without transactions has
`modes = ("hold", "retry")` and needs no `handlers`.  Its snapshot has what is stored for each key; one with
transactions also has what is in the two tables of the application (`audit.TABLES`).
"""
