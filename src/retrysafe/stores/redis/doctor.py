"""Checks of `retrysafe doctor` on Redis."""
