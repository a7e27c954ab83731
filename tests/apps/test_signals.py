"""SIGTERM stops a command as Ctrl-C does, and the code tells which it was."""

import os
import signal
import threading

import pytest

import interp
from interp.apps.cli import main
from interp.apps.cli.signals import INTERRUPTED, TERMINATED, terminable


def send(number: int) -> None:
    os.kill(os.getpid(), number)


def test_sigterm_becomes_an_interrupt_that_knows_its_code() -> None:
    with terminable() as stop, pytest.raises(KeyboardInterrupt):
        send(signal.SIGTERM)
    assert stop.code == TERMINATED


def test_the_handler_that_was_there_before_is_there_again() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with terminable():
        assert signal.getsignal(signal.SIGTERM) is not before
    assert signal.getsignal(signal.SIGTERM) is before


def test_after_the_first_sigterm_a_second_one_ends_the_process() -> None:
    with terminable():
        with pytest.raises(KeyboardInterrupt):
            send(signal.SIGTERM)
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_in_another_thread_nothing_is_handled() -> None:
    codes = []

    def work() -> None:
        with terminable() as stop:
            codes.append(stop.code)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert codes == [INTERRUPTED]


@pytest.mark.parametrize(
    ("number", "code", "said"), [(signal.SIGTERM, 143, "Terminated."), (signal.SIGINT, 130, "Interrupted.")]
)
def test_a_command_that_is_stopped_ends_with_its_code(
    number: int, code: int, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(interp, "load", lambda *_, **__: send(number), raising=False)
    assert main(["lens", "x", "-q"]) == code
    assert capsys.readouterr().err == f"{said}\n"
