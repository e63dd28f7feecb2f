"""kbatch's two producers in each cell of the matrix, configured in Java's words and in librdkafka's."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.security.cells import CELLS, Cell
from tests.integration.security.conftest import settings_of
from tests.integration.security.site import LISTENERS, TOPIC, Site
from tests.support.patience import HANG_SECONDS
from tests.support.shells import new_producer

pytestmark = [pytest.mark.java, pytest.mark.usefixtures("shell")]
DIALECTS = ("java", "librdkafka")
WAYS = [
    pytest.param(cell, dialect, id=f"{cell.name}, {dialect}")
    for cell in CELLS
    for dialect in DIALECTS
    if getattr(cell, dialect) is not None
]


@pytest.mark.parametrize(("cell", "dialect"), WAYS)
def test_producer_is_let_in(site: Site, cell: Cell, dialect: str) -> None:
    settings: dict[str, Any] = {
        "bootstrap.servers": site.address(cell.listener),
        "security.protocol": LISTENERS[cell.listener],
        **site.trust(LISTENERS[cell.listener]),
        **settings_of(cell, dialect, site),
    }
    value = f"kbatch, {dialect}: {cell.name}".encode()
    with new_producer(settings) as producer:
        metadata = producer.send(TOPIC, value).result(HANG_SECONDS)
    assert site.read(metadata.partition, metadata.offset) == value
