"""Files that are written whole or not at all, and read as they are."""

import resource

import pytest

from configs import files
from meta.atomic_files import write_whole


def test_the_limit_of_a_file_may_exceed_the_memory(tmp_path):
    """Checkpoints of many updates may be large; the limit does not allocate memory."""
    (tmp_path / "file").write_bytes(b"few")
    assert files.read(tmp_path / "file", most=2**60) == b"few"


def test_a_partial_file_on_a_full_disk_is_removed(tmp_path):
    path, before = tmp_path / "file", resource.getrlimit(resource.RLIMIT_FSIZE)
    write_whole(path, b"old")
    resource.setrlimit(resource.RLIMIT_FSIZE, (16, before[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            write_whole(path, bytes(100))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert [(file.name, file.read_bytes()) for file in tmp_path.iterdir()] == [("file", b"old")]
