"""Tests a few bad uploads beside good ones. `make faults` tests 60, in a folder and in a bucket."""

from demo_pipeline_tests.faults.bad_uploads import MEMORY, every_kind, process

FEW = ("folder-loop", "meta-sparse", "log-huge-time", "video-bomb")


def test_good_uploads_are_processed_and_bad_ones_reported_within_one_gigabyte(tmp_path):
    results = process(tmp_path / "place", FEW, ["good"])
    assert results.missing == []
    assert results.done == ["good"]
    assert len(results.reported) == len(FEW)
    assert not any("memory" in reason for reason in results.reported.values())
    assert 0 < results.largest < MEMORY


def test_there_are_sixty_kinds_everywhere():
    for bucket in (False, True):
        kinds = every_kind(bucket=bucket)
        assert len(kinds) == len(set(kinds)) >= 60
