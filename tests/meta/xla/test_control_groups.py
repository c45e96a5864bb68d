"""Limits of memory and cores, in file systems as a container or a job of a cluster sees them."""

import math

import pytest

from meta.xla.control_groups import core_limit, memory_limit


@pytest.fixture
def system(tmp_path):
    """Writes files below a root, by their paths."""

    def write(**files):
        for path, text in files.items():
            file = tmp_path / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        return tmp_path

    return write


def limits(root):
    return memory_limit(root), core_limit(root)


def test_without_groups_or_limits_there_are_none(system):
    assert limits(system()) == (math.inf, math.inf)
    root = system(**{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000\n"})
    assert limits(root) == (math.inf, math.inf)


def test_a_limit_binds_all_groups_below_it(system):
    """The files of version 2, with a limit above the process's own group, and one above all groups, which is none."""
    files = {"proc/self/cgroup": "0::/job/step\n", "memory.max": "1\n", "cpu.max": "1 100000\n"}
    files |= {"sys/fs/cgroup/job/memory.max": "8000\n", "sys/fs/cgroup/job/step/memory.max": "max\n"}
    files |= {"sys/fs/cgroup/job/cpu.max": "300000 100000\n", "sys/fs/cgroup/job/step/cpu.max": "150000 100000\n"}
    assert limits(system(**files)) == (8000, 1.5)


def test_inside_a_container_the_top_is_its_own_group(system):
    """The files of version 1, where the path is that of the host and -1 is no limit."""
    files = {"proc/self/cgroup": "4:memory:/docker/a\n3:cpu,cpuacct:/docker/a\n1:pids:/\n0::/\n"}
    files |= {"sys/fs/cgroup/memory/memory.limit_in_bytes": "500\n"}
    files |= {"sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "200000\n"}
    files |= {"sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n"}
    assert limits(system(**files)) == (500, 2)
    assert core_limit(system(**{"sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "-1\n"})) == math.inf


def test_files_that_make_no_sense_are_no_limits(system):
    files = {"proc/self/cgroup": "\n0::/\nnonsense\n", "sys/fs/cgroup/cpu.max": "100000 0\n"}
    assert limits(system(**files, **{"sys/fs/cgroup/memory.max": "much\n"})) == (math.inf, math.inf)
