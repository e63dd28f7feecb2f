"""What is in a wheel, as CycloneDX says it (PEP 770): for scanners that look for known vulnerabilities.

The distribution's own metadata names the packages that it needs. This names what was compiled into it, which
is in no other file: the C that Cython writes into each module, and the compiler.
"""

from __future__ import annotations

import json
import uuid
from datetime import UTC, datetime
from importlib.metadata import version as version_of
from typing import Any

from release import project, time_of_source
from release.platforms import Platform


def document(version: str, target: Platform, python: str) -> str:
    """Return the bill of materials of a version's wheel for a platform and a version of CPython."""
    name = project()["name"]
    purl = f"pkg:pypi/{name}@{version}"
    identity = f"{purl}?python={python}&platform={target.tag}&time={time_of_source()}"
    serial = uuid.uuid5(uuid.NAMESPACE_URL, identity)  # equal wheels have equal numbers
    compiled_in = _component("Cython", version_of("Cython"), "Apache-2.0")
    compiled_in["description"] = "The C that it writes into each native module"
    found = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
        "metadata": {
            "timestamp": datetime.fromtimestamp(time_of_source(), UTC).isoformat(),
            "tools": {"components": [_tool("ziglang"), _tool("setuptools")]},
            "component": {**_component(name, version, project()["license"]), "bom-ref": purl},
        },
        "components": [compiled_in],
        "dependencies": [{"ref": purl, "dependsOn": [compiled_in["bom-ref"]]}],
    }
    return json.dumps(found, indent=2, sort_keys=True) + "\n"


def _component(name: str, version: str, license_id: str) -> dict[str, Any]:
    purl = f"pkg:pypi/{name.lower()}@{version}"
    licenses = [{"license": {"id": license_id}}]
    identity = {"name": name, "version": version, "purl": purl, "bom-ref": purl}
    return {"type": "library", **identity, "licenses": licenses}


def _tool(name: str) -> dict[str, Any]:
    return {"type": "application", "name": name, "version": version_of(name)}
