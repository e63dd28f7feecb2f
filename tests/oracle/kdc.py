"""A Kerberos KDC (MIT's) on loopback. It needs neither root nor /etc; `.ci/install-kdc` installs it."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Self

from tests.oracle.kafka import free_ports
from tests.support.patience import HANG_SECONDS

HOST = "127.0.0.1"
REALM = "KBATCH.TEST"
POLL_SECONDS = 0.02
# Debian keeps the servers where users do not look.
PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin"
PROGRAMS = ("krb5kdc", "kdb5_util", "kadmin.local", "kinit")
CLIENT_CONFIGURATION = """\
[libdefaults]
  default_realm = {realm}
  dns_lookup_kdc = false
  dns_lookup_realm = false
  dns_canonicalize_hostname = false
  rdns = false
  udp_preference_limit = 1
  default_ccache_name = FILE:{folder}/ccache
[realms]
  {realm} = {{
    kdc = {host}:{port}
  }}
[domain_realm]
  localhost = {realm}
"""
SERVER_CONFIGURATION = """\
[kdcdefaults]
  kdc_listen = {host}:{port}
  kdc_tcp_listen = {host}:{port}
[realms]
  {realm} = {{
    database_name = {folder}/principal
    key_stash_file = {folder}/stash
    acl_file = {folder}/kadm5.acl
    supported_enctypes = aes256-cts-hmac-sha1-96:normal aes128-cts-hmac-sha1-96:normal
  }}
[logging]
  kdc = FILE:{folder}/kdc.log
"""


class KdcMissingError(RuntimeError):
    """There is no KDC on this machine; the text says what is missing."""


class Kdc:
    """A realm, from entering the context to its end.

    `NAME.keytab` of a principal in `folder` has its key; `configuration` is a krb5.conf, which the variable
    KRB5_CONFIG names. Raises KdcMissingError.
    """

    def __init__(self, folder: Path) -> None:
        missing = [program for program in PROGRAMS if shutil.which(program, path=PATH) is None]
        if find_spec("gssapi") is None:
            missing.append("Python package gssapi")
        if missing:
            raise KdcMissingError(f"no {', '.join(missing)}: .ci/install-kdc installs MIT Kerberos")
        self.folder = folder
        self.configuration = self.write_configuration("krb5.conf", free_ports(1)[0])
        self._process: subprocess.Popen[bytes] | None = None

    def write_configuration(self, name: str, port: int) -> Path:
        """Write a krb5.conf whose KDC is at a port."""
        places = {"folder": self.folder, "realm": REALM, "host": HOST, "port": port}
        path = self.folder / name
        path.write_text(CLIENT_CONFIGURATION.format_map(places))
        if name == "krb5.conf":
            self.port = port
            (self.folder / "kdc.conf").write_text(SERVER_CONFIGURATION.format_map(places))
        return path

    @property
    def environment(self) -> dict[str, str]:
        """The variables by which a process finds this realm."""
        return {
            "KRB5_CONFIG": str(self.configuration),
            "KRB5_KDC_PROFILE": str(self.folder / "kdc.conf"),
            "KRB5CCNAME": f"FILE:{self.folder / 'ccache'}",
        }

    def __enter__(self) -> Self:
        (self.folder / "kadm5.acl").touch()
        self.run("kdb5_util", "create", "-s", "-r", REALM, "-P", "master password of a test")
        log = (self.folder / "output").open("wb")
        self._process = subprocess.Popen(
            [self._program("krb5kdc"), "-n", "-r", REALM], env=self._variables(), stdout=log, stderr=log
        )
        log.close()
        self.add("probe")
        deadline = time.monotonic() + HANG_SECONDS
        while self._try("kinit", "-k", "-t", str(self.keytab("probe")), f"probe@{REALM}").returncode:
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.__exit__()
                raise RuntimeError(f"the KDC does not serve: {(self.folder / 'output').read_text()}")
            time.sleep(POLL_SECONDS)
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def keytab(self, principal: str) -> Path:
        return self.folder / f"{principal.partition('/')[0]}.keytab"

    def add(self, principal: str) -> None:
        """Add a principal with a random key, and write its keytab."""
        name = f"{principal}@{REALM}"
        for command in (f"addprinc -randkey {name}", f"ktadd -k {self.keytab(principal)} {name}"):
            self.run("kadmin.local", "-r", REALM, "-q", command)

    def log_in(self, principal: str) -> None:
        """Put a ticket of the principal into the cache that `environment` names."""
        self.run("kinit", "-k", "-t", str(self.keytab(principal)), f"{principal}@{REALM}")

    def run(self, program: str, *arguments: str) -> None:
        done = self._try(program, *arguments)
        if done.returncode:
            raise RuntimeError(f"{program} failed: {done.stdout}{done.stderr}")

    def _try(self, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self._program(program), *arguments],
            env=self._variables(),
            capture_output=True,
            text=True,
            timeout=HANG_SECONDS,
        )

    def _program(self, name: str) -> str:
        return shutil.which(name, path=PATH) or name

    def _variables(self) -> dict[str, str]:
        return {**os.environ, **self.environment}
