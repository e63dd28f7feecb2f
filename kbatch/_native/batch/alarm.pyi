from typing import final

@final
class SenderAlarm:
    busy_nodes: frozenset[int]
    wakes_always: bool
