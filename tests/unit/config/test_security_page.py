"""Every recipe of docs/security.md is a configuration that kbatch accepts."""

from __future__ import annotations

import re
import sys
from datetime import datetime
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from kbatch.config import ProducerConfig, read_properties
from tests import ROOT

PAGE = (ROOT / "docs" / "security.md").read_text()
# The service and the fence, the code's language and the code.
RECIPES = re.findall(r"^```(\w+)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
PROPERTIES = [code for language, code in RECIPES if language == "properties"]
CALLABLES = [code for language, code in RECIPES if language == "python" and "settings = " in code]


def _security(config: ProducerConfig) -> tuple[str, str]:
    return config.security_protocol, config.sasl_mechanism


@pytest.mark.parametrize("recipe", PROPERTIES, ids=lambda recipe: recipe.split("=", 1)[1].split(":")[0])
def test_properties_of_a_service_are_accepted(recipe: str, tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text(recipe)
    settings = read_properties(path)
    config = ProducerConfig(settings)
    assert _security(config) == (settings["security.protocol"], settings.get("sasl.mechanism", "GSSAPI"))
    assert "PASSWORD" not in repr(config)
    assert "SECRET" not in repr(config)


class _Credentials:
    """Stand-in for the credentials of Azure's and Google's libraries."""

    valid = False
    token = "ya29.token"
    expiry = datetime(2030, 1, 1)
    service_account_email = "writer@example.com"

    def refresh(self, request: object) -> None:
        self.valid = True

    def get_token(self, scope: str) -> SimpleNamespace:
        return SimpleNamespace(token="eyJ", expires_on=1_893_456_000)


def _module(monkeypatch: pytest.MonkeyPatch, name: str, **contents: object) -> None:
    module = ModuleType(name)
    vars(module).update(contents)
    monkeypatch.setitem(sys.modules, name, module)


@pytest.fixture
def libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put stand-ins of the libraries that the recipes import where Python finds them."""
    _module(monkeypatch, "azure")
    _module(monkeypatch, "azure.identity", DefaultAzureCredential=_Credentials)
    auth = ModuleType("google.auth")
    vars(auth).update(default=lambda scopes: (_Credentials(), "project"))
    monkeypatch.setitem(sys.modules, "google.auth", auth)
    _module(monkeypatch, "google", auth=auth)
    _module(monkeypatch, "google.auth.transport")
    _module(monkeypatch, "google.auth.transport.requests", Request=object)


@pytest.mark.usefixtures("libraries")
@pytest.mark.parametrize("recipe", CALLABLES, ids=["azure", "google"])
def test_callable_of_a_service_gives_a_token_until_2030(recipe: str) -> None:
    names: dict[str, object] = {}
    exec(recipe, names)
    settings = names["settings"]
    assert isinstance(settings, dict)
    config = ProducerConfig(settings)
    assert _security(config) == ("SASL_SSL", "OAUTHBEARER")
    token, expires_at = settings["sasl.oauthbearer.token"]()
    assert token
    assert expires_at == 1_893_456_000


def test_page_has_a_recipe_for_each_service() -> None:
    assert len(PROPERTIES) >= 15
    assert len(CALLABLES) == 2
