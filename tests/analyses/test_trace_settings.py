"""The settings of traces: which layers a window covers, what can be severed, and that two lists of them are one."""

from dataclasses import fields

import pytest

from interp.analyses.trace_settings import RESTORED, SEVERED, TraceOptions, TraceSettings, said, window_of
from interp.errors import UsageError


def test_options_are_the_fields_of_the_settings() -> None:
    assert list(TraceOptions.__annotations__) == [field.name for field in fields(TraceSettings)]
    assert TraceOptions.__annotations__ == {field.name: field.type for field in fields(TraceSettings)}


@pytest.mark.parametrize(
    ("window", "first", "last"),
    [(1, [0], [29]), (2, [0], [28, 29]), (9, range(5), range(25, 30)), (10, range(5), range(24, 30))],
)
@pytest.mark.parametrize("kind", ["mlp", "attn"])
def test_windows_are_cut_at_both_ends(kind: str, window: int, first: object, last: object) -> None:
    assert list(window_of(kind, 0, window, 30)) == list(first)  # type: ignore[call-overload]  # lists and ranges
    assert list(window_of(kind, 29, window, 30)) == list(last)  # type: ignore[call-overload]


@pytest.mark.parametrize("kind", ["resid", *SEVERED])
def test_a_residual_stream_has_no_window(kind: str) -> None:
    assert window_of(kind, 15, 10, 30) == range(15, 16)
    assert RESTORED[kind] == "hook_resid_post"


@pytest.mark.parametrize(
    ("severed", "rows"),
    [
        (None, ["resid"]),
        ((), ["resid"]),
        ("mlp", ["resid", "severed_mlp"]),
        (["attn", "mlp"], ["resid", "severed_attn", "severed_mlp"]),
    ],
)
def test_a_severed_sublayer_adds_a_row(severed: object, rows: list[str]) -> None:
    assert list(TraceSettings(kinds=("resid",), severed=severed).rows) == rows  # type: ignore[arg-type]


def test_rows_are_said_in_words() -> None:
    assert said("mlp", 10) == "FFN outputs, 10 layers"
    assert said("attn", 1) == "attention outputs"
    assert said("resid", 10) == "residual stream"
    assert said("severed_mlp", 10) == "residual stream, FFN severed"
    assert said("severed_attn", 10) == "residual stream, attention severed"


@pytest.mark.parametrize("severed", ["resid", ("mlp", "mlp"), ("heads",)])
def test_only_sublayers_are_severed_each_once(severed: object) -> None:
    with pytest.raises(UsageError, match="A trace severs some of mlp, attn, each once"):
        TraceSettings(severed=severed)  # type: ignore[arg-type]
