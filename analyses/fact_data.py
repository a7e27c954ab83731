"""The facts that come along: well-known ones, in relations of some two dozen facts each, in sentences of our own.

    facts = bundled_facts()
    facts[0].prompt, facts[0].answer

Public and undisputed knowledge as of 2024, each relation with one template and paraphrases in which the object comes
last. Templates and paraphrases were chosen among several, and one relation was left out, so that a small model
(SmolLM2-135M) completes many of them; single facts were not chosen that way. So the share of known facts says nothing
about facts at large, and every model should be asked which it knows (`interp.analyses.fact_filter`).
"""

from functools import cache
from importlib.resources import as_file, files

from interp.fact_files import read_facts
from interp.facts import Fact


@cache
def bundled_facts() -> tuple[Fact, ...]:
    """All of them, in the order of the file `texts/facts.jsonl`."""
    with as_file(files("interp.analyses.texts") / "facts.jsonl") as path:
        return read_facts(path)
