"""Tests which URLs of stores and uploads are accepted. Errors do not repeat refused URLs."""

import pytest

from demo_pipeline.settings import Settings
from demo_pipeline.store.errors import StorageError
from demo_pipeline.store.names import bucket_of, local_path
from demo_pipeline.store.store import open_store
from demo_pipeline.store.uploads import open_uploads

CANARY = "canary-9f31"
REFUSED = (
    f"s3://bucket/x?secret={CANARY}",
    f"s3://bucket/x#{CANARY}",
    f"s3://bucket?X-Amz-Signature={CANARY}",
    f"S3://bucket/{CANARY}#",
    f"s3:/bucket/{CANARY}",
    f"s3:bucket/{CANARY}",
    f"s3://key:{CANARY}@bucket/x",
    f"s3:///{CANARY}",
    f"file:///data/x?token={CANARY}",
    f"file:///data/x#{CANARY}",
    f"file://{CANARY}/x",
    f"https://host/x?token={CANARY}",
    f"{CANARY}://host/x",
    f"http://[{CANARY}/x",
)


@pytest.mark.parametrize("url", REFUSED)
def test_an_error_never_repeats_the_refused_url(url, tmp_path):
    for opened in (lambda: open_store(url, tmp_path), lambda: open_uploads(url, tmp_path)):
        with pytest.raises(StorageError) as error:
            opened()
        assert CANARY not in f"{error.value}{error.value.__cause__}{error.value.__context__}"


def test_a_path_and_a_plain_url_are_accepted(tmp_path):
    assert bucket_of(" s3://bucket/a/b/ ") == ("bucket", "a/b/")
    assert local_path(f"file://{tmp_path}/a%3Fb%23c") == tmp_path / "a?b#c"
    assert local_path(f"{tmp_path}/a?b#c") == tmp_path / "a?b#c"
    assert Settings(store="s3://bucket/x").store == "s3://bucket/x"
