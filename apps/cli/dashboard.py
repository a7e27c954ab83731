"""`interp dashboard`: the pages in a browser, over the same analyses as the commands."""

import ipaddress
import threading
from pathlib import Path
from typing import Annotated

import typer

from interp.apps.cli.options import DEFAULT_MODEL

EPILOG = """\b
Examples:
  interp dashboard
  interp dashboard --model path/to/model.gguf --models path/to/models --runs results
  interp dashboard --port 8601 --no-browser

\b
Ends with Ctrl-C. It listens on 127.0.0.1 alone unless --host says otherwise, sends nothing anywhere, and opens no path
outside of the folders named here.
"""


def dashboard(
    port: Annotated[int, typer.Option(metavar="N", min=1, max=65535, help="Port to listen on.")] = 8501,
    host: Annotated[str, typer.Option(help="Address to listen on; others than 127.0.0.1 let other machines in.")] = (
        "127.0.0.1"
    ),
    model: Annotated[str, typer.Option("--model", "-m", help="The model that is chosen at first.")] = DEFAULT_MODEL,
    runs: Annotated[Path, typer.Option(help="Folder in which results are kept, as run directories.")] = Path(
        "interp-runs"
    ),
    models: Annotated[
        list[Path] | None,
        typer.Option(metavar="FOLDER", help="A folder whose models may be opened; may be given again."),
    ] = None,
    cache_mib: Annotated[int, typer.Option(metavar="N", min=1, help="Memory for results, in MiB.")] = 512,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Do not open a browser window.")] = False,
    debug: Annotated[bool, typer.Option("--debug", hidden=True)] = False,
) -> None:
    """Open the dashboard: look inside a model without writing code."""
    from interp.apps.cli.output import write_message
    from interp.apps.dashboard.options import MIB, Options

    _check(host, port, models or [])
    options = Options(model, runs.absolute(), tuple(path.absolute() for path in models or []), cache_mib * MIB)
    url = f"http://{_shown(host)}:{port}"
    if not _is_loopback(host):
        write_message(
            f"Listening on {host}: everybody who can reach this machine can use these models, read and write results "
            f"below {options.runs}, and occupy its processors. There is no password, and nothing is encrypted."
        )
    write_message(f"The dashboard is at {url} (Ctrl-C ends it).")
    if not no_browser:
        _open_later(url)
    _serve(host, port, options.words())


def _check(host: str, port: int, models: list[Path]) -> None:
    """Raises `UsageError` for what the server would stumble over."""
    import importlib.util
    import socket

    from interp.errors import UsageError

    if importlib.util.find_spec("streamlit") is None:
        raise UsageError("The dashboard needs Streamlit, which is not installed: pip install 'interp[dashboard]'.")
    for folder in models:
        if not folder.exists():
            raise UsageError(f"--models {str(folder)!r} is not there. Give a folder of models, or a .gguf file.")
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM) as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            trial.bind((host, port))
    except OSError as error:
        raise UsageError(f"Cannot listen on {host}, port {port}: {error.strerror}. Give another --port.") from error


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _shown(host: str) -> str:
    """The host as it stands in an address."""
    if host in ("0.0.0.0", "::"):
        return "127.0.0.1"
    return f"[{host}]" if ":" in host else host


def _open_later(url: str) -> None:
    import webbrowser

    opener = threading.Timer(1.5, webbrowser.open, [url])
    opener.daemon = True
    opener.start()


def _serve(host: str, port: int, words: list[str]) -> None:
    """Run `streamlit run` in this process; its settings stand beside the app, except those that are asked for here.

    Returns when it is ended by Ctrl-C or a signal.
    """
    from streamlit.web.cli import main as streamlit

    import interp.apps.dashboard

    app = Path(interp.apps.dashboard.__file__).with_name("app.py")
    known = ["127.0.0.1", "localhost", "::1", "[::1]"] if _is_loopback(host) else ["*"]
    settings = {"server.address": host, "server.port": port, "logger.hideWelcomeMessage": "true"}
    flags = [word for name, value in settings.items() for word in (f"--{name}", str(value))]
    flags += [word for name in known for word in ("--server.allowedHosts", name)]
    try:
        streamlit(["run", str(app), *flags, "--", *words], standalone_mode=False)
    except RuntimeError as error:
        if type(error).__name__ != "Abort":  # click's, which stands for the interrupt
            raise
