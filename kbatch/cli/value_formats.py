"""The formats of keys and values, as options of `consume` and `produce` name them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kbatch.errors import ConfigError
from kbatch.typed import Part

if TYPE_CHECKING:
    from kbatch.formats import Format
    from kbatch.schema_registry import SchemaRegistry

# Types of keys and values that are neither text nor JSON, and all of them.
TYPED_KINDS = ("avro", "protobuf", "int32", "int64", "float32", "float64")
KINDS = ("text", "bytes", "json", *TYPED_KINDS)
# Options of keys and values that only some of these have.
_ONLY_OF: Mapping[str, tuple[str, ...]] = {
    "message": ("protobuf",),
    "schema": ("avro",),
    "subject": ("avro", "protobuf"),
}
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


def schema_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say which schemas keys and values have."""
    options = (
        click.option(
            "--schema-registry", metavar="URL", help="Where avro and protobuf find schemas by their ids."
        ),
        click.option(
            "--key-subject",
            metavar="NAME",
            help="The subject of avro or protobuf keys; the default is TOPIC-key.",
        ),
        click.option("--value-subject", metavar="NAME", help="That of values; the default is TOPIC-value."),
        click.option("--key-schema", metavar="FILE", type=_FILE, help="The avro schema of keys, as JSON."),
        click.option(
            "--value-schema", metavar="FILE", type=_FILE, help="The avro schema of values, as JSON."
        ),
        click.option(
            "--descriptor-set",
            metavar="FILE",
            type=_FILE,
            help="Messages of protobuf, as `protoc --include_imports --descriptor_set_out=FILE` writes them.",
        ),
        click.option("--key-message", metavar="NAME", help="The message of protobuf keys in that file."),
        click.option("--value-message", metavar="NAME", help="The message of protobuf values in that file."),
    )
    for option in reversed(options):
        command = option(command)
    return command


def format_of(
    part: Part, kind: str, flag: str, options: Mapping[str, Any], **common: Any
) -> Format[Any] | None:
    """Return the format of keys or values; None leaves text and bytes.

    Parameters
    ----------
    kind : str
        One of KINDS.
    flag : str
        The option that names it.
    options : mapping
        Those of `schema_options`.
    common
        Arguments of formats. `register` is for those that a registry has.
    """
    from kbatch import formats

    for name, kinds in _ONLY_OF.items():
        if options[f"{part}_{name}"] is not None and kind not in kinds:
            raise click.UsageError(f"--{part}-{name} needs {flag} {' or '.join(kinds)}")
    if kind in ("text", "bytes"):
        return None
    if kind in ("avro", "protobuf"):
        common |= {"registry": _registry(options), "subject": options[f"{part}_subject"] or "topic"}
        return (_avro if kind == "avro" else _protobuf)(part, options, common)
    common.pop("register", None)
    if kind == "json":
        return formats.Json(**common)
    made: Format[Any] = getattr(formats, kind.capitalize())(common.pop("columns", None), **common)
    return made


def _avro(part: Part, options: Mapping[str, Any], common: dict[str, Any]) -> Format[Any]:
    from kbatch.formats import Avro

    path = options[f"{part}_schema"]
    if path is None and common["registry"] is None:
        raise click.UsageError(f"avro needs --schema-registry URL, or --{part}-schema FILE")
    try:
        return Avro(None if path is None else path.read_text(), **common)
    except (ImportError, ValueError) as error:
        raise click.UsageError(f"--{part}-schema {path}: {error}" if path else str(error)) from error


def _protobuf(part: Part, options: Mapping[str, Any], common: dict[str, Any]) -> Format[Any]:
    """Return the format of messages, by a file of descriptors, a registry, or both."""
    from kbatch.formats import Protobuf

    path, name = options["descriptor_set"], options[f"{part}_message"]
    if (path is None) != (name is None):
        raise click.UsageError(f"--descriptor-set and --{part}-message belong together; add the other")
    if path is None and common["registry"] is None:
        raise click.UsageError(
            f"protobuf needs --descriptor-set FILE and --{part}-message NAME, or --schema-registry URL"
        )
    try:
        if path is None:
            return Protobuf(times="us", **common)
        return Protobuf.from_descriptor_set(path.read_bytes(), name, times="us", **common)
    except (ImportError, ValueError) as error:
        raise click.UsageError(str(error)) from error


def _registry(options: Mapping[str, Any]) -> SchemaRegistry | None:
    from kbatch.schema_registry import SchemaRegistry

    url = options["schema_registry"]
    try:
        return None if url is None else SchemaRegistry(url)
    except ConfigError as error:
        raise click.BadParameter(str(error), param_hint="--schema-registry") from error
