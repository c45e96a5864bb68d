"""Files that are written whole or not at all, and read as they are."""

import resource

import pytest

from configs import files
from meta.runs.atomic_files import write_whole


def test_what_may_be_larger_than_memory_is_read_as_what_it_is(tmp_path):
    """Checkpoints of many updates may be large, and their limit once was taken from memory before they were read."""
    (tmp_path / "file").write_bytes(b"few")
    assert files.read(tmp_path / "file", most=2**60) == b"few"


def test_what_a_full_disk_has_left_of_a_file_is_removed(tmp_path):
    path, before = tmp_path / "file", resource.getrlimit(resource.RLIMIT_FSIZE)
    write_whole(path, b"old")
    resource.setrlimit(resource.RLIMIT_FSIZE, (16, before[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            write_whole(path, bytes(100))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert [(file.name, file.read_bytes()) for file in tmp_path.iterdir()] == [("file", b"old")]
