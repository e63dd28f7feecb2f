"""Signatures as users write calls: from the stubs for native modules, else from the functions themselves."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
LONGEST = 88
_DEFAULT_OF_MANY = "..."


def signature_of(owner: type | None, name: str, member: Any) -> list[str]:
    """Return the signatures of a function or class, of which a stub may have several (overloads)."""
    found = _from_stub(owner or member, name)
    if not found:
        found = [_from_function(member)]
    return [_shaped(name, each) for each in found]


def annotation_of(kind: type, name: str) -> str:
    """Return the type of an attribute, empty if there is none."""
    for base in inspect.getmro(kind):
        annotation = vars(base).get("__annotations__", {}).get(name) or _returned(vars(base).get(name))
        if annotation is not None:
            text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
            return _short(text)
        if stubbed := _stubbed(base, name):
            return stubbed
    return ""


def _returned(member: Any) -> Any:
    return member.fget.__annotations__.get("return") if isinstance(member, property) else None


def _stubbed(kind: type, name: str) -> str:
    """Return the type of an attribute of a native class."""
    stub = ROOT / (kind.__module__.replace(".", "/") + ".pyi")
    if not stub.is_file():
        return ""
    for each in (
        part for part in _tree(stub).body if isinstance(part, ast.ClassDef) and part.name == kind.__name__
    ):
        for part in each.body:
            if isinstance(part, ast.AnnAssign) and ast.unparse(part.target) == name:
                return ast.unparse(part.annotation)
            if isinstance(part, ast.FunctionDef) and part.name == name and part.returns:
                return ast.unparse(part.returns)
    return ""


def _from_stub(owner: Any, name: str) -> list[list[str]]:
    """Return the parameters of each definition in the stub of a module that has one, and what they return."""
    for kind in inspect.getmro(owner) if inspect.isclass(owner) else [owner]:
        stub = ROOT / (getattr(kind, "__module__", "").replace(".", "/") + ".pyi")
        if not stub.is_file():
            continue
        body = _classes(stub).get(kind.__name__, []) if inspect.isclass(kind) else _functions(stub)
        wanted = "__init__" if inspect.isclass(kind) and kind.__name__ == name else name
        if made := [_parameters(each) for each in body if each.name == wanted]:
            return made
        if any(each.name == wanted for each in body):
            break
    return []


@cache
def _tree(stub: Path) -> ast.Module:
    return ast.parse(stub.read_text())


def _functions(stub: Path) -> list[Any]:
    return [each for each in _tree(stub).body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]


def _classes(stub: Path) -> dict[str, list[Any]]:
    return {
        each.name: [part for part in each.body if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef)]
        for each in _tree(stub).body
        if isinstance(each, ast.ClassDef)
    }


def _parameters(function: Any) -> list[str]:
    """Return the parameters of a definition in a stub, and at last what it returns."""
    given = function.args
    first = [*given.posonlyargs, *given.args]
    defaults = [None] * (len(first) - len(given.defaults)) + given.defaults
    made = []
    for index, (each, default) in enumerate(zip(first, defaults, strict=True)):
        made.append(_parameter(each, default))
        if given.posonlyargs and index == len(given.posonlyargs) - 1:
            made.append("/")
    if given.vararg:
        made.append("*" + _parameter(given.vararg, None))
    elif given.kwonlyargs:
        made.append("*")
    made += [_parameter(*each) for each in zip(given.kwonlyargs, given.kw_defaults, strict=True)]
    if given.kwarg:
        made.append("**" + _parameter(given.kwarg, None))
    returned = ast.unparse(function.returns) if function.returns else ""
    return [*(each for each in made if each not in ("self", "cls")), returned]


def _parameter(given: ast.arg, default: Any) -> str:
    kind = f": {ast.unparse(given.annotation)}" if given.annotation else ""
    value = "" if default is None else f" = {ast.unparse(default)}"
    return f"{given.arg}{kind}{value}"


def _from_function(member: Any) -> list[str]:
    """Return the parameters of a function or class, and at last what it returns."""
    made = inspect.signature(member)
    shown: list[str] = []
    kinds = inspect.Parameter
    has_star = False
    parameters = [
        each for each in made.parameters.values() if each.name not in ("self", "client", "part", "cls")
    ]
    for index, each in enumerate(parameters):
        if each.kind is kinds.KEYWORD_ONLY and not has_star:
            shown.append("*")
            has_star = True
        has_star |= each.kind is kinds.VAR_POSITIONAL
        shown.append(_short(str(each.replace(annotation=_text(each.annotation)))))
        is_last = index + 1 == len(parameters) or parameters[index + 1].kind is not kinds.POSITIONAL_ONLY
        if each.kind is kinds.POSITIONAL_ONLY and is_last:
            shown.append("/")
    returned = made.return_annotation
    is_known = returned is not made.empty and not inspect.isclass(member)
    return [*shown, _short(inspect.formatannotation(_text(returned)).strip("'")) if is_known else ""]


def _text(annotation: Any) -> Any:
    """Return an annotation such that str() of its parameter shows no quotes."""
    return _Text(annotation) if isinstance(annotation, str) else annotation


class _Text(str):
    """An annotation that is text already."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _short(text: str) -> str:
    """Return annotations and defaults without modules and addresses."""
    text = re.sub(r"\b(?:[a-z_]\w*\.)+(?=[A-Z])", "", text)
    text = re.sub(r"<(?:class|enum) '(?:\w+\.)*(\w+)'>", r"\1", text)
    return re.sub(r"<[^<>]*>", _DEFAULT_OF_MANY, text)


def _shaped(name: str, parts: list[str]) -> str:
    """Return the call on one line, or with a line for each parameter."""
    *parameters, returned = parts
    arrow = f" -> {returned}" if returned else ""
    line = f"{name}({', '.join(parameters)}){arrow}"
    if len(line) <= LONGEST:
        return line
    return "\n".join([f"{name}(", *_lines(parameters), f"){arrow}"])


def _lines(parameters: list[str]) -> Iterator[str]:
    return (f"    {each}," for each in parameters)
