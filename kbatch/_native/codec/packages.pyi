from contextlib import AbstractContextManager
from types import ModuleType

importing: AbstractContextManager[bool]
packages: dict[str, ModuleType | None]

def package(name: str) -> ModuleType: ...
def optional_package(name: str) -> ModuleType | None: ...
