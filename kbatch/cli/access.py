"""`kbatch quotas`, `kbatch users` and `kbatch tokens`: who may log in, and how much they may do."""

from __future__ import annotations

import base64
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kbatch.cli.administration import (
    DRY_RUN,
    JSON,
    YES,
    checked_pairs,
    confirm,
    open_admin,
    print_rows,
    say_dry_run,
)
from kbatch.cli.options import client_options
from kbatch.core.admin.results import SCRAM_ITERATIONS, QuotaEntity, Token
from kbatch.errors import (
    DelegationTokenNotFoundError,
    KafkaError,
    ResourceNotFoundError,
    UnacceptableCredentialError,
)

if TYPE_CHECKING:
    from kbatch.admin.client import Admin


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
@DRY_RUN
def set_quotas(values: tuple[str, ...], settings: dict[str, str], dry_run: bool, **parts: Any) -> None:
    """Set quotas of an entity, such as producer_byte_rate."""
    given = {key: float(value) for key, value in checked_pairs(values, "quotas").items()}
    with open_admin(settings, "quotas") as admin:
        admin.quotas.alter(QuotaEntity(**parts), given, validate_only=dry_run)
    if dry_run:
        say_dry_run()


@quotas.command("reset")
@click.argument("names", nargs=-1, required=True, metavar="QUOTA...")
@client_options("admin")
@_entity_options
@DRY_RUN
def reset_quotas(names: tuple[str, ...], settings: dict[str, str], dry_run: bool, **parts: Any) -> None:
    """Take quotas of an entity off."""
    with open_admin(settings, "quotas") as admin:
        admin.quotas.alter(QuotaEntity(**parts), reset=names, validate_only=dry_run)
    if dry_run:
        say_dry_run()


@click.group()
def users() -> None:
    """List users of SCRAM, set and delete their passwords."""


USER = ("user", "mechanism", "iterations")
MECHANISM = click.option("--mechanism", default="SCRAM-SHA-512", show_default=True, help="Or SCRAM-SHA-256.")


def _user_rows(admin: Admin) -> list[tuple[str, str, int]]:
    return [(name, *each) for name, infos in admin.users.describe().items() for each in infos]


@users.command("list")
@client_options("admin")
@JSON
def list_users(settings: dict[str, str], as_json: bool) -> None:
    """List the users, and the mechanisms for which they have a password."""
    with open_admin(settings, "users") as admin:
        rows = _user_rows(admin)
    print_rows(USER, rows, as_json=as_json)


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
@DRY_RUN
@JSON
def set_user(
    user: str,
    settings: dict[str, str],
    mechanism: str,
    iterations: int,
    password_file: Path | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Set the password of a USER. It is never an argument, which others can see."""
    if dry_run:
        _show_replaced(settings, user, mechanism, iterations, as_json=as_json)
        return
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
@DRY_RUN
@YES
@JSON
def delete_user(
    user: str, settings: dict[str, str], mechanism: str, dry_run: bool, yes: bool, as_json: bool
) -> None:
    """Delete the password of a USER for a mechanism."""
    if dry_run:
        _show_deleted(settings, user, mechanism, as_json=as_json)
        return
    confirm("delete the password of", [user], yes=yes)
    with open_admin(settings, "users") as admin:
        admin.users.delete(user, mechanism)


def _passwords(settings: dict[str, str], user: str, mechanism: str) -> list[tuple[str, str, int]]:
    """Return the password that a user has for a mechanism, if there is one."""
    with open_admin(settings, "users") as admin:
        return [each for each in _user_rows(admin) if each[:2] == (user, mechanism)]


def _show_replaced(
    settings: dict[str, str], user: str, mechanism: str, iterations: int, *, as_json: bool
) -> None:
    """Show the password that would be replaced; a number of iterations that brokers refuse fails."""
    errors: dict[str, KafkaError] = {}
    if iterations not in SCRAM_ITERATIONS:
        least, most = SCRAM_ITERATIONS[0], SCRAM_ITERATIONS[-1]
        errors[user] = UnacceptableCredentialError(
            f"iterations must be {least:,} to {most:,}, got {iterations:,}"
        )
    print_rows(USER, _passwords(settings, user, mechanism), as_json=as_json)
    say_dry_run(errors, "user", as_json=as_json)


def _show_deleted(settings: dict[str, str], user: str, mechanism: str, *, as_json: bool) -> None:
    """Show the password that would be deleted; it fails if there is none."""
    found = _passwords(settings, user, mechanism)
    print_rows(USER, found, as_json=as_json)
    errors = {} if found else {user: ResourceNotFoundError(f"it has no password for {mechanism}")}
    say_dry_run(errors, "user", as_json=as_json)


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
@DRY_RUN
@JSON
def create_token(
    settings: dict[str, str],
    owner: str | None,
    renewers: tuple[str, ...],
    hours: float | None,
    hmac_file: Path,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Make a token, and write its secret into a file that only its owner can read."""
    if dry_run:
        with open_admin(settings, "tokens") as admin:  # which says if it may make any
            found = admin.tokens.list([owner] if owner else None)
        print_rows(TOKEN, map(_token_row, found), as_json=as_json)
        lifetime = "as long as brokers let it" if hours is None else f"{hours:g} hours"
        click.echo(
            f"beside these one of {owner or 'this client'} would be made, to live {lifetime}", err=True
        )
        say_dry_run()
        return
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
        command = click.option("--hours", type=float, help="Until it expires.")(DRY_RUN(JSON(command)))
        decorated = client_options("admin")(command)
        return tokens.command(name, help=help)(click.argument("hmac_file", type=file)(decorated))

    return add


@_token_command("renew", "Let the token whose secret is in HMAC_FILE live longer.")
def renew_token(hmac_file: Path, **given: Any) -> None:
    """Renew a token."""
    _change_token("renew", hmac_file.read_text(), **given)


@_token_command("expire", "Let the token whose secret is in HMAC_FILE expire, now or after some hours.")
def expire_token(hmac_file: Path, **given: Any) -> None:
    """Expire a token."""
    _change_token("expire", hmac_file.read_text(), **given)


def _change_token(
    call: str, hmac: str, settings: dict[str, str], hours: float | None, dry_run: bool, as_json: bool
) -> None:
    with open_admin(settings, "tokens") as admin:
        if dry_run:
            meant = [
                each for each in admin.tokens.list() if base64.b64encode(each.hmac).decode() == hmac.strip()
            ]
            print_rows(TOKEN, map(_token_row, meant), as_json=as_json)
            errors = {} if meant else {"of the file": DelegationTokenNotFoundError()}
            say_dry_run(errors, "token", as_json=as_json)
            return
        expires = getattr(admin.tokens, call)(hmac, None if hours is None else timedelta(hours=hours))
    print_rows(("expires",), [(expires,)], as_json=as_json)
