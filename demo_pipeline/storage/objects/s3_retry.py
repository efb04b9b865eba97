"""The one retry policy of all S3 calls: which failures pass, how often and after which pauses.

Belongs here: the loop. What makes a repeated call harmless is decided where the call is made
(s3_objects.py); botocore and s3fs do not repeat anything themselves.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from demo_pipeline.storage.objects.s3_client import S3CallError

_Result = TypeVar("_Result")
# S3's codes for trouble that passes and whose HTTP status does not say so.
# https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html
_PASSING_CODES = frozenset({"RequestTimeout", "SlowDown", "BadDigest", "IncompleteBody"})
_PASSING_STATUSES = frozenset({429, 500, 502, 503, 504})
# Without an answer, these are wrong settings and not the network's fault.
_PERMANENT_CODES = frozenset(
    {
        "NoCredentialsError",
        "PartialCredentialsError",
        "ProfileNotFound",
        "InvalidConfigError",
        "ParamValidationError",
        "NoRegionError",
        "ValueError",
    }
)


def is_passing(error: S3CallError) -> bool:
    """Whether the same call may succeed a little later: no answer, an overloaded or broken server.

    A body that was cut or changed on its way counts as no answer.
    """
    if error.status == 0:
        return error.code not in _PERMANENT_CODES
    return error.status in _PASSING_STATUSES or error.code in _PASSING_CODES


@dataclass(frozen=True, slots=True)
class S3RetryPolicy:
    """How often a call is made, and the pauses in between.

    Attributes:
        attempts: calls in all.
        pause_s: seconds before the second call; each further pause is twice as long.
    """

    attempts: int = 5
    pause_s: float = 0.25

    def run(self, call: Callable[[bool], _Result]) -> _Result:
        """The result of `call`, which is made again while its failure is one that passes.

        Args:
            call: gets whether an earlier call failed, which may have had its effect all the same.

        Raises:
            S3CallError: of the last call.
        """
        for attempt in range(1, self.attempts):
            try:
                return call(attempt > 1)
            except S3CallError as error:
                if not is_passing(error):
                    raise
            time.sleep(self.pause_s * 2 ** (attempt - 1))
        return call(self.attempts > 1)


S3_RETRY_POLICY = S3RetryPolicy()
