"""Words and sentences that prompt pairs are made of (`interp.pair_builders`).

Names are in long use and mostly borne by one gender, and none is part of another word of its sentence, since roles are
found by their words. Facts about countries are left out where there is no one short answer. Plurals are noun + s.
"""

from typing import Literal, NamedTuple

WOMEN = (
    *("Mary", "Anna", "Sarah", "Emily", "Laura", "Alice", "Helen", "Julia", "Susan", "Rachel", "Elizabeth", "Lisa"),
    *("Karen", "Linda", "Nancy", "Rebecca", "Jennifer", "Jessica", "Martha", "Catherine", "Diana", "Sophie"),
    *("Margaret", "Barbara", "Lucy", "Hannah", "Charlotte"),
)
MEN = (
    *("John", "James", "Robert", "David", "Michael", "William", "Thomas", "Peter", "Paul", "Daniel", "Kevin", "Brian"),
    *("Steven", "Richard", "George", "Edward", "Andrew", "Simon", "Henry", "Adam", "Charles", "Joseph", "Matthew"),
    *("Patrick", "Philip", "Martin", "Anthony"),
)
PLACES = ("store", "park", "school", "office", "library", "station", "hospital", "beach", "market", "museum")
OBJECTS = ("drink", "book", "ring", "letter", "gift", "computer", "key", "bottle", "watch", "ticket", "map", "flower")

IOI_TEMPLATES = (
    "When {first} and {second} went to the {place}, {giver} gave a {object} to",
    "After {first} and {second} arrived at the {place}, {giver} handed a {object} to",
    "Yesterday {first} and {second} met at the {place}, and {giver} showed a {object} to",
    "Then {first} and {second} had a long talk at the {place}, and {giver} gave a {object} to",
    "While {first} and {second} were walking to the {place}, {giver} offered a {object} to",
    "Since {first} and {second} wanted to see the {place}, {giver} brought a {object} to",
    "Once {first} and {second} were back from the {place}, {giver} sent a {object} to",
)

DURATIONS = (
    *("war", "journey", "siege", "voyage", "project", "drought", "festival", "reign", "strike", "famine"),
    *("expedition", "conflict", "revolt", "epidemic", "campaign", "alliance", "crisis"),
)
CENTURIES = ("12", "13", "14", "15", "16", "17", "18")


class Country(NamedTuple):
    """A country; its most widely spoken language and its continent are None where there is no one short answer."""

    name: str
    capital: str
    language: str | None
    continent: str | None


COUNTRIES = (
    Country("France", "Paris", "French", "Europe"),
    Country("Germany", "Berlin", "German", "Europe"),
    Country("Italy", "Rome", "Italian", "Europe"),
    Country("Spain", "Madrid", "Spanish", "Europe"),
    Country("Portugal", "Lisbon", "Portuguese", "Europe"),
    Country("Greece", "Athens", "Greek", "Europe"),
    Country("Poland", "Warsaw", "Polish", "Europe"),
    Country("Sweden", "Stockholm", "Swedish", "Europe"),
    Country("Norway", "Oslo", "Norwegian", "Europe"),
    Country("Denmark", "Copenhagen", "Danish", "Europe"),
    Country("Finland", "Helsinki", None, "Europe"),
    Country("Hungary", "Budapest", "Hungarian", "Europe"),
    Country("Austria", "Vienna", "German", "Europe"),
    Country("Belgium", "Brussels", None, "Europe"),
    Country("Ireland", "Dublin", None, "Europe"),
    Country("Romania", "Bucharest", "Romanian", "Europe"),
    Country("Bulgaria", "Sofia", "Bulgarian", "Europe"),
    Country("Russia", "Moscow", "Russian", None),
    Country("Turkey", "Ankara", "Turkish", None),
    Country("Japan", "Tokyo", "Japanese", "Asia"),
    Country("China", "Beijing", "Chinese", "Asia"),
    Country("Thailand", "Bangkok", "Thai", "Asia"),
    Country("Vietnam", "Hanoi", "Vietnamese", "Asia"),
    Country("India", "New Delhi", None, "Asia"),
    Country("Nepal", "Kathmandu", None, "Asia"),
    Country("Pakistan", "Islamabad", None, "Asia"),
    Country("Iran", "Tehran", "Persian", "Asia"),
    Country("Iraq", "Baghdad", "Arabic", "Asia"),
    Country("Syria", "Damascus", "Arabic", "Asia"),
    Country("Lebanon", "Beirut", "Arabic", "Asia"),
    Country("Egypt", "Cairo", "Arabic", "Africa"),
    Country("Morocco", "Rabat", None, "Africa"),
    Country("Kenya", "Nairobi", None, "Africa"),
    Country("Nigeria", "Abuja", None, "Africa"),
    Country("Ghana", "Accra", None, "Africa"),
    Country("Canada", "Ottawa", None, None),
    Country("Cuba", "Havana", "Spanish", None),
    Country("Argentina", "Buenos Aires", "Spanish", None),
    Country("Chile", "Santiago", "Spanish", None),
    Country("Peru", "Lima", "Spanish", None),
    Country("Colombia", "Bogotá", "Spanish", None),
    Country("Brazil", "Brasília", "Portuguese", None),
)

CountryFact = Literal["capital", "language", "continent"]
COUNTRY_TEMPLATES: dict[CountryFact, str] = {
    "capital": "The capital of {country} is",
    "language": "The main language of {country} is",
    "continent": "The country of {country} lies on the continent of",
}

THINGS = (
    *("key", "book", "picture", "letter", "lamp", "cup", "painting", "bottle", "flower", "chair", "boy", "girl"),
    *("dog", "cat", "teacher", "guard", "farmer", "doctor"),
)
SITES = (
    *("cabinet", "car", "tree", "door", "table", "house", "window", "road", "bridge", "tower", "garden", "wall"),
    *("river", "shop"),
)
PREPOSITIONS = ("near", "behind", "beside", "next to", "in front of")
VERBS = {"singular": " is", "plural": " are"}

GENDER_TEMPLATES = (
    "When {name} woke up this morning,",
    "Because {name} was tired after work,",
    "After {name} read the letter,",
    "As {name} opened the door,",
    "Everyone knows {name} because",
    "Our friends say of {name} that",
)
PRONOUNS = {"woman": " she", "man": " he"}
