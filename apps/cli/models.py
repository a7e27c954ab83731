"""`interp models`: which models are known, what they are, and how to get one."""

from typing import TYPE_CHECKING, Annotated

import typer

from interp.apps.cli.options import DEFAULT_MODEL, AsJson, Common, Debug, Quiet, with_common

if TYPE_CHECKING:
    import torch
    from rich.console import RenderableType

    from interp.models.config import ModelConfig
    from interp.models.description import Description
    from interp.models.verify import Verification

LIST_EPILOG = """\b
Example:
  interp models list --json
"""
SHOW_EPILOG = """\b
Examples:
  interp models show                        the default model
  interp models show llama-3.1-70b          a preset: published figures, no weights
  interp models show path/to/model.gguf
  interp models show path/to/folder --json
  interp models show EleutherAI/pythia-70m --revision step1000
"""
VERIFY_EPILOG = """\b
Examples:
  interp models verify                      the default model
  interp models verify path/to/folder --dtype bfloat16
  interp models verify path/to/model.gguf --json
"""
PULL_EPILOG = """\b
Examples:
  interp models pull
  INTERP_CACHE=/data/models interp models pull smollm2-135m
  interp models pull gemma3-270m --accept-terms
"""

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


@app.command("list", epilog=LIST_EPILOG, short_help="Models that can be loaded by name, and presets.")
def list_models(as_json: AsJson = False, debug: Debug = False) -> None:
    """List the models that can be loaded by name: licence, size, and whether they are on this machine.

    Then the presets: published shapes that `interp models show` and `interp points` describe without any weights.
    Folders, .gguf files and Hugging Face Hub ids can be loaded as well, wherever a model is asked for.
    """
    from interp.apps.cli.output import show, table, write_json
    from interp.apps.model_facts import size
    from interp.models.loading import known_models
    from interp.models.planner import parameters
    from interp.models.presets import presets

    known = known_models()
    shapes = [(shape, parameters(shape.config).total) for shape in presets().values()]
    if as_json:
        names = ("name", "description", "licence", "terms", "source", "n_bytes", "cached", "path")
        models = [{name: getattr(model, name) for name in names} for model in known]
        listed = [
            {"name": shape.name, "parameters": count, "licence": shape.licence, "source": shape.source}
            for shape, count in shapes
        ]
        write_json({"models": models, "presets": listed})
        return
    rows = [
        (model.name, model.licence, size(model.n_bytes), "yes" if model.cached else "no", model.description)
        for model in known
    ]
    known_table = table(["name", "licence", "size>", "here", "what it is"], rows)
    cells = [(shape.name, f"{count:,}", shape.licence, shape.source) for shape, count in shapes]
    show(known_table, "", table(["preset (a shape alone)", "parameters>", "licence", "figures from"], cells))


@app.command("show", epilog=SHOW_EPILOG, short_help="What a model is made of.")
@with_common("model", "device", "prefix", "seed", "out")
def show_model(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="A known name, a preset, a folder, a .gguf file or a Hub id.")
    ] = DEFAULT_MODEL,
    *,
    common: Common,
) -> None:
    """Describe a model: shape, parameters, memory, bytes of keys and values a token, hook points, licence, hash.

    Its weights are not loaded, so the largest models are described at once.
    """
    import torch

    from interp.apps.cli.output import show, table, write_json
    from interp.apps.cli.session import working
    from interp.apps.model_facts import described_facts
    from interp.models.description import describe

    dtype: torch.dtype = getattr(torch, common.dtype or "float32")
    with working(f"Reading what {name} is", common) as progress:
        described = describe(name, revision=common.revision, progress=progress)
    if common.as_json:
        write_json(_document(described, dtype))
        return
    show(table(["fact", "value"], described_facts(described, dtype)), "", *_tables(described.config))


def _tables(config: "ModelConfig") -> "list[RenderableType]":
    """Parameters by component, and every kind of hook point."""
    from interp.apps.cli.output import table
    from interp.models.planner import parameters, point_shapes

    counted = parameters(config)
    counts = [
        (name, f"{count:,}", f"{counted.active[name]:,}", f"{count / counted.total:.1%}")
        for name, count in counted.stored.items()
        if count
    ]
    counts.append(("all", f"{counted.total:,}", f"{counted.total_active:,}", "100.0%"))
    points = [(name, shape, where) for name, (shape, where) in point_shapes(config).items()]
    return [
        table(["component", "parameters>", "active for a token>", "share>"], counts),
        "",
        table(["point", "shape", "where"], points),
    ]


def _document(described: "Description", dtype: "torch.dtype") -> dict[str, object]:
    from interp.models.planner import kv_bytes_per_token, parameters, point_shapes
    from interp.models.transformer import point_table

    config, counted, tokenizer = described.config, parameters(described.config), described.tokenizer
    words = tokenizer and {
        "d_vocab": tokenizer.d_vocab,
        "special_ids": sorted(tokenizer.special_ids),
        "doc_separator_id": tokenizer.doc_separator_id,
    }
    shapes = point_shapes(config).items()
    return {
        "model": described.name,
        "source": described.source,
        "preset": described.is_preset,
        "licence": described.licence,
        "weights_sha256": described.weights_sha256,
        "dtype": str(dtype).removeprefix("torch."),
        "config": config.to_dict(),
        "parameters": counted.total,
        "active_parameters": counted.total_active,
        "parameters_by_component": counted.stored,
        "active_by_component": counted.active,
        "weight_bytes": counted.total * dtype.itemsize,
        "kv_bytes_per_token": kv_bytes_per_token(config, dtype.itemsize),
        "hook_points": len(point_table(config)),
        "points": [{"name": name, "shape": shape, "where": where} for name, (shape, where) in shapes],
        "tokenizer": words,
    }


@app.command("verify", epilog=VERIFY_EPILOG, short_help="Is what is loaded right? Comparisons, and a certificate.")
@with_common("model", "prefix", "out")
def verify_model(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="A known name, a folder, a .gguf file or a Hub id.")
    ] = DEFAULT_MODEL,
    *,
    common: Common,
) -> None:
    """Verify a model on this machine, and keep the outcome as a certificate that later results quote.

    Compared are: all recorded values with the equations of their hook points, token by token with all at once, padded
    batches with single texts, the device with the CPU, and the same weights in `transformers` where it is installed and
    can read them. Ends with 1 if a comparison fails.
    """
    from interp.apps.cli.output import write_json, write_message
    from interp.apps.cli.session import working
    from interp.models.verify import certify

    with working(f"Verifying {name}", common) as progress:
        verified, path = certify(
            name,
            device=common.device,
            dtype=common.dtype,
            revision=common.revision,
            seed=common.seed,
            progress=progress,
        )
    if common.as_json:
        write_json({**verified.to_dict(), "certificate": path})
    else:
        _show_lines(verified)
        if not common.quiet:
            write_message(f"Certificate: {path}")
    if not verified.passed:
        raise typer.Exit(1)


def _show_lines(verified: "Verification") -> None:
    from interp.apps.cli.output import show, table

    words = {True: "ok", False: "FAILED", None: "not compared"}
    rows = [
        (
            line.compared,
            "not a number" if line.error is None and line.passed is False else _figure(line.error),
            _figure(line.tolerance if line.passed is not None else None),
            words[line.passed],
            line.note,
        )
        for line in verified.lines
    ]
    show(table(["compared", "worst error>", "tolerance>", "outcome", "why"], rows))


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.1e}" if value else "0"


@app.command("pull", epilog=PULL_EPILOG, short_help="Bring a model onto this machine.")
def pull_model(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A known name.")] = DEFAULT_MODEL,
    accept_terms: Annotated[
        bool, typer.Option("--accept-terms", help="I accept the terms under which this model may be used.")
    ] = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Bring a known model into the cache folder (INTERP_CACHE, else the platform's) and print where it is.

    Its hash is checked; an interrupted pull leaves nothing and can be repeated. A model that may be used only under
    terms is not pulled before you accept them.
    """
    from interp.apps.cli.output import write_data, write_json
    from interp.apps.cli.progress import step
    from interp.models.loading import pull

    with step(f"Pulling {name}", quiet) as progress:
        path = pull(name, accept_terms=accept_terms, progress=progress)
    if as_json:
        write_json({"name": name, "path": path})
    else:
        write_data(str(path))
