"""`interp models`: which models are known, what they are, and how to get one."""

from typing import TYPE_CHECKING, Annotated

import typer

from interp.apps.cli.options import DEFAULT_MODEL, Common, with_common

if TYPE_CHECKING:
    from interp.models.transformer import Transformer

LIST_EPILOG = """\b
Example:
  interp models list --json
"""
SHOW_EPILOG = """\b
Examples:
  interp models show                        the default model
  interp models show path/to/model.gguf
  interp models show path/to/folder --json
"""
PULL_EPILOG = """\b
Examples:
  interp models pull
  INTERP_CACHE=/data/models interp models pull smollm2-135m
"""

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document, and nothing else, to stdout.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no messages, errors only.")]
Debug = Annotated[bool, typer.Option("--debug", hidden=True)]


@app.command("list", epilog=LIST_EPILOG, short_help="Models that can be loaded by name.")
def list_models(as_json: AsJson = False, debug: Debug = False) -> None:
    """List the models that can be loaded by name: licence, size, and whether they are on this machine.

    Folders, .gguf files and Hugging Face Hub ids can be loaded as well, wherever a model is asked for.
    """
    from interp.apps.cli.output import show, table, write_json
    from interp.apps.facts import size
    from interp.models.loading import known_models

    known = known_models()
    if as_json:
        names = ("name", "description", "licence", "source", "n_bytes", "cached", "path")
        write_json({"models": [{name: getattr(model, name) for name in names} for model in known]})
        return
    rows = [
        (model.name, model.licence, size(model.n_bytes), "yes" if model.cached else "no", model.description)
        for model in known
    ]
    show(table(["name", "licence", "size>", "here", "what it is"], rows))


@app.command("show", epilog=SHOW_EPILOG, short_help="What a model is made of.")
@with_common("model", "prefix", "seed", "out")
def show_model(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="A known name, a folder, a .gguf file or a Hub id.")
    ] = DEFAULT_MODEL,
    *,
    common: Common,
) -> None:
    """Describe a model: shapes, parameters, memory, bytes of keys and values a token, hash, tokenizer."""
    import dataclasses

    from interp.apps.cli.output import show, table, write_json
    from interp.apps.cli.session import load_model
    from interp.apps.facts import origin_facts, shape_facts, tokenizer_facts

    model = load_model(dataclasses.replace(common, model=name))
    if common.as_json:
        write_json(_document(model))
        return
    facts = [*origin_facts(model), *shape_facts(model), *tokenizer_facts(model)]
    show(table(["fact", "value"], facts))


def _document(model: "Transformer") -> dict[str, object]:
    from interp.analyses.vocabulary import tokenizer_of
    from interp.apps.facts import kv_bytes_per_token, weight_bytes

    tokenizer = tokenizer_of(model)
    words = tokenizer and {
        "d_vocab": tokenizer.d_vocab,
        "special_ids": sorted(tokenizer.special_ids),
        "doc_separator_id": tokenizer.doc_separator_id,
    }
    return {
        **model.provenance,
        "config": model.config.to_dict(),
        "parameters": model.n_parameters,
        "weight_bytes": weight_bytes(model),
        "kv_bytes_per_token": kv_bytes_per_token(model),
        "hook_points": len(model.points()),
        "tokenizer": words,
    }


@app.command("pull", epilog=PULL_EPILOG, short_help="Bring a model onto this machine.")
def pull_model(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A known name.")] = DEFAULT_MODEL,
    as_json: AsJson = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Bring a known model into the cache folder (INTERP_CACHE, else the platform's) and print where it is.

    Its hash is checked; an interrupted pull leaves nothing and can be repeated.
    """
    from interp.apps.cli.output import write_data, write_json
    from interp.apps.cli.progress import step
    from interp.models.loading import pull

    with step(f"Pulling {name}", quiet) as progress:
        path = pull(name, progress=progress)
    if as_json:
        write_json({"name": name, "path": path})
    else:
        write_data(str(path))
