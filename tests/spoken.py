"""A hand-written fact whose value the unembedding reads as well, so that its words are known."""

from interp.models.circuits import OneFact
from interp.models.constructed import one_fact_memory
from interp.models.transformer import Transformer


def spoken_fact(circuit: OneFact) -> Transformer:
    """`one_fact_memory` whose neuron says the answer itself too, at the end of the subject."""
    model = one_fact_memory(circuit)
    layer, neuron = circuit.neuron
    model.W_out[layer, neuron, circuit.spaces["next"].start + circuit.token(circuit.answer)] = 1
    return model
