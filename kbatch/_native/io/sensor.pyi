from collections.abc import Iterable
from typing import NamedTuple, final

class Reading(NamedTuple):
    occurrences: int
    total: float
    maximum: float
    elapsed_ms: int
    occurrences_ever: int
    total_ever: float

@final
class Sensor:
    def __init__(self, *, window_ms: int, num_samples: int, recording: bool = True) -> None: ...
    def record(self, value: float, now_ms: int) -> None: ...
    def read(self, now_ms: int) -> Reading: ...

@final
class SensorGroup:
    def __init__(self, sensors: Iterable[Sensor]) -> None: ...
    def record(self, value: float, now_ms: int) -> None: ...

@final
class RequestSensors:
    def __init__(
        self,
        *,
        sent: SensorGroup,
        written: SensorGroup,
        received: SensorGroup,
        answered: SensorGroup,
        latency: SensorGroup,
    ) -> None: ...
    @property
    def sent(self) -> SensorGroup: ...
    @property
    def written(self) -> SensorGroup: ...
    @property
    def received(self) -> SensorGroup: ...
    @property
    def answered(self) -> SensorGroup: ...
    @property
    def latency(self) -> SensorGroup: ...
