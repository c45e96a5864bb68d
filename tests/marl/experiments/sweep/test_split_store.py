"""Runs that one program trains keep in their own directories what each would write alone."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from marl.experiments.sweep.split_store import SplitStore
from meta import RunDirectory
from meta.loop import iterate

CONFIG = {"seed": 0}


def step(keys, number, state):
    """A random walk of each run, with its key in the state."""

    def one(key, at):
        moved = at["at"] + jax.random.normal(jax.random.fold_in(key, number))
        return {"at": moved, "key": at["key"]}, moved

    state, moved = jax.vmap(one)(keys, state)
    return state, {"where": moved if len(moved) > 1 else moved[0]}


def walk(keys, store, steps, *, squeeze=False):
    state = {"at": jnp.zeros(len(keys)), "key": keys}
    if squeeze:
        alone, state = step, jax.tree.map(lambda x: x[0], state)

        def squeezed(keys, number, state):
            new, metrics = alone(keys, number, jax.tree.map(lambda x: x[None], state))
            return jax.tree.map(lambda x: x[0], new), metrics

        return iterate(squeezed, state, keys, steps, store=store, checkpoint_seconds=0)
    return iterate(step, state, keys, steps, store=store, checkpoint_seconds=0)


@pytest.fixture
def runs(tmp_path):
    return [RunDirectory.create(tmp_path / name, CONFIG) for name in ("a", "b", "c")]


KEYS = jax.random.split(jax.random.key(1), 6)


@pytest.mark.parametrize(("each", "squeeze"), [(1, False), (1, True), (2, True)])
def test_each_directory_has_what_its_run_writes_alone(runs, tmp_path, each, squeeze):
    keys = KEYS[: 3 * each]
    walk(keys, SplitStore(runs, each, squeeze=squeeze), 5)
    for number, run in enumerate(runs):
        alone = RunDirectory.create(tmp_path / f"alone {number}", CONFIG)
        walk(keys[number * each : (number + 1) * each], alone, 5, squeeze=squeeze and each == 1)
        for file in ("checkpoints/00000005", "metrics.jsonl"):
            assert (run.path / file).read_bytes() == (alone.path / file).read_bytes()


@pytest.mark.parametrize(("each", "squeeze"), [(1, True), (2, False)])
def test_it_goes_on_from_the_newest_checkpoint_that_all_have(runs, each, squeeze):
    keys = KEYS[: 3 * each]
    whole = walk(keys, None, 9)
    walk(keys, SplitStore(runs, each, squeeze=squeeze), 6)
    newest = max((runs[1].path / "checkpoints").iterdir(), key=lambda file: int(file.name))
    newest.unlink()  # a process that was killed in the midst of saving
    found = walk(keys, SplitStore(runs, each, squeeze=squeeze), 9)
    assert 0 < found.first_iteration < 6
    np.testing.assert_array_equal(found.state["at"], whole.state["at"])
    np.testing.assert_array_equal(found.metrics["where"], whole.metrics["where"])
    for run in runs:
        rows = [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]
        assert [row["generation"] for row in rows] == list(range(1, 10))


def test_without_a_common_checkpoint_it_begins_again(runs):
    store = SplitStore(runs, 1, squeeze=True)
    walk(KEYS[:3], store, 4)
    for file in (runs[2].path / "checkpoints").iterdir():
        file.unlink()
    assert walk(KEYS[:3], store, 4).first_iteration == 0
