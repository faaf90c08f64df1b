"""What a signal does, in this process; processes that are really stopped are in test_faults.py."""

import contextlib
import os
import signal
import threading

import pytest

from icl_lab.lab import stopping
from icl_lab.lab.stopping import Stopped


def send(number):
    os.kill(os.getpid(), number)


@pytest.fixture
def default_handlers():
    before = {number: signal.signal(number, signal.default_int_handler) for number in stopping.HEEDED}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


pytestmark = pytest.mark.usefixtures("default_handlers")


def ends_with(kind, body):
    """What ``body`` raises while signals are heeded."""
    with pytest.raises(kind) as raised, stopping.heeding():
        body()
    return raised.value


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_scheduler_stops_a_run_at_once_where_nothing_is_open(number):
    def body():
        send(number)
        pytest.fail("it went on")

    assert str(ends_with(Stopped, body)) == f"stopped by {number.name}"


def test_ctrl_c_is_a_keyboard_interrupt_and_not_a_scheduler():
    assert not isinstance(ends_with(KeyboardInterrupt, lambda: send(signal.SIGINT)), Stopped)


def test_a_write_ends_before_the_run_does():
    done = []

    def body():
        with stopping.held():
            send(signal.SIGTERM)
            send(signal.SIGTERM)  # a second one tears nothing either
            send(signal.SIGINT)
            done.append("write")
        done.append("after the write")

    ends_with(Stopped, body)
    assert done == ["write"]


def test_a_training_goes_on_to_its_checkpoint():
    done = []

    def body():
        with stopping.held():
            send(signal.SIGUSR1)
            with stopping.held():
                pass
            stopping.check()
            done.append(stopping.requested())
            stopping.stop()

    ends_with(Stopped, body)
    assert done == [True]


def test_the_second_ctrl_c_does_not_wait_for_the_checkpoint(capfd):
    def body():
        with stopping.held():
            send(signal.SIGINT)
            assert "Ctrl-C again" in capfd.readouterr().err
            send(signal.SIGINT)
            pytest.fail("it went on")

    ends_with(KeyboardInterrupt, body)


def test_on_the_way_out_a_second_sigterm_is_not_raised():
    cleaned = []

    def body():
        try:
            send(signal.SIGTERM)
        finally:
            send(signal.SIGTERM)
            cleaned.append(True)

    ends_with(Stopped, body)
    assert cleaned


def test_a_stop_that_was_swallowed_is_raised_again():
    def body():
        with contextlib.suppress(Stopped):
            send(signal.SIGTERM)
        stopping.check()

    ends_with(Stopped, body)


def test_handlers_are_restored_and_ignored_signals_stay_ignored():
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    before = [signal.getsignal(number) for number in stopping.HEEDED]
    with stopping.heeding():
        send(signal.SIGUSR1)
        assert not stopping.requested()
        assert signal.getsignal(signal.SIGTERM) is not before[0]
    assert [signal.getsignal(number) for number in stopping.HEEDED] == before


def test_a_run_does_not_start_stopped():
    with pytest.raises(Stopped), stopping.heeding():
        send(signal.SIGTERM)
    with stopping.heeding(), stopping.held():
        assert not stopping.requested()
    stopping.check()


def test_other_threads_leave_the_handlers_alone():
    seen = []

    def run():
        before = signal.getsignal(signal.SIGTERM)
        with stopping.heeding():
            seen.append(signal.getsignal(signal.SIGTERM) is before)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert seen == [True]
