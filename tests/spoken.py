"""Models that say words: a hand-written fact whose value the unembedding reads too, and random ones."""

from dataclasses import replace

from tiny import CONFIGS, tiny

from interp.models.circuits import OneFact
from interp.models.constructed import one_fact_memory
from interp.models.transformer import Transformer


def spoken_fact(circuit: OneFact) -> Transformer:
    """`one_fact_memory` whose neuron says the answer itself too, at the end of the subject."""
    model = one_fact_memory(circuit)
    layer, neuron = circuit.neuron
    model.W_out[layer, neuron, circuit.spaces["next"].start + circuit.token(circuit.answer)] = 1
    return model


def with_words(kind: str) -> Transformer:
    """A tiny random model that reads the words of the circuit."""
    tokenizer = one_fact_memory(OneFact()).tokenizer
    made = tiny(replace(CONFIGS[kind], d_vocab=tokenizer.d_vocab))
    model = Transformer(made.config, tokenizer=tokenizer)
    for name, weight in model.weights().items():
        weight.copy_(made.weights()[name])
    return model
