"""The error that the broker's state objects raise, and its handlers turn into an answer."""

from kbatch.errors import ErrorCode

# Some texts repeat a name from the request, which may be the longest string: the text must still be one.
MAX_MESSAGE_CHARACTERS = 2000


class BrokerError(Exception):
    """The error that a broker answers instead of a result.

    Attributes
    ----------
    code : ErrorCode
    message : str or None
        Kafka's `error_message` where the response has room for one.
    """

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        super().__init__(f"{code.name}: {message}" if message else code.name)
        self.code = code
        self.message = message and message[:MAX_MESSAGE_CHARACTERS]
