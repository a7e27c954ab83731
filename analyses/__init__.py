"""One question per file: pure functions from a model to a frozen result.

`ANALYSES` says in words what each asks and what its settings mean, so that a program can list them without importing
torch; an analysis is imported when its function is asked for.
"""

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from interp.results import Result


@dataclass(frozen=True)
class Analysis:
    """One analysis in words: what it asks, where its function is, and what each setting means."""

    name: str
    question: str
    module: str
    function_name: str
    papers: tuple[str, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    """Keyword of the function → what it sets."""

    @property
    def function(self) -> "Callable[..., Result]":
        """The function itself, `function(model, …, **settings) -> Result`; imports the analysis, and with it torch."""
        return getattr(importlib.import_module(self.module), self.function_name)


_REPEATED = {
    "seq_len": "tokens in the sequence that is repeated",
    "repeats": "how often it stands in the text, at least 2",
    "n_seqs": "how many random sequences are averaged",
    "seed": "seed of the random tokens; sequence i depends on (seed, i) only",
    "prefix": "what stands before the first token: doc, none or chat",
}

_DRAWN = {
    "exclude_most": "how many of the most frequent tokens are never drawn",
    "exclude_least": "how many of the least frequent tokens are never drawn",
    "counts": "how often each id occurs in a corpus; without it the order of a BPE vocabulary stands for frequency",
}

_CONTROLLED = {
    "controls": "how many sets of other heads of the same layers stand beside each; all, where fewer exist",
    "budget": "bytes that may be allocated beside the model",
}

_RECALLED = {
    "subject": "the subject of a single prompt; facts bring their own",
    "answer": "the token whose probability is measured after a single prompt; the model's own answer by default",
    "occurrence": "which one, where a single prompt names the subject several times; 0 is the first, -1 the last",
    "prefix": "what stands before a prompt: doc or none; before a single one chat, too",
}

_CUT = {
    "window": "how many layers are cut together",
    "layers": "only around, or from, these layers; all by default",
    "budget": "bytes that may be allocated beside the model",
    "shortcuts": "leave out what cannot have changed; without them every cell is a full forward pass",
}

_PATCHED = {
    "site": "what is patched, or several that are patched together",
    "direction": "denoise: clean values into the corrupted run; noise: the other way round",
    "by": "the axes to sweep over; what is left out is patched whole",
    "layers": "only these layers",
    "positions": "only these positions (of queries, where attention is patched)",
    "keys": "only these keys, where single edges of attention are patched",
    "heads": "only these heads; KV heads where the site has those",
    "neurons": "only these neurons",
    "experts": "only these experts",
    "prefix": "what stands before a text: doc, none or chat; pairs bring their own",
    "budget": "bytes that may be allocated beside the model",
    "shortcuts": "leave out what cannot have changed; without them every cell is a full forward pass",
    "cancelled": "asked in every layer; True stops the sweep",
}

_TRACED = {
    "kinds": "what is restored: resid, mlp, attn",
    "severed": "sublayers, mlp or attn or both, that are held at their corrupted values while resid is restored",
    "noise": "s3 for 3 standard deviations of the embeddings of subjects, or a level such as 0.3; us3, u0.3: uniform",
    "noise_subjects": "whose embeddings are measured; all subjects of the bundled facts by default",
    "samples": "how many draws of noise are averaged",
    "window": "how many layers of mlp and attn are restored together",
    "seed": "seed of the noise; 1 is that of the reference code",
    "prefix": "what stands before the prompt: doc, none or chat",
    "budget": "bytes that may be allocated beside the model",
    "shortcuts": "leave out what cannot have changed; without them every cell is a full forward pass",
}

_EDITED = {
    "changes": "what is made of the neurons: zero, mean, x2 (any factor), =1.5 (any number)",
    "controls": "how many sets of random neurons of the same layers stand beside each",
    "others": "how many facts of other relations are measured for each edited one, drawn at random; or all",
    "last": "whether neurons are edited in the last token of each text alone, and not in all",
    "prefix": "what stands before a prompt: doc or none",
    "seed": "seed of the random neurons and of the bootstrap",
    "budget": "bytes that may be allocated beside the model",
    "cancelled": "asked in every layer; True stops the sweep",
}

_ALL = (
    Analysis(
        name="lens",
        question="What would the model say if it stopped after each layer?",
        module="interp.analyses.lens",
        function_name="logit_lens",
        papers=("nostalgebraist 2020, interpreting GPT: the logit lens",),
        settings={
            "answers": "tokens to follow through the layers (text of one token, or ids)",
            "positions": "which positions to look at; all by default",
            "top_k": "how many of the most likely tokens to keep for each cell",
            "row": "which text of a batch",
            "prefix": "what stands before the text: doc, none or chat",
            "max_bytes": "memory for one block of logits",
        },
    ),
    Analysis(
        name="surprisal",
        question="How surprised is the model by each token of a text, and what did it expect instead?",
        module="interp.analyses.surprisal",
        function_name="surprisal",
        papers=("Hale 2001, A Probabilistic Earley Parser as a Psycholinguistic Model (NAACL)",),
        settings={
            "top_k": "how many of the most likely next tokens to keep for each position",
            "prefix": "what stands before the text: doc, none or chat",
            "max_bytes": "memory for one block of logits",
        },
    ),
    Analysis(
        name="lens-parts",
        question="What does each sublayer or head point at, and what stands between attention and FFN?",
        module="interp.analyses.lens_parts",
        function_name="lens_parts",
        papers=("nostalgebraist 2020, interpreting GPT: the logit lens", "Geva et al. 2023, arXiv 2304.14767"),
        settings={
            "of": "what is read: stream (every boundary), sublayer (what each writes) or head",
            "answers": "tokens to follow (text of one token, or ids)",
            "positions": "which positions to look at; the last by default",
            "top_k": "how many of the most likely tokens to keep for each cell",
            "row": "which text of a batch",
            "prefix": "what stands before the text: doc, none or chat",
            "max_bytes": "memory for one block of logits",
        },
    ),
    Analysis(
        name="fact-lens",
        question="At which depth can the object of a fact be read, on the mean over the facts that the model knows?",
        module="interp.analyses.lens_facts",
        function_name="lens_facts",
        papers=("nostalgebraist 2020, interpreting GPT: the logit lens", "Geva et al. 2023, arXiv 2304.14767"),
        settings={
            "at": "where the stream is read: the last token of the prompt, or the last of the subject",
            "prefix": "what stands before a prompt: doc, none or chat",
            "seed": "seed of the bootstrap intervals",
            "max_bytes": "memory for one batch of prompts, and for one block of logits",
        },
    ),
    Analysis(
        name="attribution",
        question="Which parts of the residual stream write for the answer, and which against it?",
        module="interp.analyses.attribution",
        function_name="direct_logit_attribution",
        papers=("Elhage et al. 2021, transformer-circuits.pub/2021/framework", "Wang et al. 2022, arXiv 2211.00593"),
        settings={
            "by": "what the stream is taken apart into: sublayer, head, source, head_source, neuron or expert",
            "position": "the position whose logits are explained; the last by default",
            "mask": "which tokens are real, where texts are padded",
            "prefix": "what stands before a text: doc, none or chat",
            "seed": "seed of the bootstrap intervals over prompts",
            "max_bytes": "memory for what is recorded at once",
        },
    ),
    Analysis(
        name="fact-attribution",
        question="Which parts write the object of a fact, on the mean over the facts that the model knows?",
        module="interp.analyses.attribution_facts",
        function_name="attribute_facts",
        papers=("Wang et al. 2022, arXiv 2211.00593", "Geva et al. 2023, arXiv 2304.14767"),
        settings={
            "by": "what the stream is taken apart into: sublayer, head, neuron or expert",
            "foils": "relation: against the object of another fact of the relation; none: the object alone",
            "prefix": "what stands before a prompt: doc, none or chat",
            "seed": "seed of the foils and of the bootstrap intervals",
            "max_bytes": "memory for what is recorded at once",
        },
    ),
    Analysis(
        name="induction",
        question="Which heads look at what followed the same token earlier?",
        module="interp.analyses.induction",
        function_name="score_heads",
        papers=("Elhage et al. 2021, transformer-circuits.pub/2021/framework", "Olsson et al. 2022, arXiv 2209.11895"),
        settings={**_REPEATED, **_DRAWN, "max_bytes": "memory for the attention patterns of one layer"},
    ),
    Analysis(
        name="atlas",
        question="What does every head look at, on random text, on documents and in marked sentences?",
        module="interp.analyses.atlas",
        function_name="head_atlas",
        papers=(
            "Clark et al. 2019, arXiv 1906.04341",
            "Voita et al. 2019, arXiv 1905.09418",
            "Olsson et al. 2022, arXiv 2209.11895",
            "Xiao et al. 2023, arXiv 2309.17453",
        ),
        settings={
            **_REPEATED,
            "documents": "ordinary texts; bundled ones by default, none for a model without a tokenizer",
            "n_documents": "how many of them are read, the first ones",
            "doc_len": "how many tokens of each, the prefix not counted",
            "threshold": "from which excess over uniform attention on a head has a role, of 1",
            "copying": "whether what heads copy is measured too",
            "max_bytes": "memory for the attention patterns of one layer and what is summed over them",
        },
    ),
    Analysis(
        name="attention",
        question="Where does every head look in this text?",
        module="interp.analyses.attention",
        function_name="attention_maps",
        papers=(
            "Vig 2019, arXiv 1906.05714",
            "Kobayashi et al. 2020, arXiv 2004.10102",
            "Xiao et al. 2023, arXiv 2309.17453",
        ),
        settings={"prefix": "what stands before a text: doc, none or chat"},
    ),
    Analysis(
        name="head-attention",
        question="Where does this head look in this text, token by token?",
        module="interp.analyses.head_attention",
        function_name="head_attention",
        papers=("Kobayashi et al. 2020, arXiv 2004.10102",),
        settings={"prefix": "what stands before a text: doc, none or chat"},
    ),
    Analysis(
        name="local-ablation",
        question="What does taking these heads away do here, on this one text, beside other heads of their layers?",
        module="interp.analyses.local_ablation",
        function_name="ablate_here",
        papers=("Wang et al. 2022, arXiv 2211.00593",),
        settings={
            "answer": "the token whose log-probability is measured at the end; the model's own by default",
            "since": "from which position on the loss counts",
            "method": "what takes the heads' place: mean, zero or pattern_preserving",
            "controls": "how many sets of other heads of the same layers stand beside them; all, where fewer exist",
            "seed": "seed of the control sets",
            "prefix": "what stands before a text: doc, none or chat",
            "budget": "bytes that may be allocated beside the model",
        },
    ),
    Analysis(
        name="copying",
        question="Which heads say what they look at?",
        module="interp.analyses.copying",
        function_name="copying_scores",
        papers=(
            "Elhage et al. 2021, transformer-circuits.pub/2021/framework",
            "Olsson et al. 2022, arXiv 2209.11895",
            "Wang et al. 2022, arXiv 2211.00593",
        ),
        settings={
            **_DRAWN,
            "which": "the scores to compute: ov_eigenvalue, behavioural, raised_share, ioi_copy",
            "embedding": "what stands for a token in the eigenvalue scores: tokens, or block_0: what that makes of it",
            "seq_len": "tokens in the random sequence, which is read twice",
            "n_seqs": "how many random sequences are averaged",
            "tokens": "the tokens that ioi_copy asks for (texts of one token, or ids); names of people by default",
            "top_k": "among how many of the highest logits a token must be to be copied",
            "seed": "seed of the random tokens; sequence i depends on (seed, i) only",
            "prefix": "what stands before the first token: doc, none or chat",
            "max_bytes": "memory for one block of logits",
        },
    ),
    Analysis(
        name="repeat-loss",
        question="How much better does the model predict a random sequence the second time?",
        module="interp.analyses.repeat_loss",
        function_name="repeat_loss",
        papers=("Olsson et al. 2022, arXiv 2209.11895",),
        settings={**_REPEATED, **_DRAWN, "max_bytes": "memory for one block of logits"},
    ),
    Analysis(
        name="in-context",
        question="Does the model predict late tokens of a document better than early ones?",
        module="interp.analyses.in_context",
        function_name="in_context_score",
        papers=("Olsson et al. 2022, arXiv 2209.11895",),
        settings={
            "early": "the early token, counted from 1 behind the prefix",
            "late": "the late token; documents have at least 12 more",
            "width": "how many tokens around each are averaged; 1 is the published score",
            "prefix": "what stands before a document: doc, none or chat",
            "seed": "seed of the bootstrap over documents",
            "max_bytes": "memory for one block of logits",
        },
    ),
    Analysis(
        name="head-ablation",
        question="What is repetition worth without these heads, and without others of the same layers?",
        module="interp.analyses.head_ablation",
        function_name="ablate_heads",
        papers=("Olsson et al. 2022, arXiv 2209.11895", "Wang et al. 2022, arXiv 2211.00593"),
        settings={
            **_REPEATED,
            **_DRAWN,
            **_CONTROLLED,
            "method": "what takes a head's place: mean, resample, zero or pattern_preserving",
            "alone": "whether each head is taken away by itself too, and not only all together",
            "n_seqs": "how many random sequences are read; at least 2 where other texts take a head's place",
            "documents": "natural texts to measure the in-context score on; none by default",
            "random_texts": "whether random texts are read too, and not only documents",
        },
    ),
    Analysis(
        name="head-links",
        question="Does a head find what it looks at by what an earlier head wrote there?",
        module="interp.analyses.head_links",
        function_name="head_links",
        papers=(
            "Elhage et al. 2021, transformer-circuits.pub/2021/framework",
            "Wang et al. 2022, arXiv 2211.00593",
            "Goldowsky-Dill et al. 2023, arXiv 2304.05969",
        ),
        settings={
            **_REPEATED,
            **_DRAWN,
            **_CONTROLLED,
            "path": "which input of the receivers is blocked: k, q or v",
            "method": "what takes the place of what a sender writes: its mean over texts, or zero",
        },
    ),
    Analysis(
        name="composition",
        question="Which heads are made to read what which earlier heads write?",
        module="interp.analyses.composition",
        function_name="composition",
        papers=("Elhage et al. 2021, transformer-circuits.pub/2021/framework",),
        settings={
            "fold": "take the gains of norms into copies of the weights; without it, weights as they are",
            "layers": "only these layers, as senders and receivers; all by default",
            "baseline_draws": "how many random senders and receivers make the baseline, at least 2",
            "seed": "seed of these",
        },
    ),
    Analysis(
        name="head-circuit",
        question="What does this head look for, and what does it say when it has found it?",
        module="interp.analyses.head_circuits",
        function_name="head_circuit",
        papers=("Elhage et al. 2021, transformer-circuits.pub/2021/framework",),
        settings={
            "offset": "how many positions the key stands before the query: rotary positions turn both",
            "length": "how many positions the text has, for rotations that depend on it; up to the query by default",
            "embedding": "what stands for a token: tokens for its embedding, block_0 for what block 0 makes of it",
            "prefix": "what stands before each token for block_0: doc, none or chat",
            "top_k": "how many of the strongest pairs of tokens to keep",
        },
    ),
    Analysis(
        name="facts",
        question="Which facts does the model know?",
        module="interp.analyses.fact_filter",
        function_name="filter_facts",
        papers=("Meng et al. 2022, arXiv 2202.05262",),
        settings={
            "prefix": "what stands before a prompt: doc or none",
            "max_bytes": "memory for one batch of prompts",
        },
    ),
    Analysis(
        name="tracing",
        question="At which token and layer does restoring one state bring a forgotten fact back?",
        module="interp.analyses.tracing",
        function_name="causal_trace",
        papers=(
            "Meng et al. 2022, arXiv 2202.05262",
            "Hase et al. 2023, arXiv 2301.04213",
            "Zhang & Nanda 2024, arXiv 2309.16042",
        ),
        settings={
            "answer": "the token whose probability is measured (text or id); the model's own answer by default",
            "occurrence": "which one, where the prompt names the subject several times; 0 is the first, -1 the last",
            "replacement": "another subject of as many tokens, which hides this one instead of noise",
            **_TRACED,
        },
    ),
    Analysis(
        name="fact-tracing",
        question="Which tokens and layers bring facts back on average, and how sure is that?",
        module="interp.analyses.trace_facts",
        function_name="trace_facts",
        papers=("Meng et al. 2022, arXiv 2202.05262", "Hase et al. 2023, arXiv 2301.04213"),
        settings={
            "corruption": "noise, or replace: a subject of the same relation and as many tokens in the subject's place",
            **_TRACED,
            "seed": "seed of the noise of every fact, of partners and of the bootstrap over facts",
        },
    ),
    Analysis(
        name="knockout",
        question="When does what the model knows of a subject reach the token that says the answer?",
        module="interp.analyses.knockout",
        function_name="attention_knockout",
        papers=("Geva et al. 2023, arXiv 2304.14767",),
        settings={
            **_RECALLED,
            **_CUT,
            "blocks": "what the last token cannot read: subject, non_subject, last, random",
            "draws": "how often random tokens are drawn for each fact",
            "seed": "seed of the random tokens and of the bootstrap",
        },
    ),
    Analysis(
        name="edge-knockout",
        question="What if these queries could not read those keys?",
        module="interp.analyses.edges",
        function_name="knock_out_edges",
        papers=("Geva et al. 2023, arXiv 2304.14767",),
        settings={
            **_CUT,
            "metric": "what is measured: functions from logits to one number a text",
            "mask": "which tokens are real, where texts are padded",
            "read": "the columns of the logits that the metrics see",
        },
    ),
    Analysis(
        name="sublayer-knockout",
        question="What is a subject without what its own FFNs, or its attention, make of it?",
        module="interp.analyses.sublayer_knockout",
        function_name="sublayer_knockout",
        papers=("Geva et al. 2023, arXiv 2304.14767",),
        settings={
            **_RECALLED,
            **_CUT,
            "sublayers": "which are replaced at the subject: mlp, attn",
            "methods": "by what: their mean at other subjects, or zero",
            "reference": "facts whose subjects the mean is over; some of those that come along by default",
            "seed": "seed of the bootstrap",
        },
    ),
    Analysis(
        name="extraction",
        question="Which sublayers would say the answer at the last token by themselves?",
        module="interp.analyses.extraction",
        function_name="extraction",
        papers=("Geva et al. 2023, arXiv 2304.14767",),
        settings={**_RECALLED, "budget": "bytes that may be allocated beside the model"},
    ),
    Analysis(
        name="memories",
        question="Which neurons write most at one token, and which words do they promote?",
        module="interp.analyses.memories",
        function_name="ffn_memories",
        papers=("Geva et al. 2021, arXiv 2012.14913", "Geva et al. 2022, arXiv 2203.14680"),
        settings={
            "layer": "one layer, several, or all",
            "position": "which token; negative from the end",
            "top_k": "how many neurons of each layer",
            "words": "how many tokens are named at either end of each",
            "row": "which text of a batch",
            "final_norm": "how the vocabulary is read: with the gain of the final norm, through all of it, or bare",
            "prefix": "what stands before the text: doc, none or chat",
            "max_bytes": "memory for one block of scores over the vocabulary",
        },
    ),
    Analysis(
        name="fact-memories",
        question="Do the neurons that write most speak for the answer of a known fact, and at which token?",
        module="interp.analyses.fact_memories",
        function_name="fact_memories",
        papers=("Geva et al. 2022, arXiv 2203.14680", "Meng et al. 2022, arXiv 2202.05262"),
        settings={
            "layer": "one layer, several, or all",
            "top_k": "how many neurons of each layer",
            "near": "up to which rank the answer counts as promoted",
            "final_norm": "how the vocabulary is read: with the gain of the final norm, through all of it, or bare",
            "prefix": "what stands before a prompt: doc or none",
            "max_bytes": "memory for one block of scores over the vocabulary",
        },
    ),
    Analysis(
        name="value-tokens",
        question="Which words does the value vector of a neuron speak for?",
        module="interp.analyses.value_tokens",
        function_name="value_tokens",
        papers=("Geva et al. 2021, arXiv 2012.14913", "Geva et al. 2022, arXiv 2203.14680"),
        settings={
            "layer": "which layer",
            "neurons": "only these; those of experts count expert by expert, the shared one last",
            "top_k": "how many tokens are named at either end",
            "final_norm": "how the vocabulary is read: with the gain of the final norm, through all of it, or bare",
            "max_bytes": "memory for one block of scores over the vocabulary",
        },
    ),
    Analysis(
        name="triggers",
        question="At which places of a corpus does a neuron fire most, with either sign?",
        module="interp.analyses.triggers",
        function_name="find_triggers",
        papers=("Geva et al. 2021, arXiv 2012.14913",),
        settings={
            "layers": "only these layers",
            "neurons": "only these neurons of each; those of experts count expert by expert, the shared one last",
            "top_k": "how many places are kept of each neuron at either end",
            "context": "how many tokens are shown of each place, itself included",
            "length": "tokens that are read at a time; longer texts are cut into equal pieces",
            "prefix": "what stands before each piece: doc, none or chat",
            "max_bytes": "memory for one batch",
            "budget": "bytes that the places of all neurons may take; more are refused before anything runs",
        },
    ),
    Analysis(
        name="agreement",
        question="Does a neuron write what follows the texts that it fires for?",
        module="interp.analyses.agreement",
        function_name="agreement",
        papers=("Geva et al. 2021, arXiv 2012.14913",),
        settings={
            "final_norm": "how the vocabulary is read: with the gain of the final norm, through all of it, or bare",
            "max_bytes": "memory for one block of scores over the vocabulary",
        },
    ),
    Analysis(
        name="knowledge-neurons",
        question="Which neurons carry a fact, however it is asked for?",
        module="interp.analyses.knowledge_neurons",
        function_name="knowledge_neurons",
        papers=("Dai et al. 2022, arXiv 2104.08696", "Sundararajan et al. 2017, arXiv 1703.01365"),
        settings={
            "answer": "whose probability is attributed: a token or a text; by default the fact's, or the model's own",
            "paraphrases": "other prompts with the same answer; by default those of the fact",
            "subject": "what a prompt is about, where its last token is looked at",
            "occurrence": "which one, where a prompt names the subject several times; 0 is the first, -1 the last",
            "position": "last for the prompt's last token, or subject for the subject's",
            "steps": "steps of the integrated gradients",
            "threshold": "from which share of a prompt's largest attribution on a neuron is coarse in it",
            "share": "in which share of the prompts a neuron must be coarse",
            "adapt": "the fewest and the most neurons to be left, by giving up prompts or asking more; or none",
            "layers": "only these layers",
            "prefix": "what stands before a prompt: doc or none",
            "budget": "bytes that may be allocated beside the model",
        },
    ),
    Analysis(
        name="neuron-edits",
        question="What becomes of a fact, and of others, when some neurons are suppressed or amplified?",
        module="interp.analyses.neuron_edits",
        function_name="edit_neurons",
        papers=("Dai et al. 2022, arXiv 2104.08696", "Zhang & Nanda 2024, arXiv 2309.16042"),
        settings={
            **_EDITED,
            "held_out": "how many paraphrases of each fact, the last ones, had no part in finding the neurons",
        },
    ),
    Analysis(
        name="suppression",
        question="Are the strongest knowledge neurons of facts needed for them, and for them alone?",
        module="interp.analyses.suppression",
        function_name="suppression_study",
        papers=("Dai et al. 2022, arXiv 2104.08696",),
        settings={
            **_EDITED,
            "count": "how many neurons of each fact, the strongest, are edited together",
            "limit": "how many known facts, of all relations in turn",
            "held_out": "how many paraphrases of each fact, the last ones, have no part in finding its neurons",
            "peers": "how many known facts of each relation are measured, not edited",
            "position": "whose neurons are looked at: last for the prompt's last token, or subject for the subject's",
            "steps": "steps of the integrated gradients",
        },
    ),
    Analysis(
        name="patching",
        question="What happens if this one value were that of another run?",
        module="interp.analyses.patching",
        function_name="sweep",
        papers=(
            "Vig et al. 2020, arXiv 2004.12265",
            "Zhang & Nanda 2024, arXiv 2309.16042",
            "Heimersheim & Nanda 2024, arXiv 2404.15255",
        ),
        settings={
            **_PATCHED,
            "metric": "what is measured: names, or functions from logits to one number a pair",
            "source": "where values come from: the pair's other run, zero, mean or resample",
            "reference": "texts for the sources mean and resample; the base run's own by default",
            "window": "how many layers around each are patched together",
            "renormalise": "divide the rows of a patched pattern by their sum",
            "seed": "seed of resampling and of the bootstrap intervals",
        },
    ),
    Analysis(
        name="attribution-patching",
        question="Which patches would matter, by one gradient, and how far is that from patching them?",
        module="interp.analyses.attribution_patching",
        function_name="attribution_patching",
        papers=("Syed et al. 2023, arXiv 2310.10348", "Kramár et al. 2024, arXiv 2403.00745"),
        settings={
            **_PATCHED,
            "metric": "what is differentiated: a name, or a function from logits to one number a pair",
            "check": "how many of the largest estimates, and of the others at random, are patched exactly; or none",
            "seed": "seed of the random sample that is checked",
        },
    ),
    Analysis(
        name="ablation",
        question="What is lost without these components, and without as many others of their kind?",
        module="interp.analyses.ablation",
        function_name="ablate",
        papers=("Chan et al. 2022, causal scrubbing", "Wang et al. 2022, arXiv 2211.00593"),
        settings={
            "metric": "what is measured: functions from logits to one number a text",
            "method": "what takes the components' place: mean, resample, zero or pattern_preserving",
            "reference": "texts for mean and resample; the texts themselves by default",
            "mean_over": "whether means are over texts, by position, or over all tokens",
            "controls": "how many random sets of the same kind, size and layers stand beside each",
            "seed": "seed of the control sets and of resampling",
            "mask": "which tokens are real, where texts are padded",
            "reference_mask": "the same for the reference",
            "positions": "only these positions",
            "read": "the columns of the logits that the metrics see",
            "budget": "bytes that may be allocated beside the model",
            "shortcuts": "leave out what cannot have changed; without them every set is a full forward pass",
            "cancelled": "asked in every layer; True stops the sweep",
        },
    ),
)

ANALYSES: dict[str, Analysis] = {analysis.name: analysis for analysis in _ALL}
