"""Stories: a hero lives somewhere, something goes wrong, a friend helps. Each story knows questions about itself."""

from __future__ import annotations

import dataclasses
import random

from .common import an, cap, hashed_out, last_word
from .words import BOYS, FOODS, GIRLS, HE_PETS, HEROES, PAINTS, PLACES, ROLES, SHE_PETS, SPOTS, TALES, THINGS, TIMES

# Questions with the same answer, the answer, words that a right answer has, and the answer in one word, if there is one.
Fact = tuple[list[str], str, list[str], str]
# Those that are always a he or a she. The others are either.
HES = ("king", "prince", "wizard", "knight", "sailor")
SHES = ("queen", "princess", "witch", "hen")


@dataclasses.dataclass
class Person:
    """A child, an animal with a name, or somebody with a trade, whose `kind` is empty."""

    name: str
    kind: str
    he: str

    def __post_init__(self) -> None:
        self.his, self.him, self.He = {"he": ("his", "him", "He"), "she": ("her", "her", "She")}[self.he]
        self.intro = f"{an(self.kind)} named {self.name}" if self.kind else self.name
        self.Name = cap(self.name)


def hero_of(r: random.Random, animal: str | None = None, name: str | None = None) -> Person:
    """Returns a child or an animal. A given name makes it a child."""
    if animal or r.random() < 0.5:
        kind = animal or r.choice(HEROES if r.random() < 0.8 else TALES)
        shes = [] if kind in HES else [(pet, kind, "she") for pet in SHE_PETS]
        hes = [] if kind in SHES else [(pet, kind, "he") for pet in HE_PETS]
        person = Person(*r.choice(shes + hes))
    else:
        person = Person(*r.choice([(girl, "girl", "she") for girl in GIRLS] + [(boy, "boy", "he") for boy in BOYS]))
    if name:
        is_girl = name in GIRLS or (name not in BOYS and r.random() < 0.5)
        return Person(name, "girl", "she") if is_girl else Person(name, "boy", "he")
    return person


def friend_of(r: random.Random, hero: Person) -> Person:
    """Returns somebody of another name and kind than the hero."""
    while True:
        friend = Person(r.choice(ROLES), "", "he") if r.random() < 0.3 else hero_of(r)
        if friend.name != hero.name and friend.kind != hero.kind:
            return friend


@dataclasses.dataclass
class Scene:
    """The persons, the place, the time and the things that a plot may use."""

    r: random.Random
    hero: Person
    friend: Person
    place: str
    when: str
    colour: str
    thing: str
    food: str
    spot: str

    def helped(self) -> Fact:
        """Returns the fact that the friend helped the hero."""
        return fact(["Who helped?", f"Who helped {self.hero.name}?"], f"{self.friend.Name} helped {self.hero.name}.", self.friend.name)


@dataclasses.dataclass
class Plot:
    """The problem, the sentences between the beginning and the end, the end (half a sentence), and facts to ask about."""

    wrong: str
    body: list[str]
    end: str
    facts: list[Fact]


def fact(questions: list[str], answer: str, *words: str, short: str | None = None) -> Fact:
    """Returns a fact from its questions, its answer and the words of a right answer. `short` is one word, or empty if none answers well."""
    if short is None:
        short = words[0] if len(words) == 1 and " " not in words[0] else ""
    return questions, answer, list(words), short


def lost_thing(s: Scene) -> Plot:
    """The hero loses a thing, and the friend finds it."""
    h, f, pick = s.hero, s.friend, s.r.choice
    search = [
        f"{h.He} looked everywhere, but could not find it.",
        f"{h.He} looked and looked, and was very sad.",
        f"{h.He} looked in the house and in the yard, but it was not there.",
    ]
    wrong = f"{h.name} lost {h.his} {s.colour} {s.thing}"
    body = [
        f"{s.when}, {wrong}.",
        pick(search),
        f'Then {f.intro} came by and asked, "What is wrong?"',
        f'"I lost my {s.thing}," said {h.name}.',
        f"They looked together, and {f.name} found the {s.thing} {s.spot}.",
    ]
    end = pick([f"{h.name} was happy again, and they ate {s.food}", f"{h.name} thanked {f.name}, and they ate {s.food}"])
    facts = [
        fact([f"What did {h.name} lose?", "What was lost?"], f"{h.name} lost {an(s.colour)} {s.thing}.", s.colour, s.thing),
        fact([f"What colour was the {s.thing}?"], f"The {s.thing} was {s.colour}.", s.colour),
        fact([f"Who found the {s.thing}?", "Who found it?"], f"{f.Name} found it.", f.name),
        fact([f"Where was the {s.thing}?", "Where did they find it?"], f"It was {s.spot}.", last_word(s.spot), short=""),
    ]
    return Plot(wrong, body, end, facts)


def broken_thing(s: Scene) -> Plot:
    """A thing breaks, and the friend brings a tool to mend it."""
    h, f, pick = s.hero, s.friend, s.r.choice
    breaks = [
        ("kite", "string", "a rope"),
        ("cart", "wheel", "a hammer"),
        ("boat", "sail", "a needle"),
        ("chair", "leg", "some glue"),
        ("bucket", "handle", "a nail"),
        ("clock", "spring", "some oil"),
        ("table", "leg", "a board"),
    ]
    thing, part, tool = pick(breaks)
    despair = [
        f'"Oh no," said {h.name}, "what shall I do?"',
        f"{h.name} sat down and cried.",
        f"{h.name} tried to mend it alone, but it was too hard.",
    ]
    wrong = f"the {part} of {h.his} {thing} broke"
    body = [
        f"{h.Name} had {an(s.colour)} {thing}.",
        f"{s.when}, {wrong}.",
        pick(despair),
        f"Then {f.intro} came with {tool}." if f.kind else f"{f.Name} heard it and came with {tool}.",
        f"Together they mended the {thing}.",
    ]
    end = pick([f"the {thing} was as good as new, and they ate {s.food}", f"{h.name} could use the {thing} again, and they ate {s.food}"])
    facts = [
        fact(["What broke?"], f"The {part} of the {thing} broke.", part, thing),
        fact([f"What colour was the {thing}?"], f"The {thing} was {s.colour}.", s.colour),
        fact([f"What did {f.name} bring?"], f"{f.Name} came with {tool}.", last_word(tool)),
        s.helped(),
    ]
    return Plot(wrong, body, end, facts)


def trapped_animal(s: Scene) -> Plot:
    """A young animal is stuck, and the friend brings a tool."""
    h, f, pick = s.hero, s.friend, s.r.choice
    traps = [
        ("a deep well", "a rope"),
        ("a high tree", "a ladder"),
        ("the mud", "a board"),
        ("a dark hole", "a basket"),
        ("the cold water", "a boat"),
    ]
    trap, tool = pick(traps)
    babies = {"a high tree": ["kitten", "chick"], "the cold water": ["lamb", "kitten", "puppy", "piglet", "chick"]}
    baby = pick(babies.get(trap, ["lamb", "kitten", "puppy", "duckling", "piglet", "chick"]))
    wrong = f"a little {baby} was stuck in {trap}"
    helper = f.name
    if f.kind:
        helper = f"{h.his} friend {f.name}" + ("" if f.kind in ("boy", "girl") else f" the {f.kind}")
    body = [
        f"{s.when}, {h.name} heard a cry.",
        f"{cap(wrong)}!",
        f'{h.name} ran to {helper} and called, "Please help!"',
        f"{f.Name} brought {tool}, and they {f'took the {baby} down' if trap == 'a high tree' else f'pulled the {baby} out'}.",
    ]
    end = pick([
        f"the {baby} was safe, and they all ate {s.food}",
        f"the {baby} went home to its mother, and the two friends ate {s.food}",
    ])  # fmt: skip
    facts = [
        fact(["Who was stuck?", "What animal was stuck?"], f"A little {baby} was stuck.", baby),
        fact([f"Where was the {baby}?", f"Where was the {baby} stuck?"], f"The {baby} was stuck in {trap}.", last_word(trap), short=""),
        fact([f"What did {f.name} bring?"], f"{f.Name} brought {tool}.", last_word(tool)),
        s.helped(),
    ]
    return Plot(wrong, body, end, facts)


def bad_weather(s: Scene) -> Plot:
    """The hero finds shelter from bad weather, and the friend is there."""
    h, f, pick = s.hero, s.friend, s.r.choice
    if s.when == "One evening":  # the sun comes out in the end
        s.when = "One morning"
    shelter = pick(["an old barn", "a small cave", "a warm hut", "a hollow tree"] + ["the mill"] * (s.place != "by the old mill"))
    storms = ["a storm", "heavy rain"]
    if s.when.startswith(("On ", "One cold")):
        storms.append("deep snow")
    if s.when not in ("One windy day", "One sunny day"):
        storms.append("thick fog")
    storm = pick(storms)
    wrong = f"{storm} came and {h.name} could not go home"
    body = [
        f"{s.when}, {h.name} went for a walk.",
        f"Then {wrong}.",
        f"{h.He} saw {shelter} and went in.",
        f"There sat {f.intro}.",
        f'"You are welcome," said {f.name}, and gave {h.him} {s.food}.',
    ]
    end = pick([
        f"the sun came out and {h.name} went home with a new friend",
        f"the sky was blue again, and {h.name} went home happy",
    ])  # fmt: skip
    facts = [
        fact(["What was the weather like?"], f"There was {storm}.", last_word(storm)),
        fact(["What came?"], f"{cap(storm)} came.", last_word(storm)),
        fact([f"Where did {h.name} wait?", f"Where did {h.name} go?"], f"{h.name} went into {shelter}.", last_word(shelter), short=""),
        fact(["Who was there?"], f"{f.Name} was there.", f.name),
        fact([f"Who gave {h.name} food?"], f"{f.Name} gave {h.name} {s.food}.", f.name),
    ]
    return Plot(wrong, body, end, facts)


def hunger(s: Scene) -> Plot:
    """The hero is hungry, and the friend shares some food."""
    h, f, pick = s.hero, s.friend, s.r.choice
    wrong = f"{h.name} was hungry and had no food"
    body = [
        f"{s.when}, {wrong}.",
        f"{h.He} asked at the first house, but nobody was home.",
        f"At the second house lived {f.intro}.",
        f'"Come in," said {f.name}, "I have {s.food}. We can share."',
        f"They sat down at the table and ate {s.food}.",
    ]
    end = pick([
        f"{h.name} was full and happy, and brought {f.name} {an(s.colour)} {s.thing} as a gift",
        f"they were good friends, and {h.name} gave {f.name} {an(s.colour)} {s.thing}",
    ])  # fmt: skip
    facts = [
        fact(["What did they eat?"], f"They ate {s.food}.", last_word(s.food)),
        fact([f"What did {f.name} have?"], f"{f.Name} had {s.food}.", last_word(s.food)),
        fact(["Who shared the food?"], f"{f.Name} shared the food.", f.name),
        s.helped(),
        fact(
            [f"What did {h.name} give?", "What was the gift?"],
            f"{h.name} gave {f.name} {an(s.colour)} {s.thing}.",
            s.colour,
            s.thing,
        ),
    ]
    return Plot(wrong, body, end, facts)


def lost_way(s: Scene) -> Plot:
    """The hero is lost, and the friend knows the way."""
    h, f, pick = s.hero, s.friend, s.r.choice
    is_day = s.when in ("One morning", "One sunny day")
    by_day = ["the river", "the sound of the bells", "the smoke of a fire", "the old road"]
    sign = pick(by_day if is_day else [*by_day, "the stars", "the light of a lamp"])
    wrong = f"{h.name} lost {h.his} way"
    body = [
        f"{s.when}, {h.name} went to look for {pick(['berries', 'nuts', 'flowers', 'mushrooms', 'wood'])}.",
        f"{h.He} went too far, and {h.he} lost {h.his} way.",
        f'"Do not be afraid," said {f.intro}.',
        f'"We only have to follow {sign}."',
        f"They followed {sign} all the way.",
    ]
    came = "they came home before dark" if sign in by_day and s.when != "One evening" else "they came home safe"
    end = pick([f"{came} and ate {s.food}", f"{h.name} saw {h.his} own house again, and they ate {s.food}"])
    facts = [
        fact(["What did they follow?"], f"They followed {sign}.", last_word(sign)),
        s.helped(),
        fact(["What did they eat?"], f"They ate {s.food}.", last_word(s.food)),
    ]
    return Plot(wrong, body, end, facts)


def fear(s: Scene) -> Plot:
    """The hero is afraid, and the friend gives a thing that helps."""
    h, f, pick = s.hero, s.friend, s.r.choice
    danger = pick(["the dark", "the deep water", "the thunder", "the high bridge"] + ["big dogs"] * ("dog" not in (h.kind, f.kind)))
    gift = f"{an(s.colour)} {pick(['lamp', 'blanket', 'scarf', 'bell'])}"
    wrong = f"{h.name} was afraid of {danger}"
    body = [
        pick([f"{h.Name} was brave, but", f"{h.Name} could do many things, but"]) + f" {h.he} was afraid of {danger}.",
        f"{s.when}, {f.intro} came to see {h.him}.",
        f'"I was afraid of {danger} too," said {f.name}. "Take {gift}, and I will stay with you."',
        "They tried it once, and then again.",
    ]
    end = pick([
        f"{h.name} was not afraid any more, and they laughed and ate {s.food}",
        f"{h.name} could do it alone, and {f.name} was proud",
    ])  # fmt: skip
    facts = [
        fact([f"What was {h.name} afraid of?"], f"{h.name} was afraid of {danger}.", last_word(danger)),
        fact([f"What did {f.name} give {h.name}?", f"What did {h.name} get?"], f"{f.Name} gave {h.name} {gift}.", last_word(gift)),
        s.helped(),
    ]
    return Plot(wrong, body, end, facts)


def garden(s: Scene) -> Plot:
    """A plant does not grow, and the friend knows the reason."""
    h, f, pick = s.hero, s.friend, s.r.choice
    plant = pick(["a bean", "a sunflower", "a pumpkin", "an apple tree", "a rose", "a carrot"])
    days = s.r.randrange(3, 13)
    need = pick(["water", "sun", "good earth"])
    care = f"put it in the {need}" if need == "sun" else f"gave it {need}"
    wrong = f"nothing grew for {days} days"
    body = [
        f"{s.when}, {h.name} planted {plant}.",
        f"But {wrong}.",
        f'{h.name} asked {f.intro}, "What did I do wrong?"',
        f'"It needs {need}," said {f.name}.',
        f"So {h.he} {care} every day.",
    ]
    ends = [f"the plant was big and green, and they sat beside it and ate {s.food}"]
    if plant in ("a bean", "a sunflower", "an apple tree"):
        ends.append(f"it grew taller than {h.name}, and everybody came to look")
    end = pick(ends)
    facts = [
        fact([f"What did {h.name} plant?"], f"{h.name} planted {plant}.", last_word(plant)),
        fact(["What did it need?", "What did the plant need?"], f"It needed {need}.", last_word(need)),
        fact(["How many days did nothing grow?"], f"Nothing grew for {days} days.", str(days)),
        fact(["How long did nothing grow?"], f"Nothing grew for {days} days.", str(days), short=""),
        fact(["Who knew what to do?"], f"{f.Name} knew what to do.", f.name),
        s.helped(),
    ]
    return Plot(wrong, body, end, facts)


def race(s: Scene) -> Plot:
    """The friend stops in a race, and the hero helps."""
    h, f, pick = s.hero, s.friend, s.r.choice
    goal = pick(["the big oak", "the bridge", "the church", "the red gate"])
    why = pick(["fell over a stone", "lost a shoe", "ran the wrong way", "stopped to rest"])
    wrong = f"{f.name} {why}"
    body = [
        f"{s.when}, {h.name} and {f.intro} had a race to {goal}.",
        f"They ran as fast as they could, but {wrong}.",
        pick([f"{h.Name} stopped and came back to help.", f"{h.Name} turned around and gave {f.him} a hand."]),
        f"They came to {goal} side by side.",
    ]
    end = pick([f"nobody lost, and they ate {s.food}", f"both won, and they ate {s.food}"])
    facts = [
        fact(["Where did they run?", "Where did the race go?"], f"They ran to {goal}.", last_word(goal), short=""),
        fact([f"What happened to {f.name}?"], f"{f.Name} {why}.", last_word(why), short=""),
        fact(["Who won?", "Who won the race?"], "Nobody lost. They came side by side.", "side", short=""),
        fact([f"Who helped {f.name}?"], f"{h.name} helped {f.name}.", h.name),
    ]
    return Plot(wrong, body, end, facts)


def night_noise(s: Scene) -> Plot:
    """The hero hears a noise at night, and the friend looks for its cause."""
    h, f, pick = s.hero, s.friend, s.r.choice
    if s.when.startswith("One ") and s.when not in ("One cold day", "One windy day"):
        s.when = "One evening"
    noise, causes = pick([
        ("a knock", ["a branch in the wind", "an open window"]),
        ("a scratch", ["a branch in the wind", "a hungry cat", "a little mouse"]),
        ("a soft cry", ["a hungry cat", "a lost puppy"]),
        ("a loud bang", ["an open window", "a hungry cat"]),
    ])  # fmt: skip
    cause = pick([each for each in causes if last_word(each) not in (h.kind, f.kind)])
    wrong = f"there was {noise} at night"
    body = [
        f"{s.when}, {h.name} went to bed, but {wrong}.",
        f'"Who is there?" said {h.name}, but nobody spoke.',
        f"{h.He} called {f.intro}.",
        f"{f.Name} took {an(s.colour)} lamp and went to look.",
        f"It was only {cause}!",
    ]
    end = pick([f"they laughed, ate {s.food} and slept well", f"{h.name} was not afraid any more and slept well"])
    facts = [
        fact(["What was the noise?", "What was it?"], f"It was only {cause}.", last_word(cause)),
        fact([f"What did {f.name} take?"], f"{f.Name} took {an(s.colour)} lamp.", s.colour, "lamp"),
        fact([f"Who did {h.name} call?"], f"{h.name} called {f.name}.", f.name),
        s.helped(),
    ]
    return Plot(wrong, body, end, facts)


PLOTS = [lost_thing, broken_thing, trapped_animal, bad_weather, hunger, lost_way, fear, garden, race, night_noise]


@dataclasses.dataclass
class Story:
    """A story, its hero, place and problem, and facts to ask about."""

    text: str
    hero: Person
    place: str
    wrong: str
    facts: list[Fact]


def beginning(s: Scene) -> str:
    """Returns the first sentences, which introduce the hero."""
    h, place = s.hero, s.place
    return s.r.choice([
        f"Once upon a time there was {h.intro}. {h.He} lived {place}.",
        f"There was once {h.intro} who lived {place}.",
        f"{cap(h.intro)} lived {place}.",
        f"Once upon a time, {h.intro} lived {place}.",
        f"{h.Name} was {an(h.kind)} who lived {place}.",
        f"Once there was {h.intro}. {cap(h.his)} home was {place}.",
        f"Long ago, {h.intro} lived {place}.",
        f"There was {h.intro}, and {h.he} lived {place}.",
        f"In the beginning of this story, {h.intro} lived {place}.",
        f"In the beginning there was only a small house {place}. {cap(h.intro)} lived in it.",
        f"The {h.kind} {h.name} lived {place}.",
    ])  # fmt: skip


def any_story(r: random.Random, animal: str | None, name: str | None, place: str | None) -> Story:
    """Returns a story with a new plot, also one that is held out of the training."""
    hero = hero_of(r, animal, name)
    friend = friend_of(r, hero)
    place = place or r.choice(PLACES)
    s = Scene(r, hero, friend, place, r.choice(TIMES), r.choice(PAINTS), r.choice(THINGS), r.choice(FOODS), r.choice(SPOTS))
    start = beginning(s)
    plot = PLOTS[r.randrange(10)](s)
    wrong = cap(plot.wrong)
    end = f"{r.choice(['In the end', 'At last', 'So in the end'])}, {plot.end}."
    facts = [
        fact(["Who is the story about?", "Who is it about?"], f"It is about {hero.name}, {an(hero.kind)}.", hero.name),
        fact(
            [f"Where did {hero.name} live?", f"Where was the home of {hero.name}?"],
            f"{hero.Name} lived {place}.",
            last_word(place),
            short="",
        ),
        fact(["Where did it happen?"], f"It happened {place}, where {hero.name} lived.", last_word(place), short=""),
        fact(
            ["When did it happen?", "What day or time was it?"],
            f"It happened o{s.when[1:]}.",
            last_word(s.when),
            short=last_word(s.when) if s.when.startswith("On ") else "",
        ),
        *plot.facts,
        fact(["What went wrong?", "What was the problem?"], f"{wrong}.", last_word(wrong), short=""),
        fact(["How did it end?", "How did the story end?"], end, last_word(plot.end), short=""),
    ]
    return Story(" ".join([start, *plot.body, end]), hero, place, wrong, facts)


def new_story(
    r: random.Random, held_out: bool = False, animal: str | None = None, name: str | None = None, place: str | None = None
) -> Story:
    """Returns a story of the training, or one that is held out of it. The hero and the place may be given."""
    while True:
        story = any_story(r, animal, name, place)
        if hashed_out(story.text) == held_out:
            return story
