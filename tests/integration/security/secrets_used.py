"""Every secret that the tests of security use, so that nothing else can be printed by mistake."""

from __future__ import annotations

import base64
from collections.abc import Mapping

from tests.support.secrets import register

SCRAM_ODD = "odd,user=1"  # characters that SCRAM escapes
STORE_PASSWORD = "store-password-Xk42"
PASSWORDS: Mapping[str, str] = {
    "alice": "alice-password-Zq81",
    "bob": "bob-password-Vt93",
    "odd": 'p=a,s"s w\\örd-Wm57',
    SCRAM_ODD: 'p=a,s"s w\\örd-Wm57',
}
WRONG_PASSWORD = "wrong-password-Jd64"
MENDED_PASSWORD = "mended-password-Ks25"
register(*PASSWORDS.values(), STORE_PASSWORD, WRONG_PASSWORD, MENDED_PASSWORD)
# As the header of a request to the token endpoint has it.
register(base64.b64encode(f"alice:{PASSWORDS['alice']}".encode()).decode())
