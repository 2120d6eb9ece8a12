"""Bugs that were really made, planted one at a time, to see whether the simulator or a test finds them.

A simulator that never fails proves nothing.  Each bug names where it was seen, and the world in which it
shows; `hunt.py` looks for a schedule that gives it away.  What the simulator does not meet names a test of
the library instead; `by_tests.py` runs it with the bug in the code.
"""
