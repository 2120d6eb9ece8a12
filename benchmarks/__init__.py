"""What retrysafe costs: `make bench`, or `python -m benchmarks --help`.

Everything is measured side by side in one run and told as a ratio, because machines are noisy and differ:
times mean little, ratios hold.  A later store or framework plugs in with an entry in `variants.py` and a
function in `apps.py`, or in `writing.py` if its handler writes to a database.
"""
