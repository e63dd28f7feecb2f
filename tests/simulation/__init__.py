"""Worlds of virtual time, brokers and faults, each from a seed: `python -m tests.simulation`.

`worlds` is the door: `simulate(seed)`, `simulate_readers(seed)`. `world` has what all of them are made of;
`producers`, `transactions` and `readers` have the worlds of each kind, and the checks of their promises;
`planted` has the bugs that they must detect.
"""
