"""kbatch's two producers in each cell of the matrix, configured in the words of every client."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.security.cells import CELLS, Cell
from tests.integration.security.conftest import settings_of
from tests.integration.security.site import LISTENERS, TOPIC, Site
from tests.support.patience import HANG_SECONDS
from tests.support.shells import new_producer

pytestmark = [pytest.mark.slow, pytest.mark.java, pytest.mark.usefixtures("shell")]
DIALECTS = ("java", "librdkafka", "kafka_python", "aiokafka")
# Where kafka-python and aiokafka say the same, once is enough.
WAYS = [
    pytest.param(cell, dialect, id=f"{cell.name}, {dialect}")
    for cell in CELLS
    for dialect in DIALECTS
    if getattr(cell, dialect) is not None and (dialect != "aiokafka" or cell.aiokafka != cell.kafka_python)
]


@pytest.mark.parametrize(("cell", "dialect"), WAYS)
def test_producer_is_let_in(site: Site, cell: Cell, dialect: str) -> None:
    given = settings_of(cell, dialect, site)
    keywords = {name: given.pop(name) for name in list(given) if "." not in name and name != "oauth_cb"}
    settings: dict[str, Any] = {
        "bootstrap.servers": site.address(cell.listener),
        "security.protocol": LISTENERS[cell.listener],
        **site.trust(LISTENERS[cell.listener]),
        **given,
    }
    value = f"kbatch, {dialect}: {cell.name}".encode()
    with new_producer(settings, **keywords) as producer:
        metadata = producer.send(TOPIC, value).result(HANG_SECONDS)
        print(producer, producer.metrics())  # tests/support/secrets.py reads it
    assert site.read(metadata.partition, metadata.offset) == value
