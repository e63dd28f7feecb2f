"""`kbatch acls`, `kbatch quotas`, `kbatch users` and `kbatch tokens`: who may do what, and how much."""

from __future__ import annotations

import base64
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import click

from kbatch.cli.administration import JSON, YES, checked_pairs, confirm, open_admin, print_rows
from kbatch.cli.options import client_options
from kbatch.core.admin.results import Acl, QuotaEntity, Token
from kbatch.core.admin.security import AclFilter

RULES = ("principal", "host", "operation", "pattern", "resource", "name", "allow")


@click.group()
def acls() -> None:
    """List, grant and revoke what principals may do."""


def _rule_options(*, required: bool) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that adds the options of a rule, or of a filter of rules."""
    options = (
        click.option("--principal", required=required, help="As User:alice."),
        click.option("--resource", required=required, help="topic, group, cluster, transactional_id, ..."),
        click.option("--name", required=required, help="The resource's name; * for all."),
        click.option("--operation", required=required, help="As Read, Write or All."),
        click.option("--host", default="*" if required else None, help="An address."),
        click.option("--pattern", default="literal" if required else None, help="literal or prefixed."),
    )

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            command = option(command)
        return command

    return add


def _print_rules(found: Any, *, as_json: bool) -> None:
    rows = [
        (each.principal, each.host, each.operation, each.pattern, each.resource, each.name, each.allow)
        for each in found
    ]
    print_rows(RULES, rows, as_json=as_json)


@acls.command("list")
@client_options("admin")
@_rule_options(required=False)
@JSON
def list_acls(settings: dict[str, str], as_json: bool, **parts: Any) -> None:
    """List the rules that have these parts. --pattern match finds all that a name is subject to."""
    with open_admin(settings, "acls") as admin:
        found = admin.acls.list(AclFilter(**parts))
    _print_rules(found, as_json=as_json)


@acls.command("grant")
@client_options("admin")
@_rule_options(required=True)
def grant(settings: dict[str, str], **parts: Any) -> None:
    """Allow an operation."""
    with open_admin(settings, "acls") as admin:
        admin.acls.create([Acl(**parts)])


@acls.command("deny")
@client_options("admin")
@_rule_options(required=True)
def deny(settings: dict[str, str], **parts: Any) -> None:
    """Deny an operation."""
    with open_admin(settings, "acls") as admin:
        admin.acls.create([Acl(**parts, allow=False)])


@acls.command("revoke")
@client_options("admin")
@_rule_options(required=False)
@YES
@JSON
def revoke(settings: dict[str, str], yes: bool, as_json: bool, **parts: Any) -> None:
    """Delete the rules that have these parts."""
    wanted = AclFilter(**parts)
    with open_admin(settings, "acls") as admin:
        found = admin.acls.list(wanted)
        _print_rules(found, as_json=as_json)
        if found:
            confirm("delete", [f"{len(found)} rules"], yes=yes)
            admin.acls.delete(found)


@click.group()
def quotas() -> None:
    """List and set quotas of users, clients and addresses."""


def _entity_options(command: Callable[..., Any]) -> Callable[..., Any]:
    text = "; <default> for all without a quota of their own."
    for name, noun in (("ip", "An address"), ("client-id", "A client.id"), ("user", "A user")):
        command = click.option(f"--{name}", help=noun + text)(command)
    return command


@quotas.command("list")
@client_options("admin")
@_entity_options
@JSON
def list_quotas(settings: dict[str, str], as_json: bool, **parts: Any) -> None:
    """List the quotas of entities that have these parts."""
    with open_admin(settings, "quotas") as admin:
        found = admin.quotas.describe(**parts)
    rows = [(*entity, key, value) for entity, values in found.items() for key, value in values.items()]
    print_rows(("user", "client_id", "ip", "quota", "value"), rows, as_json=as_json)


@quotas.command("set")
@click.argument("values", nargs=-1, required=True, metavar="QUOTA=VALUE...")
@client_options("admin")
@_entity_options
def set_quotas(values: tuple[str, ...], settings: dict[str, str], **parts: Any) -> None:
    """Set quotas of an entity, such as producer_byte_rate."""
    given = checked_pairs(values, "quotas")
    with open_admin(settings, "quotas") as admin:
        admin.quotas.alter(QuotaEntity(**parts), {key: float(value) for key, value in given.items()})


@quotas.command("reset")
@click.argument("names", nargs=-1, required=True, metavar="QUOTA...")
@client_options("admin")
@_entity_options
def reset_quotas(names: tuple[str, ...], settings: dict[str, str], **parts: Any) -> None:
    """Take quotas of an entity off."""
    with open_admin(settings, "quotas") as admin:
        admin.quotas.alter(QuotaEntity(**parts), reset=names)


@click.group()
def users() -> None:
    """List users of SCRAM, set and delete their passwords."""


MECHANISM = click.option("--mechanism", default="SCRAM-SHA-512", show_default=True, help="Or SCRAM-SHA-256.")


@users.command("list")
@client_options("admin")
@JSON
def list_users(settings: dict[str, str], as_json: bool) -> None:
    """List the users, and the mechanisms for which they have a password."""
    with open_admin(settings, "users") as admin:
        found = admin.users.describe()
    rows = [(name, *each) for name, infos in found.items() for each in infos]
    print_rows(("user", "mechanism", "iterations"), rows, as_json=as_json)


@users.command("set")
@click.argument("user")
@client_options("admin")
@MECHANISM
@click.option("--iterations", type=int, default=8192, show_default=True)
@click.option(
    "--password-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A file with the password; a line end after it does not count. By default it is asked for.",
)
def set_user(
    user: str, settings: dict[str, str], mechanism: str, iterations: int, password_file: Path | None
) -> None:
    """Set the password of a USER. It is never an argument, which others can see."""
    if password_file is not None:
        password = password_file.read_text().removesuffix("\n")
    else:
        password = click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    with open_admin(settings, "users") as admin:
        admin.users.set(user, password, mechanism, iterations)


@users.command("delete")
@click.argument("user")
@client_options("admin")
@MECHANISM
@YES
def delete_user(user: str, settings: dict[str, str], mechanism: str, yes: bool) -> None:
    """Delete the password of a USER for a mechanism."""
    confirm("delete the password of", [user], yes=yes)
    with open_admin(settings, "users") as admin:
        admin.users.delete(user, mechanism)


@click.group()
def tokens() -> None:
    """List delegation tokens, make, renew and expire them. The connection must have authenticated by SASL."""


TOKEN = ("token_id", "owner", "requester", "issued", "expires", "ends", "renewers")


def _token_row(token: Token) -> list[object]:
    return [getattr(token, name) for name in TOKEN]


@tokens.command("list")
@client_options("admin")
@click.option("--owner", "owners", multiple=True, help="As User:alice; may be repeated.")
@JSON
def list_tokens(settings: dict[str, str], owners: tuple[str, ...], as_json: bool) -> None:
    """List the tokens that this client may see, without their secrets."""
    with open_admin(settings, "tokens") as admin:
        found = admin.tokens.list(owners or None)
    print_rows(TOKEN, map(_token_row, found), as_json=as_json)


@tokens.command("create")
@client_options("admin")
@click.option("--owner", help="As User:alice; by default this client.")
@click.option("--renewer", "renewers", multiple=True, help="Who may renew it; may be repeated.")
@click.option("--hours", type=float, help="How long it may live; by default the broker's maximum.")
@click.option(
    "--hmac-file",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    required=True,
    help="Where its secret goes, the password of SCRAM with the token's id as the user.",
)
@JSON
def create_token(
    settings: dict[str, str],
    owner: str | None,
    renewers: tuple[str, ...],
    hours: float | None,
    hmac_file: Path,
    as_json: bool,
) -> None:
    """Make a token, and write its secret into a file that only its owner can read."""
    hmac_file.touch(0o600)
    with hmac_file.open("w") as file:
        with open_admin(settings, "tokens") as admin:
            made = admin.tokens.create(owner, renewers, None if hours is None else timedelta(hours=hours))
        file.write(base64.b64encode(made.hmac).decode())
    print_rows(TOKEN, [_token_row(made)], as_json=as_json)


def _token_command(name: str, help: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator of a command about the token whose secret is in a file."""
    file = click.Path(exists=True, dir_okay=False, path_type=Path)

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        command = click.option("--hours", type=float, help="Until it expires.")(JSON(command))
        decorated = client_options("admin")(command)
        return tokens.command(name, help=help)(click.argument("hmac_file", type=file)(decorated))

    return add


@_token_command("renew", "Let the token whose secret is in HMAC_FILE live longer.")
def renew_token(hmac_file: Path, settings: dict[str, str], hours: float | None, as_json: bool) -> None:
    """Renew a token."""
    with open_admin(settings, "tokens") as admin:
        expires = admin.tokens.renew(hmac_file.read_text(), None if hours is None else timedelta(hours=hours))
    print_rows(("expires",), [(expires,)], as_json=as_json)


@_token_command("expire", "Let the token whose secret is in HMAC_FILE expire, now or after some hours.")
def expire_token(hmac_file: Path, settings: dict[str, str], hours: float | None, as_json: bool) -> None:
    """Expire a token."""
    with open_admin(settings, "tokens") as admin:
        expires = admin.tokens.expire(
            hmac_file.read_text(), None if hours is None else timedelta(hours=hours)
        )
    print_rows(("expires",), [(expires,)], as_json=as_json)
