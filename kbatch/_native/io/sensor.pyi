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

def record_each(sensors: tuple[Sensor, ...], values: tuple[float, ...], now_ms: int) -> None: ...
