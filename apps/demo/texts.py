"""The demo's explanations: for a reader who has never looked inside a model, and what each picture leaves open."""

LENS = (
    "A transformer builds its answer step by step: each layer reads a running sum, the residual stream, and adds "
    "something to it. Only the sum after the last layer is turned into words. The logit lens turns the sum after every "
    "layer into words, as if the model stopped there: the final normalisation, then the output matrix, then a "
    "probability for each of the {vocabulary:,} tokens of the vocabulary."
)

TWO_NAMES = (
    "Two names could follow. To be right, the model must notice that one of them has been said twice, and offer the "
    "other: no fact about the world helps. Researchers took this task apart, head by head, in another small model "
    "(Wang et al. 2022, indirect object identification). Here both names are followed through the layers with the "
    "same lens as above."
)

READING_IS_NOT_CHANGING = (
    "The lens reads each layer with the dictionary of the last one: a token that cannot be read early may be present "
    "in another form, and the layer at which it becomes readable need not be the layer that knew it. Reading changes "
    "nothing; to learn what the answer depends on, values have to be changed."
)

TOWER_NOT_SHOWN = f"Why the answer is there. {READING_IS_NOT_CHANGING}"

GIFT_NOT_SHOWN = (
    "How the model tells the names apart. The curves show when a name can be read, not which heads carried it, nor "
    f"whether the model would still be right with other names. {READING_IS_NOT_CHANGING}"
)

CELLS = (
    "Each cell is the likeliest next token at that position, read after that layer; the stronger the colour, the "
    "surer. The text runs to the right, the layers run upwards."
)

PREFIXES = (
    "What stands before the text matters. The document separator (doc) tells the model that a text starts here; "
    "without it (none) the first word has to serve as the resting place of attention."
)

INDUCTION = (
    "Random tokens cannot be foreseen, but the second time they can be looked up: find the place where the current "
    "token stood before, and see what came next. Heads that look there are called induction heads (Olsson et al. "
    "2022). Their score, prefix matching, is the share of attention that a head gives, during the second reading, to "
    "the token after the earlier occurrence: 1 is a perfect induction head. The other four scores say what share goes "
    "to the token before, to the earlier occurrence itself, to the current token, and to the very first position, "
    "where heads rest when they have nothing to do."
)

INDUCTION_NOT_SHOWN = (
    "That these heads do only this, or do it on ordinary text. Where a head looks is not what it did: only the last "
    "figure changes something, and it replaces a head's output by its average, on random tokens. Other ways to remove "
    "a head, other texts, or heads that stand in for each other can give other costs."
)

PATTERN = (
    "Head {head} reading ten words twice. Each row is a word being read, each column a word it may look at: the stripe "
    "is the token after the earlier occurrence."
)

REMOVALS = (
    "What removing a head does to the loss of the second reading, beside heads of the same layers drawn at random: "
    "their mean, with the lowest and the highest."
)

TRACE = (
    "The model reads a sentence three times. First as it is. Then with noise added to the subject's tokens before the "
    "first layer, so that it can no longer tell what the sentence is about. Then with the same noise again, but one "
    "state is put back as it was in the first reading: at one token, in one layer. What returns of the answer's "
    "probability is the effect of that state, here the mean over {samples} draws of noise (Meng et al. 2022, causal "
    "tracing). Three kinds of state are put back: the running sum behind a layer, or what the feed-forward parts (FFN) "
    "or the attention parts of several neighbouring layers add to it. Below, the early site is the state among the "
    "subject's tokens that brings back most, the late site the one at the last token."
)

TRACE_MAP = (
    "{subject}: what putting back each state brings back of the probability of {answer}. Tokens run downwards, those "
    "of the subject have a star; layers run to the right."
)

TRACE_NOT_SHOWN = (
    "Where the fact is stored. Where putting a state back brings an answer back does not foretell where a change of "
    "the weights would change the fact (Hase et al. 2023). The late site alone says little: behind the last layer, the "
    "last token's running sum is the answer. A window of several layers does not single out one. And a state that is "
    "put back works among noisy neighbours, as in no text: with other noise, other states can matter (Zhang and Nanda "
    "2024)."
)
