"""kbatch's producers refused: which error says so, that it comes at once, and that a mended way is taken."""

from __future__ import annotations

import pytest

from tests.integration.security.refusals import REFUSALS, Refusal, refused_settings
from tests.integration.security.site import TOPIC, Site
from tests.support.patience import HANG_MS
from tests.support.shells import new_producer

pytestmark = [pytest.mark.slow, pytest.mark.java, pytest.mark.usefixtures("shell")]


@pytest.mark.parametrize("refusal", [pytest.param(each, id=each.name) for each in REFUSALS])
def test_send_raises_what_is_wrong(site: Site, refusal: Refusal) -> None:
    if refusal.needs_kdc and site.kdc is None:
        pytest.skip(site.kdc_missing)
    settings = refused_settings(refusal, site) | {"max.block.ms": HANG_MS}
    with new_producer(settings) as producer, pytest.raises(refusal.error, match=refusal.match) as raised:
        producer.send(TOPIC, b"refused")
    assert not raised.value.fatal
    assert not raised.value.retriable
