"""The table of IANA's names against the openssl command."""

from __future__ import annotations

import subprocess

from kbatch.network.cipher_suites import IANA_SUITES, cipher_suites
from tests.support.certificates import needs_openssl


@needs_openssl
def test_numbers_and_names_are_those_of_the_openssl_command() -> None:
    command = ["openssl", "ciphers", "-V", "-stdname", "ALL:COMPLEMENTOFALL:@SECLEVEL=0"]
    printed = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
    known = {}
    for line in printed.splitlines():
        number, _, iana_name, _, openssl_name, *_ = line.split()
        high, low = number.split(",")
        known[iana_name] = int(high, 16) << 8 | int(low, 16), openssl_name
    compared = IANA_SUITES.keys() & known.keys()
    assert len(compared) > 40
    for name in compared:
        assert (IANA_SUITES[name], cipher_suites([name]).openssl) == known[name]
