"""Sentences in which one word belongs to another: a pronoun to its antecedent, a verb to its subject.

Every sentence marks three places: a `query`, from which a head may look; the `target`, the noun that it belongs to; and
a `competitor`, a noun that it does not belong to. Each comes twice, as it is `written` and `swapped`: the two nouns in
each other's place, the target still the same noun. A head that prefers the first noun, or the nearer one, gains in one
order what it loses in the other, and one that merely likes a word finds it on the other side in other sentences.

**Pronouns.** "At first the dog did not follow the horses because it was too tired" and, swapped, "At first the horses
did not follow the dog because it was too tired". Only gender (he, she) or number (it, they) says who is meant. That is
on purpose: a model that reads from left to right has not seen "tired" when it reads "it", so that pairs such as
"because it was too tired / wide" are one and the same text up to the pronoun, and nothing can be told from them there.

**Attractors.** "The keys near the cabinet usually are old" and, swapped, "Near the cabinet the keys usually are old":
the verb agrees with "keys", whatever stands between. The adverb is the last token before the verb, where the verb's
number has to be known, and is no noun itself. Words are those of `interp.pair_words`.

Papers: Clark et al. 2019, What does BERT look at? (arXiv 1906.04341), for heads that find antecedents and subjects;
Linzen et al. 2016 (attractors, arXiv 1611.01368). Sentences are our own.

What they do NOT tell: whether the model gets the pronoun or the verb right. Which pronoun a name takes is what most
writers do with it, and says nothing about a person.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from string import Formatter

from interp import pair_words as words

Characters = tuple[int, int]
"""A half-open range of a text."""


@dataclass(frozen=True)
class Marked:
    """A sentence, and the characters that each of its marked words covers."""

    text: str
    places: Mapping[str, Characters]

    def __getitem__(self, name: str) -> str:
        """A marked word."""
        start, stop = self.places[name]
        return self.text[start:stop]


@dataclass(frozen=True)
class Twice:
    """One sentence with its two nouns in either order."""

    written: Marked
    swapped: Marked


def marked(frame: str, **fillings: str) -> Marked:
    """The frame with its words filled in; each is marked by the name that it has there."""
    text, places = "", {}
    for before, name, _, _ in Formatter().parse(frame):
        text += before
        if name is not None:
            places[name] = (len(text), len(text) + len(fillings[name]))
            text += fillings[name]
    return Marked(text, places)


PEOPLE = (
    ("Yesterday {one} thanked {other} because {query} had found the missing keys.", "Mary", "John"),
    ("At the station {one} waved to {other} until {query} was out of sight.", "David", "Sarah"),
    ("After the meeting {one} called {other} since {query} had left an umbrella behind.", "Alice", "Peter"),
    ("On Monday {one} helped {other} because {query} could not lift the boxes.", "Robert", "Helen"),
    ("In the kitchen {one} talked to {other} while {query} was cutting the onions.", "Laura", "Daniel"),
    ("Last summer {one} visited {other} when {query} was living by the sea.", "Paul", "Rachel"),
    ("During the game {one} shouted at {other} because {query} had missed the ball.", "Susan", "James"),
    ("That evening {one} wrote to {other} before {query} went to bed.", "Henry", "Julia"),
    ("In the end {one} forgave {other} although {query} did not say a word.", "Linda", "Simon"),
    ("At the party {one} danced with {other} until {query} grew tired.", "George", "Anna"),
    ("On the bridge {one} met {other} as {query} was walking home.", "Martha", "Thomas"),
    ("Once more {one} asked {other} whether {query} could borrow the car.", "Kevin", "Nancy"),
    ("At dinner {one} told {other} that {query} would soon move to the city.", "Emily", "Edward"),
    ("In the garden {one} watched {other} while {query} was planting beans.", "Adam", "Diana"),
    ("Before the exam {one} encouraged {other} because {query} looked nervous.", "Lucy", "Brian"),
    ("Of course {one} trusted {other} since {query} had always been honest.", "Martin", "Karen"),
    ("In the office {one} replaced {other} after {query} had fallen ill.", "Barbara", "Philip"),
    ("By accident {one} bumped into {other} because {query} was looking the other way.", "Richard", "Lisa"),
    ("On the phone {one} warned {other} that {query} might be late.", "Hannah", "Andrew"),
    ("In court {one} accused {other} although {query} had not seen very much.", "Michael", "Jennifer"),
    ("After the storm {one} sheltered {other} until {query} was able to travel on.", "Margaret", "William"),
    ("In the last lap {one} overtook {other} when {query} began to limp.", "Charles", "Jessica"),
    ("At the airport {one} hugged {other} before {query} boarded the plane.", "Catherine", "Joseph"),
    ("For years {one} admired {other} because {query} played the violin so well.", "Anthony", "Rebecca"),
)
"""Frames, the antecedent and the other person."""

THINGS = (
    ("At first the {one} did not follow the {other} because {query} was too tired.", "dog", "horses"),
    ("At night the {one} kept away from the {other} because {query} were still weak.", "wolves", "bear"),
    ("In the yard the {one} chased the {other} until {query} ran out of breath.", "cat", "rabbits"),
    ("On the island the {one} stayed close to the {other} until {query} were fed.", "donkeys", "camel"),
    ("On the hill the {one} passed the {other} before {query} slowed down.", "truck", "bicycles"),
    ("In the harbour the {one} lay beside the {other} until {query} were repaired.", "boats", "ship"),
    ("At the crossing the {one} waited for the {other} because {query} was far too slow.", "tram", "trucks"),
    ("Along the coast the {one} sailed behind the {other} because {query} were heavily loaded.", "ships", "ferry"),
    ("On the ice the {one} ran into the {other} because {query} was moving too fast.", "car", "buses"),
    ("In the forest the {one} listened to the {other} until {query} flew away.", "birds", "owl"),
    ("At the market the {one} stood next to the {other} because {query} was very popular.", "bakery", "stalls"),
    ("In the museum the {one} hung beside the {other} because {query} were of the same age.", "paintings", "mirror"),
    ("During the storm the {one} fell against the {other} because {query} was rotten.", "tree", "posts"),
    ("On the table the {one} leaned against the {other} until {query} fell over.", "books", "vase"),
    ("In the drawer the {one} got stuck behind the {other} because {query} was bent.", "spoon", "knives"),
    ("At dawn the {one} fought with the {other} because {query} were hungry.", "lions", "zebra"),
    ("On the farm the {one} slept near the {other} because {query} disliked the cold.", "goat", "cows"),
    ("At the zoo the {one} ignored the {other} although {query} were making a lot of noise.", "monkeys", "elephant"),
    ("In the sky the {one} circled above the {other} until {query} was out of sight.", "eagle", "crows"),
    ("In the pond the {one} swam around the {other} until {query} were full.", "ducks", "swan"),
    ("In the workshop the {one} cost more than the {other} because {query} was made of steel.", "ladder", "hammers"),
    ("On the shelf the {one} stood in front of the {other} because {query} were used more often.", "cups", "teapot"),
    ("In the test the {one} used less power than the {other} although {query} was older.", "machine", "lamps"),
    ("In the meadow the {one} grazed beside the {other} until {query} were called home.", "calves", "pony"),
)
"""The same with things and animals, one of them in the singular and one in the plural."""


def pronoun_sentences() -> tuple[Twice, ...]:
    """Pronouns with their antecedents as targets: people, then things."""
    people = [(*each, "she" if each[1] in words.WOMEN else "he") for each in PEOPLE]
    things = [(*each, "they" if each[1].endswith("s") else "it") for each in THINGS]
    return tuple(_either_order(*each) for each in (*people, *things))


def _either_order(frame: str, target: str, competitor: str, pronoun: str) -> Twice:
    """The target first, then the competitor first."""
    orders = (("target", "competitor"), ("competitor", "target"))
    frames = (frame.replace("{one}", f"{{{one}}}").replace("{other}", f"{{{other}}}") for one, other in orders)
    return Twice(*(marked(each, target=target, competitor=competitor, query=pronoun) for each in frames))


ADVERBS = ("usually", "always", "still", "often")
QUALITIES = ("old", "wet", "clean", "dark", "quiet")


def attractor_sentences(count: int = 40) -> tuple[Twice, ...]:
    """Verbs with their subjects as targets, and nouns of the other number as competitors."""
    return tuple(_attracted(index) for index in range(count))


def _attracted(index: int) -> Twice:
    """Sentence `index`: subjects take turns, first half of them in the singular, then in the other number each."""
    numbers = ("singular", "plural") if (index + index // len(words.THINGS)) % 2 else ("plural", "singular")
    nouns = (words.THINGS[index % len(words.THINGS)], words.SITES[index % len(words.SITES)])
    target, competitor = (noun + "s" * (number == "plural") for noun, number in zip(nouns, numbers, strict=True))
    where = words.PREPOSITIONS[index % len(words.PREPOSITIONS)]
    rest = f"{{query}}{{verb}} {QUALITIES[index % len(QUALITIES)]}."
    frames = (
        f"The {{target}} {where} the {{competitor}} {rest}",
        f"{where.capitalize()} the {{competitor}} the {{target}} {rest}",
    )
    found = {"query": ADVERBS[index % len(ADVERBS)], "verb": words.VERBS[numbers[0]]}
    return Twice(*(marked(frame, target=target, competitor=competitor, **found) for frame in frames))
