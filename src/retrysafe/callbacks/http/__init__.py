"""Deliveries over HTTP: what they get, and the endpoints of each framework that take them."""
