"""Bugs that the worlds must detect: BUGS has all of them, in the order of docs/simulation.md."""

from importlib import import_module

from tests.simulation.planted.planting import BUGS as BUGS

MODULES = "producers lanes logins metadata process readers replicas rounds rules tables transactions waiting"
for module in MODULES.split():
    import_module(f"tests.simulation.planted.{module}")
