"""UpdateFeatures: the levels of features, raised and lowered (KIP-584, KIP-1022).

After org.apache.kafka.controller.FeatureControlManager.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from kbatch.errors import ErrorCode
from kbatch.protocol import features, messages
from kbatch.testing.broker.broker_error import BrokerError
from kbatch.testing.broker.options import FEATURES
from kbatch.testing.broker.security.authorizer import Operation

if TYPE_CHECKING:
    from kbatch.testing.broker.broker_state import BrokerState, Context

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3
Update = messages.UpdateFeaturesRequest.FeatureUpdateKey


class _Wish(NamedTuple):
    """A level that is asked for, and the one that there is; `highest` is None for an unknown feature."""

    level: int
    present: int
    highest: int | None
    upgrade_type: int
    controller_id: int


# What is wrong with a wish, in the order in which the controller looks at it.
REFUSALS: dict[str, Callable[[_Wish], bool]] = {
    "The controller does not support the given upgrade type.": lambda wish: (
        wish.upgrade_type not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE)
    ),
    "A feature version cannot be less than 0.": lambda wish: wish.level < 0,
    "Local controller {controller_id} does not support this feature.": lambda wish: wish.highest is None,
    "Local controller {controller_id} only supports versions 0-{highest}": lambda wish: (
        wish.highest is not None and wish.level > wish.highest
    ),
    "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe "
    "downgrade.": lambda wish: wish.level < wish.present and wish.upgrade_type == UPGRADE,
    "Can't downgrade to a newer version.": lambda wish: (
        wish.level > wish.present and wish.upgrade_type != UPGRADE
    ),
}


def update_features(
    state: BrokerState, request: messages.UpdateFeaturesRequest, context: Context
) -> messages.UpdateFeaturesResponse:
    """Set the levels of features, all of them or none."""
    context.check_forced_error()
    state.authorize_cluster(context, Operation.ALTER)
    for update in request.feature_updates:
        _check(state, update, context.version)
    if not request.validate_only:
        for update in request.feature_updates:
            state.set_feature_level(update.feature, update.max_version_level)
    response = messages.UpdateFeaturesResponse(error_message=None)
    if context.version < features.UPDATE_FEATURES_ONE_RESULT:
        names = dict.fromkeys(each.feature for each in request.feature_updates)
        response.results = [
            response.UpdatableFeatureResult(feature=name, error_message="NONE")  # as Kafka says it
            for name in names
        ]
    return response


def _check(state: BrokerState, update: Update, version: int) -> None:
    highest = FEATURES.get(update.feature)
    upgrade_type = update.upgrade_type
    if version < features.UPDATE_FEATURES_VALIDATES:
        upgrade_type = SAFE_DOWNGRADE if update.allow_downgrade else UPGRADE
    wish = _Wish(
        update.max_version_level,
        0 if highest is None else state.options.feature_level(update.feature),
        highest,
        upgrade_type,
        state.cluster.controller.active_id,
    )
    for reason, applies in REFUSALS.items():
        if applies(wish):
            raise BrokerError(
                ErrorCode.INVALID_UPDATE_VERSION,
                "The update failed for all features since the following feature had an error: Invalid update "
                f"version {wish.level} for feature {update.feature}. {reason.format(**wish._asdict())}",
            )


HANDLERS = {messages.UpdateFeaturesRequest: update_features}
