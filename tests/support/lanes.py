"""How lanes are driven in a test run."""

from __future__ import annotations

from typing import Any

from kbatch.network import ThreadNetwork


def drive_all_by_hand() -> None:
    """Let ThreadNetwork drive all lanes by hand, as it does under TLS."""
    use_loans = ThreadNetwork.use_loans

    def use_by_hand(self: ThreadNetwork, lending: Any, queue: Any = None, *, by_hand: bool = False) -> None:
        use_loans(self, lending, queue, by_hand=True)

    ThreadNetwork.use_loans = use_by_hand  # type: ignore[method-assign]
