"""Kernels, launches and bytes that are counted in the text of a compiled program, by hand."""

import subprocess
import sys

import jax
import numpy as np
import pytest

import games
import marl
from benchmarks.gpu.cards import has_plugin
from benchmarks.gpu.hlo import Program, bytes_of
from benchmarks.gpu.one_kernel import trials_in_one_kernel

# 7 iterations of a body of two kernels and a copy, one conditional, and one kernel before them. The first kernel of the
# body writes a row of 16 bytes of an array of 7 rows in place, and reads a row of 16 bytes of another.
TEXT = """\
HloModule jit_f, is_scheduled=true

%fused_row (param_0.1: f32[7,4], param_1.1: f32[7,4], param_2: s32[]) -> f32[7,4] {
  %param_0.1 = f32[7,4]{1,0} parameter(0)
  %param_1.1 = f32[7,4]{1,0} parameter(1)
  %param_2 = s32[] parameter(2)
  %zero.1 = s32[] constant(0)
  %row = f32[1,4]{1,0} dynamic-slice(%param_1.1, %param_2, %zero.1), dynamic_slice_sizes={1,4}
  ROOT %update = f32[7,4]{1,0} dynamic-update-slice(%param_0.1, %row, %param_2, %zero.1)
}

%fused_one (param_0.2: s32[]) -> s32[] {
  %param_0.2 = s32[] parameter(0)
  %one = s32[] constant(1)
  ROOT %sum = s32[] add(%param_0.2, %one)
}

%body (carry: (s32[], f32[7,4], f32[7,4])) -> (s32[], f32[7,4], f32[7,4]) {
  %carry = (s32[], f32[7,4]{1,0}, /*index=2*/f32[7,4]{1,0}) parameter(0)
  %i = s32[] get-tuple-element(%carry), index=0
  %a = f32[7,4]{1,0} get-tuple-element(%carry), index=1
  %b = f32[7,4]{1,0} get-tuple-element(%carry), index=2
  %moved = f32[7,4]{1,0} copy(%b)
  %rows = f32[7,4]{1,0} fusion(%a, %moved, %i), kind=kLoop, calls=%fused_row, metadata={op_name="x(y)"}
  %next = s32[] fusion(%i), kind=kLoop, calls=%fused_one
  ROOT %out = (s32[], f32[7,4]{1,0}, f32[7,4]{1,0}) tuple(%next, %rows, %moved)
}

%condition (carry.1: (s32[], f32[7,4], f32[7,4])) -> pred[] {
  %carry.1 = (s32[], f32[7,4]{1,0}, f32[7,4]{1,0}) parameter(0)
  %i.1 = s32[] get-tuple-element(%carry.1), index=0
  ROOT %less = pred[] fusion(%i.1), kind=kLoop, calls=%fused_one
}

%few (x.1: s32[]) -> s32[] {
  ROOT %x.1 = s32[] parameter(0)
}

%many (x.2: s32[]) -> s32[] {
  %x.2 = s32[] parameter(0)
  %x.3 = s32[] copy(%x.2)
  ROOT %x.4 = s32[] copy(%x.3)
}

ENTRY %main (start: f32[7,4], choice: pred[]) -> s32[] {
  %start = f32[7,4]{1,0} parameter(0)
  %choice = pred[] parameter(1)
  %zero = s32[] constant(0)
  %first = f32[7,4]{1,0} copy(%start)
  %all = (s32[], f32[7,4]{1,0}, f32[7,4]{1,0}) tuple(%zero, %first, %first)
  %loop = (s32[], f32[7,4]{1,0}, f32[7,4]{1,0}) while(%all), condition=%condition, body=%body, KNOWN
  %number = s32[] get-tuple-element(%loop), index=0
  ROOT %result = s32[] conditional(%choice, %number, %number), true_computation=%few, false_computation=%many
}
"""
KNOWN = TEXT.replace("KNOWN", 'backend_config={"known_trip_count":{"n":"7"},"known_init_step":{"init":"0","step":"1"}}')
UNKNOWN = TEXT.replace(", KNOWN", "")


def test_launches_and_bytes_are_those_by_hand():
    program = Program.parse(KNOWN)
    found = program.cost()
    assert found.launches == 1 + 7 * 3 + 2
    # The copy of 112 bytes, read and written; of the rows 16 read, 16 written and the number of 4; the sum of 8.
    assert found.bytes == 224 + 7 * (224 + 16 + 16 + 4 + 8) + 2 * 8
    assert found.conditionals == 1
    (loop,) = program.loops()
    assert (loop.depth, loop.trips, loop.kernels, loop.copies, loop.conditionals, loop.runs) == (0, 7, 3, 1, 0, 7)


def test_a_loop_of_unknown_length_asks_the_device_in_each_iteration():
    program = Program.parse(UNKNOWN)
    assert program.cost().launches == 1 + (3 + 2) + 2  # the condition's kernel, and its copy to the host
    assert program.cost(unknown=[4]).launches == 1 + 4 * (3 + 2) + 2
    assert program.loops(unknown=[4])[0].runs == 4


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("f32[8,256]{0,1}", 8192), ("(s32[], pred[3]{0}, bf16[2,2]{1,0})", 4 + 3 + 8), ("u8[5]{0}", 5), ("()", 0)],
)
def test_bytes_of_types(kind, expected):
    assert bytes_of(kind) == expected


@pytest.mark.system
@pytest.mark.skipif(has_plugin(), reason="it would compile all programs")
def test_without_the_plugin_one_line_says_so():
    run = subprocess.run([sys.executable, "-m", "benchmarks.gpu"], capture_output=True, text=True, check=True)
    assert run.stderr == ""
    assert run.stdout.startswith("skipped: jax-cuda13-plugin is not installed")


@pytest.mark.system
def test_a_trial_in_one_kernel_is_the_trial_of_the_library():
    """On a CPU, where Pallas runs the operations of the kernel one by one."""
    game = games.InfinitelyRepeated(games.chicken)
    shaper, opponent = marl.shapers.mfos(game), marl.make_learner("naive", game, seat=1)
    parameters = jax.vmap(shaper.init)(jax.random.split(jax.random.key(0), 2))
    keys, steps = jax.random.split(jax.random.key(1), 4), 20
    players = [shaper.learner(jax.tree.map(lambda x: x[0], parameters)), opponent]
    first = jax.vmap(lambda key: marl.learn(key, game, players, num_updates=1, keep_trajectories=True).trajectories)
    drawn = [trajectory.action[:, 0, 0] for trajectory in first(keys)]
    kernel = trials_in_one_kernel(game, candidates=2, trials=4, meta_steps=steps, at_once=2, interpret=True)
    trial = marl.shaping_trial(game, shaper, opponent, meta_steps=steps)
    outcomes = jax.jit(jax.vmap(jax.vmap(trial, (None, 0)), (0, None)))(parameters, keys)
    shapers, opponents = jax.jit(kernel)(parameters, *drawn)
    np.testing.assert_allclose(shapers, outcomes.fitness, atol=1e-5, rtol=1e-5)
    np.testing.assert_allclose(opponents, outcomes.metrics["opponent_return"], atol=1e-5, rtol=1e-5)
