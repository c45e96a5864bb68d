"""A process that was asked to stop stops, whatever became of the exception."""

import os
import signal
import sys
import weakref

import pytest

from meta import interrupt

pytestmark = pytest.mark.system


def test_a_stop_in_the_midst_of_an_objects_removal_is_not_lost_and_shows_nothing(monkeypatch, capsys):
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    class Thing:
        pass

    thing = Thing()
    finalizer = weakref.ref(thing, lambda _: os.kill(os.getpid(), signal.SIGTERM))
    monkeypatch.setattr(sys, "unraisablehook", sys.__unraisablehook__)  # taken back in the end, as it was
    try:
        interrupt.check_stop()  # nobody has asked yet
        interrupt.stop_on_signals()
        del thing  # Python drops the exception here, which it would show, and goes on
        with pytest.raises(KeyboardInterrupt):
            interrupt.check_stop()
        assert capsys.readouterr().err == ""
        other = Thing()
        weakref.finalize(other, lambda: 1 // 0)
        del other
        assert "ZeroDivisionError" in capsys.readouterr().err
    finally:
        interrupt._asked.clear()
        for number, handler in handlers.items():
            signal.signal(number, handler)
    assert finalizer() is None


def test_what_may_not_be_left_half_done_is_done_before_the_stop(monkeypatch):
    handlers, done = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}, []
    monkeypatch.setattr(sys, "unraisablehook", sys.__unraisablehook__)

    def asked_meanwhile(word, **how):
        with interrupt.uninterrupted(**how):
            os.kill(os.getpid(), signal.SIGTERM)
            done.append(word)

    try:
        interrupt.stop_on_signals()
        with interrupt.uninterrupted():
            done.append("first")
        with pytest.raises(KeyboardInterrupt):
            asked_meanwhile("second")
        interrupt._asked.clear()
        asked_meanwhile("third", check=False)
        with pytest.raises(KeyboardInterrupt):
            interrupt.check_stop()
        interrupt._asked.clear()
        with pytest.raises(KeyboardInterrupt):  # and outside at once
            os.kill(os.getpid(), signal.SIGTERM)
    finally:
        interrupt._asked.clear()
        for number, handler in handlers.items():
            signal.signal(number, handler)
    assert done == ["first", "second", "third"]
