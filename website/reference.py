"""The reference of the API: a page for each public module, made from what the modules have at run time.

What has no text is an error, so that the reference is complete: a function or property needs a docstring, an
attribute a line in the section Attributes of its class.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from enum import Enum
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

from website.docstrings import Docstring, markdown, parsed
from website.signatures import annotation_of, signature_of

# The modules that programs import, with the guides beside them.
MODULES = {
    "kbatch": "[producers](../delivery.md), [consumers](../consumer.md), [tables](../tables.md), "
    "[reading](../reading.md), [asyncio](../asyncio.md), [workers](../process.md), "
    "[record batches](../codec.md)",
    "kbatch.admin": "[administration](../admin.md)",
    "kbatch.config": "[configuration](../configuration.md)",
    "kbatch.errors": "[errors](../errors.md), [troubleshooting](../troubleshooting.md)",
    "kbatch.formats": "[keys and values](../formats.md), [tables to a topic](../tables.md), "
    "[typed columns](../deserializers.md)",
    "kbatch.schema_registry": "[keys and values](../formats.md)",
    "kbatch.interceptors": "[troubleshooting](../troubleshooting.md)",
    "kbatch.tracing": "[troubleshooting](../troubleshooting.md)",
    "kbatch.instrumentation": "[troubleshooting](../troubleshooting.md)",
    "kbatch.prometheus": "[metrics](../metrics.md)",
    "kbatch.metrics": "[metrics](../metrics.md)",
    "kbatch.partitioner": "[configuration](../configuration.md)",
    "kbatch.records": "[consumers](../consumer.md)",
    "kbatch.sasl": "[security](../security.md)",
    "kbatch.spark": "[Spark](../spark.md)",
    "kbatch.testing": "[the broker for tests](../broker.md)",
}


class Undocumented(Exception):
    """A public name has no text."""


class Member(NamedTuple):
    """A public member of a class `kind`: its name, itself, and the class that defines it."""

    name: str
    value: Any
    owner: type
    kind: type

    @property
    def is_attribute(self) -> bool:
        """True if it is not called."""
        return not callable(self.value) and not isinstance(self.value, classmethod | staticmethod)


def pages() -> dict[str, str]:
    """Return the pages by their paths below docs/."""
    return {"reference/index.md": _index(), **{path_of(name): _page(name) for name in MODULES}}


def path_of(module: str) -> str:
    return f"reference/{module}.md"


@cache
def names() -> dict[str, str]:
    """Return where each public name is, as page and anchor: `Producer.send`, `kbatch.Producer.send`."""
    found: dict[str, str] = {}
    for module in MODULES:
        for name, value in _public(module):
            dotted = [name, *(f"{name}.{each.name}" for each in _members(value))]
            for each in dotted:
                where = f"{module}.md#{module}.{each}"
                found.setdefault(each, where)
                found.setdefault(f"{module}.{each}", where)
    return found


def _public(module: str) -> list[tuple[str, Any]]:
    """Return the public names of a module: those of __all__, else what it defines."""
    made = import_module(module)
    listed = getattr(made, "__all__", None)
    if listed is None:
        values = ((name, getattr(made, name)) for name in dir(made) if not name.startswith("_"))
        return [pair for pair in values if getattr(pair[1], "__module__", None) == module]
    return [(name, getattr(made, name)) for name in sorted(listed)]


def _members(value: Any) -> list[Member]:
    """Return the public members of a class that it, or a class without a name for users, defines."""
    if not inspect.isclass(value):
        return []
    return sorted(_defined(value), key=lambda member: (not member.is_attribute, member.name))


def _defined(kind: type) -> Iterator[Member]:
    seen: set[str] = set()
    # docs/configuration.md has them
    keys = {
        each.name for each in getattr(kind, "__dataclass_fields__", {}).values() if "key" in each.metadata
    }
    for base in inspect.getmro(kind):
        is_ours = base.__module__.partition(".")[0] == "kbatch"
        if not is_ours or (base is not kind and base in _classes()):
            continue
        for name in vars(base):
            value = inspect.getattr_static(kind, name)
            is_key = name in keys or inspect.isclass(value)
            if not name.startswith("_") and name not in seen and not is_key:
                seen.add(name)
                yield Member(name, value, base, kind)


@cache
def _classes() -> frozenset[type]:
    """Return the public classes."""
    return frozenset(value for module in MODULES for _, value in _public(module) if inspect.isclass(value))


def _page(module: str) -> str:
    made = import_module(module)
    text = parsed(inspect.getdoc(made) or "")
    head = [f"# {module}", *markdown(text, _linked), f"Guides: {MODULES[module]}."]
    return (
        "\n\n".join(
            [*head, *(line for name, value in _public(module) for line in _entry(module, name, value))]
        )
        + "\n"
    )


def _index() -> str:
    rows = (f"| [{name}]({name}.md) | {_first_sentence(name)} |" for name in MODULES)
    return "\n".join(
        [
            "# Reference",
            "",
            "What does a name of kbatch take, return and raise? These pages are made from the modules.",
            "",
            "| module | |",
            "|---|---|",
            *rows,
            "",
        ]
    )


def _first_sentence(module: str) -> str:
    return parsed(inspect.getdoc(import_module(module)) or "").first_sentence


def _entry(module: str, name: str, value: Any) -> Iterator[str]:
    """Yield the paragraphs of a public name."""
    anchor = f"{module}.{name}"
    yield f"## {name} {{ #{anchor} }}"
    if not callable(value):
        yield _constant(anchor, value)
        return
    text = _docstring(anchor, value)
    if inspect.isclass(value):
        yield from _class_head(name, value)
    else:
        yield _code(_prefixed(value, signature_of(None, name, value)))
    yield from markdown(text, _linked)
    constructor = _constructor(value)
    if constructor is not None:
        yield from list(markdown(constructor, _linked))[1:]
    for member in _members(value):
        yield from _member(anchor, text, member)


def _constant(anchor: str, value: Any) -> str:
    if inspect.ismodule(value):
        return f"The module [{value.__name__}]({value.__name__}.md)."
    shown = repr(value)
    return f"`{shown}`" if len(shown) < 100 else f"A {type(value).__name__} of {len(value)}."


def _class_head(name: str, kind: type) -> Iterator[str]:
    if issubclass(kind, BaseException | Enum):
        bases = (base.__name__ for base in kind.__bases__)
        yield "Base: " + ", ".join(_linked(f"`{base}`") for base in bases)
        return
    try:
        yield _code(signature_of(kind, name, kind))
    except ValueError:  # made by kbatch only
        return


def _constructor(value: Any) -> Docstring | None:
    """Return what the constructor says, if the class does not say it itself."""
    made = inspect.getattr_static(value, "__init__", None) if inspect.isclass(value) else None
    is_ours = inspect.isfunction(made) and made.__module__.startswith("kbatch")
    text = inspect.getdoc(made) if is_ours else None
    return parsed(text) if text and "Parameters" not in parsed(inspect.getdoc(value) or "").sections else None


def _member(anchor: str, of_class: Docstring, member: Member) -> Iterator[str]:
    where = f"{anchor}.{member.name}"
    yield f"### {member.name} {{ #{where} }}"
    if member.is_attribute:
        yield _attribute(where, of_class, member)
        return
    function = getattr(member.kind, member.name)
    yield _code(_prefixed(function, signature_of(member.owner, member.name, function)))
    yield from markdown(_docstring(where, function), _linked)


def _attribute(where: str, of_class: Docstring, member: Member) -> str:
    """Return the type and the text of an attribute, of which one is enough."""
    text = _attribute_text(of_class, member)
    kind = "" if text.startswith("`") else annotation_of(member.kind, member.name)
    if not text and not kind:
        raise Undocumented(
            f"{where} is public and has no text: add it to Attributes in its class's docstring"
        )
    return " ".join(each for each in (kind and f"`{kind}`.", _linked(text)) if each)


def _attribute_text(of_class: Docstring, member: Member) -> str:
    texts = of_class.attributes | parsed(inspect.getdoc(member.owner) or "").attributes
    if member.name in texts:
        return texts[member.name]
    if isinstance(member.value, str | int | frozenset | type(None)):  # a member of an enum, too
        return f"`{getattr(member.value, 'value', member.value)!r}`"
    defined = (vars(base).get(member.name) for base in inspect.getmro(member.kind))
    text = next((text for each in defined if (text := getattr(each, "__doc__", None))), "")
    return "" if text.startswith("Alias for field") else parsed(inspect.cleandoc(text)).text


def _docstring(where: str, value: Any) -> Docstring:
    text = inspect.getdoc(value)
    if not text:
        raise Undocumented(f"{where} is public and has no docstring")
    return parsed(text)


def _prefixed(function: Any, signatures: list[str]) -> list[str]:
    prefix = (
        "await " if inspect.iscoroutinefunction(inspect.unwrap(function)) and _is_awaited(function) else ""
    )
    return [prefix + each for each in signatures]


def _is_awaited(function: Any) -> bool:
    """True if the call itself gives a coroutine; `blocking` wraps coroutine methods in plain ones."""
    return inspect.iscoroutinefunction(function)


def _code(signatures: list[str]) -> str:
    return "```python\n" + "\n".join(signatures) + "\n```"


def _linked(text: str) -> str:
    """Return the text with links at the names of the API in it."""

    def link(match: re.Match[str]) -> str:
        name = match[1].removesuffix("()")
        where = names().get(name)
        return f"[`{match[1]}`]({where})" if where and (name[0].isupper() or "." in name) else match[0]

    text = re.sub(r"\bdocs/(\w+)\.md", r"[\1](../\1.md)", text)
    parts = re.split(r"(^```.*?^```)", text, flags=re.MULTILINE | re.DOTALL)
    return "".join(
        part if part.startswith("```") else re.sub(r"(?<!\[)`([\w.]+(?:\(\))?)`", link, part)
        for part in parts
    )
