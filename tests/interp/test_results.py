"""Results: frozen arrays with named axes, long tables, and folders that are whole or not there."""

import json
import pickle
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from interp.errors import LoadError, UsageError
from interp.named import NamedArray
from interp.results import Result, kinds, provenance

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


class Weather(Result, kind="test.weather"):
    """A result of no analysis, for these tests."""

    grid = ("day", "place")
    title = "Weather <of> two places"
    caution = "Not a forecast."

    def figure(self) -> "Figure":
        from interp.plots import head_heatmap

        return head_heatmap(self["warmth"], title=self.title, metric="warmth")

    def summary(self) -> list[str]:
        return [f"warmest {self['warmth'].max():.1f} & <dry>"]


class Other(Weather, kind="test.other"):
    """Another kind with the same arrays."""


def weather(kind: type[Weather] = Weather, **changes: object) -> Weather:
    rng = np.random.default_rng(0)
    parts: dict[str, object] = {
        "arrays": {
            "warmth": (rng.normal(size=(3, 2)).astype(np.float32), ("day", "place")),
            "name": (["a\0", " <é🙂>"], ("place",)),
            "rain": (rng.random((3, 2, 4)), ("day", "place", "hour")),
            "wet": (np.array([True, False, True]), ("day",)),
            "limit": (1.5, ()),
        },
        "axes": {"day": [-1, 0, 1], "place": ["north", "south"]},
        "settings": {"level": 0.1, "names": ("x", None, [1, {"deep": True}])},
        "provenance": provenance({"model": "m", "versions": {"torch": "2"}}, tokens=[[1, 2]], prefix="doc", seed=0),
    }
    return kind(**{**parts, **changes})


class TestArrays:
    def test_names_give_the_values(self) -> None:
        result = weather()
        assert result["warmth"].shape == (3, 2)
        assert result.arrays["rain"].axes == ("day", "place", "hour")
        assert "rain" in result
        assert "snow" not in result

    def test_coordinates_choose_cells(self) -> None:
        result = weather()
        assert result.at("warmth", day=-1, place="south") == result["warmth"][0, 1]
        np.testing.assert_array_equal(result.at("rain", place="north"), result["rain"][:, 0])

    def test_an_axis_without_coordinates_counts_from_zero(self) -> None:
        assert weather().axes["hour"] == (0, 1, 2, 3)

    def test_nothing_can_be_written(self) -> None:
        result = weather()
        with pytest.raises(ValueError, match="read-only"):
            result["warmth"][0, 0] = 1
        with pytest.raises(AttributeError):
            result.settings = {}
        with pytest.raises(TypeError):
            result.arrays["warmth"] = result.arrays["rain"]
        with pytest.raises(TypeError):
            result.settings["level"] = 2

    def test_what_the_caller_does_to_its_own_array_later_changes_nothing(self) -> None:
        values = np.zeros((3, 2))
        result = weather(arrays={"warmth": (values, ("day", "place"))})
        values[:] = 7
        assert (result["warmth"] == 0).all()

    def test_a_name_that_is_not_there_is_an_error_with_the_nearest(self) -> None:
        with pytest.raises(UsageError, match=r"no array 'warmht'. Did you mean 'warmth'"):
            weather()["warmht"]
        with pytest.raises(UsageError, match=r"has axes \['day', 'place'\], not \['hour'\]"):
            weather().at("warmth", hour=1)
        with pytest.raises(UsageError, match=r"no coordinate 5: it runs from -1 to 1"):
            weather().at("warmth", day=5)

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"arrays": {"warmth": (np.zeros((3, 2)), ("day",))}}, "one name per axis"),
            ({"arrays": {"warmth": (np.zeros((2, 2)), ("day", "day"))}}, "each different"),
            ({"arrays": {"warmth": (np.zeros(3), ("day",)), "n": (np.zeros(2), ("day",))}}, "2 places on axis 'day'"),
            ({"arrays": {"day": (np.zeros((3, 2)), ("day", "place"))}}, "both arrays and axes"),
            ({"arrays": {"warmth": (np.zeros(3, complex), ("day",))}}, "complex128"),
            ({"arrays": {"warmth": (np.array([1, "a"], dtype=object), ("day",))}}, "object"),
            ({"axes": {"day": [0, 1]}}, "2 coordinates"),
            ({"axes": {"day": [0, 1, 1]}}, "all different"),
            ({"axes": {"day": [0, 1, "x"]}}, "all whole numbers or all text"),
            ({"axes": {"moon": [0]}}, r"no array has the axes \['moon'\]"),
            ({"settings": {"model": object()}}, "settings.model is a object"),
            ({"settings": {"level": float("nan")}}, "settings.level is nan"),
        ],
    )
    def test_parts_that_do_not_fit_together_are_refused(self, changes: dict[str, object], message: str) -> None:
        with pytest.raises(UsageError, match=message):
            weather(**changes)

    def test_a_pickled_copy_is_identical_and_still_frozen(self) -> None:
        copy = pickle.loads(pickle.dumps(weather()))  # noqa: S301 (for process pools; files never hold pickles)
        assert copy.identical(weather())
        assert not copy["warmth"].flags.writeable


class TestTables:
    def test_a_row_is_a_cell_and_a_column_a_metric(self) -> None:
        frame = weather().to_frame()
        assert list(frame.columns) == ["day", "place", "warmth", "name", "wet", "limit"]
        assert len(frame) == 6
        row = frame[(frame.day == 1) & (frame.place == "south")].iloc[0]
        assert row.warmth == weather()["warmth"][2, 1]
        assert row["name"] == " <é🙂>"
        assert row.wet
        assert row.limit == 1.5

    def test_further_axes_make_a_longer_table(self) -> None:
        frame = weather().to_frame(("hour", "day", "place"))
        assert len(frame) == 24
        cell = frame[(frame.hour == 3) & (frame.day == 0) & (frame.place == "north")]
        assert cell.rain.item() == weather()["rain"][1, 0, 3]
        assert cell.warmth.item() == weather()["warmth"][1, 0]

    def test_the_tables_that_there_are_can_be_listed(self) -> None:
        assert ("day", "place", "hour") in weather().grids()
        with pytest.raises(UsageError, match=r"no axes \['moon'\]"):
            weather().to_frame(("moon",))

    def test_the_top_rows_come_in_order(self) -> None:
        top = weather().top("warmth", 2)
        assert top.warmth.tolist() == sorted(weather()["warmth"].ravel().tolist(), reverse=True)[:2]
        assert weather().top("warmth", 1, largest=False).warmth.item() == weather()["warmth"].min()
        assert weather().top("rain", 1).rain.item() == weather()["rain"].max()


class TestProvenance:
    def test_it_joins_the_models_facts_and_the_runs(self) -> None:
        found = weather().provenance
        assert found["model"] == "m"
        assert found["prefix"] == "doc"
        assert {"torch", "numpy", "python", "interp"} <= set(found["versions"])

    def test_it_tells_tokens_apart_by_value_and_shape(self) -> None:
        hashes = {provenance({}, tokens=tokens)["tokens_sha256"] for tokens in ([[1, 2]], [[1], [2]], [[1, 3]])}
        assert len(hashes) == 3


def folder_with_a_result(tmp_path: Path) -> Path:
    return weather().save(tmp_path / "weather")


class TestFolders:
    def test_a_round_trip_keeps_every_bit(self, tmp_path: Path) -> None:
        bits = np.array([[0.0, -0.0], [np.nan, np.inf], [1e-45, 1.0]], dtype=np.float32)
        result = weather(arrays={**weather().arrays, "bits": (bits, ("day", "place"))})
        result.save(tmp_path / "deep" / "weather")
        loaded = Result.load(tmp_path / "deep" / "weather")
        assert loaded.identical(result)
        assert type(loaded) is Weather
        assert loaded["bits"].tobytes() == bits.tobytes()
        assert loaded.settings == result.settings
        assert loaded["name"][0] == "a\0"

    @pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "int64", "uint64", "float16", "float32", "float64"])
    @pytest.mark.parametrize("shape", [(), (0,), (2, 3)])
    def test_a_round_trip_keeps_dtypes_and_shapes(self, tmp_path: Path, dtype: str, shape: tuple[int, ...]) -> None:
        values = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)
        names = tuple("abc"[: len(shape)])
        weather(arrays={**weather().arrays, "more": (values, names)}).save(tmp_path / "r")
        more = Result.load(tmp_path / "r").named("more")
        assert (more.values.dtype, more.values.shape, more.axes) == (values.dtype, shape, names)
        assert more.identical(NamedArray(values, names))

    def test_a_difference_of_one_bit_is_a_difference(self) -> None:
        changed = weather()["warmth"].copy()
        changed[0, 0] = np.nextafter(changed[0, 0], np.float32(np.inf))
        arrays = {**weather().arrays, "warmth": (changed, ("day", "place"))}
        assert not weather(arrays=arrays).identical(weather())
        assert not weather(settings={"level": 0.2}).identical(weather())

    def test_the_table_is_there_for_other_tools(self, tmp_path: Path) -> None:
        import pandas

        table = pandas.read_parquet(folder_with_a_result(tmp_path) / "table.parquet")
        pandas.testing.assert_frame_equal(table, weather().to_frame())

    def test_saving_again_replaces_the_earlier_result(self, tmp_path: Path) -> None:
        folder = folder_with_a_result(tmp_path)
        weather(settings={"level": 9}).save(folder)
        assert Result.load(folder).settings == {"level": 9}
        assert [path.name for path in tmp_path.iterdir()] == ["weather"]

    def test_a_folder_with_other_files_is_left_alone(self, tmp_path: Path) -> None:
        (tmp_path / "thesis.txt").write_text("years of work")
        with pytest.raises(UsageError, match="holds other files"):
            weather().save(tmp_path)
        assert (tmp_path / "thesis.txt").read_text() == "years of work"
        with pytest.raises(UsageError, match="not a folder"):
            weather().save(tmp_path / "thesis.txt")

    @pytest.mark.parametrize("existing", [False, True])
    def test_an_interrupted_save_leaves_what_was_there(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, existing: bool
    ) -> None:
        if existing:
            folder_with_a_result(tmp_path)
        written = Path.write_bytes

        def interrupted(path: Path, content: bytes) -> int:
            if path.name == "table.parquet":
                raise KeyboardInterrupt
            return written(path, content)

        monkeypatch.setattr(Path, "write_bytes", interrupted)
        with pytest.raises(KeyboardInterrupt):
            weather(settings={"level": 9}).save(tmp_path / "weather")
        assert [path.name for path in tmp_path.iterdir()] == (["weather"] if existing else [])
        if existing:
            assert Result.load(tmp_path / "weather").identical(weather())

    def test_a_failed_exchange_puts_the_earlier_result_back(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        folder, rename = folder_with_a_result(tmp_path), Path.rename

        def failing(path: Path, target: Path) -> Path:
            if ".partial-" in path.name and not path.name.endswith(".old"):
                raise OSError("no space left")
            return rename(path, target)

        monkeypatch.setattr(Path, "rename", failing)
        with pytest.raises(OSError, match="no space"):
            weather(settings={"level": 9}).save(folder)
        assert [path.name for path in tmp_path.iterdir()] == ["weather"]
        assert Result.load(folder).identical(weather())


class TestDamage:
    @pytest.mark.parametrize("name", ["manifest.json", "arrays.safetensors", "text.json", "table.parquet"])
    def test_a_flipped_bit_is_noticed_in_every_file(self, tmp_path: Path, name: str) -> None:
        path = folder_with_a_result(tmp_path) / name
        content = bytearray(path.read_bytes())
        for place in range(0, len(content), max(1, len(content) // 20)):
            content[place] ^= 1
            path.write_bytes(content)
            with pytest.raises(LoadError):
                Result.load(path.parent)
            content[place] ^= 1
        path.write_bytes(content)
        assert Result.load(path.parent).identical(weather())

    @pytest.mark.parametrize("name", ["manifest.json", "arrays.safetensors", "text.json", "table.parquet"])
    def test_a_missing_or_shortened_file_is_noticed(self, tmp_path: Path, name: str) -> None:
        path = folder_with_a_result(tmp_path) / name
        path.write_bytes(path.read_bytes()[:-1])
        with pytest.raises(LoadError, match=name.replace(".", r"\.")):
            Result.load(path.parent)
        path.unlink()
        with pytest.raises(LoadError, match=name.replace(".", r"\.")):
            Result.load(path.parent)

    def test_what_is_no_result_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(LoadError, match="not a saved result"):
            Result.load(tmp_path / "nowhere")
        (tmp_path / "manifest.json").write_text("[]")
        with pytest.raises(LoadError, match="not the manifest of a result"):
            Result.load(tmp_path)

    def test_a_result_of_another_kind_is_refused_by_a_class_that_was_named(self, tmp_path: Path) -> None:
        weather(Other).save(tmp_path / "other")
        assert type(Result.load(tmp_path / "other")) is Other
        weather().save(tmp_path / "weather")
        with pytest.raises(LoadError, match=r"kind 'test.weather', expected 'test.other'"):
            Other.load(tmp_path / "weather")

    def test_an_unknown_kind_or_version_is_refused_with_what_to_do(self, tmp_path: Path) -> None:
        from interp.result_files import _seal

        path = folder_with_a_result(tmp_path) / "manifest.json"
        manifest = json.loads(path.read_text())
        for changes, message in (
            ({"kind": "test.nothing", "module": "os"}, "Import the module that defines it first, os"),
            ({"kind": "test.nothing", "module": "interp.analyses.nothing"}, "not installed here"),
            ({"version": 2}, "reads version 1"),
        ):
            changed = {**manifest, **changes}
            path.write_text(json.dumps({**changed, "sha256": _seal(changed)}))
            with pytest.raises(LoadError, match=message):
                Result.load(path.parent)


class TestNotebooks:
    def test_a_result_shows_its_summary_and_table_escaped(self) -> None:
        page = weather()._repr_html_()
        assert "Weather &lt;of&gt; two places" in page
        assert "&amp; &lt;dry&gt;" in page
        assert "Not a forecast." in page
        assert "&lt;é🙂&gt;</td>" in page
        assert "6 of 6 rows" in page
        assert "<script" not in page

    def test_a_result_names_its_model_and_arrays(self) -> None:
        assert repr(weather()).startswith("<Weather of m: warmth ['day', 'place'], name ['place']")


def test_the_kinds_of_all_analyses_are_known_once_they_are_imported() -> None:
    from interp.analyses import ANALYSES

    for analysis in ANALYSES.values():
        assert analysis.function.__annotations__["return"] in kinds().values()
    assert {"test.weather", "test.other"} <= set(kinds())
