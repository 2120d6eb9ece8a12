"""The checklist: what a client can see, by the numbers that stay.

The numbers have gaps.  49 and 77 are about transactional mode alone, in which 48, 50, 76 and 83 have
other results, and a part of 95; messages (86 to 93) have no adapter yet.
"""

SECTIONS = {
    "Header syntax": {
        1: "a quoted key is accepted",
        2: "the same key twice runs once",
        3: "bare and quoted are one key",
        4: "the header's name has no case",
        5: "two different keys are refused",
        6: "two equal keys are refused",
        7: "escapes are part of the quoting, not of the key",
        8: "a malformed key is refused, never ignored",
        10: "bytes that are not printable ASCII are refused",
        11: "an empty key is refused",
        12: "255 characters are a key, 256 are not",
    },
    "Enforcement": {
        15: "a route can require a key",
        16: "without a key every request runs",
        17: "a retry gets the same bytes",
        18: "two keys are two requests",
        19: "one key with two payloads is refused",
        22: "GET ignores the key",
        23: "HEAD and OPTIONS ignore the key",
        24: "one key on two routes never mixes their responses",
        25: "DELETE is covered; other methods are not touched",
        26: "refusals are well-formed problems",
        27: "a problem's type leads to the published promises",
    },
    "Concurrency": {
        28: "a duplicate during the first run is refused",
        29: "the refusal says when to retry",
        30: "afterwards it is replayed",
        32: "many at once run once",
        33: "or they wait for the first one, up to a limit",
        34: "the refusal is not stored",
        35: "different keys do not wait for each other",
    },
    "Fingerprint": {
        36: "another query is another request",
        39: "one byte of an upload makes another request",
        40: "the order of JSON members counts, or not, by choice",
        43: "a body over the limit is refused before anything else",
    },
    "What is stored": {
        45: "a refusal by the handler is stored like any response",
        46: "what did not reach the handler, or was refused before it, leaves the key free",
        48: "a failure is replayed, retried or reported, by choice; in a transaction it is undone",
        49: "in a transaction, a handler that raises leaves no effect and no record",
        50: "an unknown outcome is said to be unknown; in a transaction there is none",
        52: "responses without a body are replayed with their headers",
    },
    "Replay fidelity": {
        53: "a replay is marked, a first response is not",
        55: "cookies are not replayed",
        56: "date and request id are new, the original id is in a header",
        57: "no header of the connection, and the right length",
        59: "cross-origin headers are those of the retry",
        60: "any bytes come back unchanged",
        61: "what is too large leaves a tombstone",
        62: "streams: refused meanwhile, replayed after, tombstones beyond the limit",
    },
    "Scope and authorisation": {
        64: "a key belongs to one principal",
        65: "a principal that lost the permission gets no replay",
        66: "a request that fails authentication leaves no trace",
        68: "without a principal there is no shared scope",
        69: "logs and problems do not contain the key",
    },
    "Time": {
        70: "after its retention a key is new",
        73: "a late retry does not bring a deleted thing back",
        74: "a tombstone never runs again",
        75: "a worker's clock does not matter",
    },
    "Crash, lease and store": {
        76: "a killed worker: in flight, then unknown or taken over; in a transaction always taken over",
        77: "in a transaction, killed around the commit: all of it happened, or nothing",
        78: "a long handler keeps its lease",
        81: "a client that hangs up does not lose the outcome",
        82: "without a store nothing runs",
        83: "a response that could not be stored is sent, marked, not run again; in a transaction, undone",
        85: "an operator sees abandoned keys",
    },
    "Compatibility profiles": {
        95: "`stripe`: Stripe's envelope, hints and ids, and what it keeps",
        102: "`erp`: the key is echoed, replays have its marker, malformed keys are 422",
        103: "`agents`: its header, its words while a request runs, users apart",
        104: "`validation-api`: the marker and the original's id, 409 and 422",
        105: "`ietf`: quoted keys; malformed 400, in flight 409, mismatch 422",
    },
}

LINES = {number: title for lines in SECTIONS.values() for number, title in lines.items()}
