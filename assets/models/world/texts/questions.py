"""Single questions about the world, each with its answer, a thought and a check. A function returns a new question at each call."""

from __future__ import annotations

import json
import random
from collections.abc import Callable

from .common import Turn, a_name, an, cap, counted, is_held_out, last_word
from .talk import small_talk, unknown
from .words import (
    ANIMALS, BOYS, COLOURS, DAYS, GIRLS, GROUPS, LIKES, MONTHS, NEXT_SEASON, NUMBERS, OPPOSITES, PAINTS, THINGS, USES,
)  # fmt: skip

Kinds = list[tuple[Callable[[random.Random], Turn], int]]


def product(r: random.Random) -> Turn:
    """Asks for a product of small numbers."""
    a = r.randrange(0, 11)
    b = r.randrange(0, 20 // max(a, 2) + 1)
    n = a * b
    question = r.choice([f"What is {a} times {b}?", f"How much is {a} times {b}?", f"What is {a} * {b}?", f"{a} times {b}"])
    times = "time" if b == 1 else "times"
    return Turn(question, f"{a} times {b} is {n}.", f"I take {a} {NUMBERS[b]} {times}. That is {n}.", ("number", n), str(n))


def sums(r: random.Random) -> Turn:
    """Asks for a sum, a difference or, rarely, a product; mostly of numbers to 20."""
    kind = r.random()
    if kind < 0.08:
        return product(r)
    if kind < 0.65:
        a, b = r.randrange(21), r.randrange(21)
        while a + b > 20 and r.random() < 0.8:
            a, b = r.randrange(21), r.randrange(21)
        n, word, sign, way, steps = a + b, "plus", "+", "up", range(a + 1, a + b + 1)
    else:
        a = r.randrange(21)
        b = r.randrange(a + 1)
        n, word, sign, way, steps = a - b, "minus", "-", "down", range(a - 1, a - b - 1, -1)
    A, B = (NUMBERS[x] if r.random() < 0.12 else str(x) for x in (a, b))
    thing = r.choice(["apple", "nut", "egg", "coin", "book", "plum", "duck", "bell"])
    name = r.choice(GIRLS + BOYS)
    he = "she" if name in GIRLS else "he"
    if word == "plus":
        tale = f"{name} has {counted(a, thing)} and gets {b} more. How many {thing}s does {he} have?"
    else:
        tale = f"{name} has {counted(a, thing)} and gives away {b}. How many {thing}s are left?"
    in_words, in_signs = f"{A} {word} {B} is {n}.", f"{a} {sign} {b} = {n}"
    forms = [
        (f"What is {A} {word} {B}?", in_words),
        (f"How much is {A} {word} {B}?", in_words),
        (f"{a} {sign} {b} = ?", in_signs),
        (f"{a} {sign} {b}", in_signs),
        (f"What is {a} {sign} {b}?", in_signs),
        (f"{a}{sign}{b}", in_signs),
        (f"What is {a}{sign}{b}?", in_signs),
        (f"{cap(A)} {word} {B}?", in_words),
        (f"Can you tell me what {A} {word} {B} is?", in_words),
        (tale, f"{name} has {counted(n, thing)}."),
    ]
    question, answer = r.choice(forms if a and b else forms[:-1])
    thought = f"{a} {sign} {b} is {n}."
    if 0 < b < 8:
        thought = f"I start at {a} and count {b} {way}: {', '.join(map(str, steps))}. That is {n}."
    return Turn(question, cap(answer), thought, ("number", n), str(n))


def opposite(r: random.Random) -> Turn:
    """Asks for the opposite of a word."""
    pair = r.choice(OPPOSITES)
    a, b = pair if r.random() < 0.5 else pair[::-1]
    question = r.choice([
        f"What is the opposite of {a}?",
        f"Opposite of {a}?",
        f"the opposite of {a}",
        f'Tell me the opposite of "{a}".',
        f"Which word is the opposite of {a}?",
        f"What is not {a}?",
        f"Do you know the opposite of {a}?",
    ])  # fmt: skip
    return Turn(question, f"The opposite of {a} is {b}.", f"{cap(a)} and {b} are opposites.", ("words", [b]), b)


def colour(r: random.Random) -> Turn:
    """Asks for the colour of a thing, or if it has a colour."""
    thing, known = r.choice(list(COLOURS.items()))
    if r.random() < 0.2:
        # Golden things are also yellow, so nobody asks that.
        same = ("golden", "yellow") if known in ("golden", "yellow") else (known,)
        asked = r.choice([other for other in sorted(set(COLOURS.values())) if other not in same] if r.random() < 0.5 else [known])
        yes = "yes" if asked == known else "no"
        answer, thought = f"{cap(yes)}, {thing} is {known}.", f"{cap(thing)} is {known}."
        return Turn(f"Is {thing} {asked}?", answer, thought, ("words", [yes, known]), yes)
    question = r.choice([
        f"What colour is {thing}?",
        f"What color is {thing}?",
        f"Which colour is {thing}?",
        f"Tell me the colour of {thing}.",
        f"What colour does {thing} have?",
    ])  # fmt: skip
    return Turn(question, f"{cap(thing)} is {known}.", f"I know {thing}. It is {known}.", ("words", [known]), known)


def calendar_fact(r: random.Random) -> Turn:
    """Asks for the number of days, months or seasons, or for the first or last day."""
    # One form of each question is chosen, then one of the questions.
    return r.choice([
        Turn(
            r.choice(["How many days are in a week?", "How many days has a week?", "How many days does a week have?"]),
            "A week has 7 days.", "Monday to Sunday are 7 days.", ("number", 7), "7",
        ),
        Turn(
            r.choice(["How many months are in a year?", "How many months has a year?", "How many months does a year have?"]),
            "A year has 12 months.", "January to December are 12 months.", ("number", 12), "12",
        ),
        Turn(
            r.choice(["How many seasons are there?", "How many seasons has a year?"]),
            "There are 4 seasons.", "Spring, summer, autumn, winter.", ("number", 4), "4",
        ),
        Turn(
            r.choice(["What is the first day of the week?", "Which day is the first of the week?"]),
            "Monday is the first day of the week.", "The week begins with Monday.", ("words", ["Monday"]), "Monday",
        ),
        Turn(
            r.choice(["What is the last day of the week?", "Which day is the last of the week?"]),
            "Sunday is the last day of the week.", "The week ends with Sunday.", ("words", ["Sunday"]), "Sunday",
        ),
    ])  # fmt: skip


def listing(r: random.Random) -> Turn:
    """Asks for all days, months or seasons."""
    question, items = r.choice([
        ("Tell me the days of the week.", DAYS),
        ("Name the days of the week.", DAYS),
        ("What are the days of the week?", DAYS),
        ("Tell me the months.", MONTHS),
        ("Name the months of the year.", MONTHS),
        ("Name the seasons.", list(NEXT_SEASON)),
    ])  # fmt: skip
    return Turn(question, cap(", ".join(items)) + ".", f"There are {len(items)} of them.", ("list", items))


def calendar(r: random.Random) -> Turn:
    """Asks about days, months and seasons."""
    kind, i = r.randrange(9), r.randrange(7)
    day, after, before = DAYS[i], DAYS[(i + 1) % 7], DAYS[i - 1]
    i = r.randrange(12)
    month, next_month, last_month = MONTHS[i], MONTHS[(i + 1) % 12], MONTHS[i - 1]
    if kind == 0:
        question = f"Today is {day}. What day is tomorrow?" if r.random() < 0.5 else f"If today is {day}, what day is tomorrow?"
        return Turn(question, f"Tomorrow is {after}.", f"After {day} comes {after}.", ("words", [after]), after)
    if kind == 1:
        question = f"Today is {day}. What day was yesterday?" if r.random() < 0.5 else f"If today is {day}, what day was yesterday?"
        return Turn(question, f"Yesterday was {before}.", f"Before {day} comes {before}.", ("words", [before]), before)
    if kind == 2:
        question = r.choice([f"Which day comes after {day}?", f"What day is after {day}?", f"What comes after {day}?"])
        return Turn(question, f"{after} comes after {day}.", f"The days go {day}, {after}.", ("words", [after]), after)
    if kind == 3:
        question = r.choice([f"Which day comes before {day}?", f"What day is before {day}?", f"What comes before {day}?"])
        return Turn(question, f"{before} comes before {day}.", f"The days go {before}, {day}.", ("words", [before]), before)
    if kind == 4:
        question = r.choice([f"Which month comes after {month}?", f"What month is after {month}?", f"What comes after {month}?"])
        thought = f"The months go {month}, {next_month}."
        return Turn(question, f"{next_month} comes after {month}.", thought, ("words", [next_month]), next_month)
    if kind == 5:
        question = r.choice([f"Which month comes before {month}?", f"What month is before {month}?"])
        thought = f"The months go {last_month}, {month}."
        return Turn(question, f"{last_month} comes before {month}.", thought, ("words", [last_month]), last_month)
    if kind == 6:
        season, following = r.choice(list(NEXT_SEASON.items()))
        question = r.choice([f"Which season comes after {season}?", f"What comes after {season}?", f"What season is after {season}?"])
        thought = f"After {season} comes {following}."
        return Turn(question, f"{cap(following)} comes after {season}.", thought, ("words", [following]), following)
    return calendar_fact(r) if kind == 7 else listing(r)


def counting(r: random.Random) -> Turn:
    """Asks to count, or to compare two numbers to 20."""
    kind, a = r.randrange(5), r.randrange(0, 16)
    b = min(a + r.randrange(2, 11), 20)
    up = [str(i) for i in range(a, b + 1)]
    if kind == 0:
        forms = [f"Count from {a} to {b}.", f"Count from {a} to {b}", f"Please count from {a} to {b}.", f"Can you count from {a} to {b}?"]
        return Turn(r.choice(forms), ", ".join(up) + ".", f"I begin at {a} and stop at {b}.", ("list", up))
    if kind == 1:
        forms, down = [f"Count down from {b} to {a}.", f"Count backwards from {b} to {a}."], up[::-1]
        return Turn(r.choice(forms), ", ".join(down) + ".", f"I begin at {b} and go down to {a}.", ("list", down))
    n = r.randrange(1, 20)
    if kind == 2:
        forms = [f"What number comes after {n}?", f"Which number is after {n}?", f"What comes after {n}?"]
        return Turn(r.choice(forms), f"{n + 1} comes after {n}.", f"I count: {n}, {n + 1}.", ("words", [str(n + 1)]), str(n + 1))
    if kind == 3:
        forms = [f"What number comes before {n}?", f"Which number is before {n}?", f"What comes before {n}?"]
        return Turn(r.choice(forms), f"{n - 1} comes before {n}.", f"I count: {n - 1}, {n}.", ("words", [str(n - 1)]), str(n - 1))
    m = r.choice([x for x in range(21) if x != n])
    less, more = sorted((n, m))
    forms = [f"Which is more, {n} or {m}?", f"Which number is bigger, {n} or {m}?"]
    return Turn(r.choice(forms), f"{more} is more than {less}.", f"{less} comes before {more}.", ("first", str(more)), str(more))


def bigger(r: random.Random, name: str) -> Turn:
    """Asks which of two animals is bigger or smaller."""
    other = r.choice([x for x in ANIMALS if abs(ANIMALS[x].size - ANIMALS[name].size) > 1])
    big, small = (name, other) if ANIMALS[name].size > ANIMALS[other].size else (other, name)
    a_big, a_small, pair = an(big), an(small), f"{an(name)} or {an(other)}"
    if r.random() < 0.6:
        answer, thought = f"{cap(a_big)} is bigger than {a_small}.", f"{cap(a_small)} is small beside {a_big}."
        return Turn(f"Which is bigger, {pair}?", answer, thought, ("first", big), big)
    answer, thought = f"{cap(a_small)} is smaller than {a_big}.", f"{cap(a_big)} is big beside {a_small}."
    return Turn(f"Which is smaller, {pair}?", answer, thought, ("first", small), small)


def animal(r: random.Random) -> Turn:
    """Asks for a fact about an animal."""
    name = r.choice(list(ANIMALS))
    x, a = ANIMALS[name], an(name)
    A, thought = cap(a), f"I think of {a}."
    kind = r.randrange(9)
    if kind == 0:
        forms = [f"What sound does {a} make?", f"What does {a} say?", f"Which sound does {a} make?"]
        return Turn(r.choice(forms), f"{A} {x.sound}.", f"{thought} It {x.sound}.", ("words", [x.sound]), x.sound)
    if kind == 1:
        forms = [f"What does {a} eat?", f"What do you feed {a}?", f"Which food does {a} like?"]
        return Turn(r.choice(forms), f"{A} eats {x.food}.", f"{thought} It eats {x.food}.", ("words", [x.food]), x.food)
    if kind == 2:
        forms = [f"Where does {a} live?", f"What is the home of {a}?", f"Where does {a} sleep?"]
        return Turn(r.choice(forms), f"{A} lives in {x.home}.", f"The home of {a} is {x.home}.", ("words", [last_word(x.home)]))
    if kind == 3:
        forms = [f"How many legs does {a} have?", f"How many legs has {a}?", f"Count the legs of {a}."]
        return Turn(r.choice(forms), f"{A} has {x.legs} legs.", f"{A} walks on {x.legs} legs.", ("number", x.legs), str(x.legs))
    if kind == 4:
        forms = [f"What do you call a young {name}?", f"What is a young {name} called?", f"What is a baby {name}?"]
        young = last_word(x.young)
        return Turn(r.choice(forms), f"A young {name} is {x.young}.", f"I think of a small {name}.", ("words", [young]), young)
    if kind == 5:
        question = r.choice([f"Can {a} fly?", f"Does {a} fly?", f"Is {a} able to fly?"])
        if x.flies:
            return Turn(question, f"Yes, {a} can fly.", f"I think of {a} and its wings.", ("words", ["yes"]), "yes")
        return Turn(question, f"No, {a} cannot fly.", f"I think of {a} and its legs.", ("words", ["no"]), "no")
    if kind == 6:
        return bigger(r, name)
    if kind == 7:
        forms = [f"What is {a}?", f"Tell me about {a}.", name, cap(name), f"What do you know about {a}?"]
        answer = f"{A} is an animal. It is {x.colour}, has {x.legs} legs, lives in {x.home} and eats {x.food}."
        return Turn(r.choice(forms), answer, f"I know {a} well.", ("words", ["animal", x.colour, str(x.legs), x.food]))
    forms = [f"What colour is {a}?", f"Which colour does {a} have?"]
    short = "" if " " in x.colour else x.colour
    return Turn(r.choice(forms), f"{A} is {x.colour}.", f"{thought} It is {x.colour}.", ("words", [x.colour]), short)


def group(r: random.Random) -> Turn:
    """Asks for members of a group, the group of a thing, or the use of a tool."""
    name = r.choice(list(GROUPS))
    items = GROUPS[name]
    item = r.choice(items)
    kind = r.randrange(4)
    if kind == 0:
        n = r.randrange(2, 5)
        words = r.sample(items, n)
        names = "things to wear" if name == "thing to wear" else name + "s"
        question = r.choice([f"Name {NUMBERS[n]} {names}.", f"Tell me {NUMBERS[n]} {names}.", f"Give me {n} {names}."])
        answer = f"{cap(', '.join(words[:-1]))} and {words[-1]}."
        return Turn(question, answer, f"I choose {n} of them.", ("members", n, items))
    if kind == 1:
        asked = name if r.random() < 0.5 else r.choice([other for other in GROUPS if item not in GROUPS[other]])
        word = item if name in ("colour", "drink") else an(item)
        yes = "yes" if asked == name else "no"
        statement = f"{word} is {an(name)}."
        return Turn(f"Is {word} {an(asked)}?", f"{cap(yes)}, {statement}", cap(statement), ("words", [yes, name]), yes)
    tool, use = r.choice(list(USES.items()))
    if kind == 2:
        question = r.choice([f"What is {tool} for?", f"What do you do with {tool}?", f"Why do people have {tool}?"])
        return Turn(question, f"You use {tool} to {use}.", f"I think of {tool}.", ("words", [last_word(use)]))
    question = r.choice([f"What do you need to {use}?", f"What can I use to {use}?"])
    return Turn(question, f"You need {tool}.", f"People use {tool} to {use}.", ("words", [last_word(tool)]), last_word(tool))


def record(r: random.Random) -> Turn:
    """Asks for a record as JSON."""
    kind = r.randrange(5)
    if kind == 0:
        name = r.choice(list(ANIMALS))
        a, x = an(name), ANIMALS[name]
        value = {"name": name, "colour": x.colour, "legs": x.legs, "food": x.food}
        forms = [
            f"Give me a record of {a} as JSON.",
            f"Write a record of {a} in JSON.",
            f"Describe {a} as JSON.",
            f"{cap(name)} as JSON, please.",
            f"Make a JSON record of {a}.",
        ]
    elif kind == 1:
        name, age, like = a_name(r), r.randrange(3, 20), r.choice(LIKES)
        value = {"name": name, "age": age, "likes": like}
        forms = [
            f"{name} is {age} years old and likes {like}. Write that as JSON.",
            f"Make a JSON record: {name}, {age} years old, likes {like}.",
            f"Turn this into JSON: {name} is {age} and likes {like}.",
            f"As JSON: {name} is {age} years old and likes {like}.",
        ]
    elif kind == 2:
        thing, known = r.choice(list(COLOURS.items()))
        value = {"name": last_word(thing), "colour": known}
        forms = [
            f"Give me the colour of {thing} as JSON.",
            f"Write {thing} and its colour as JSON.",
            f"JSON with the name and colour of {thing}, please.",
        ]
    elif kind == 3:
        n, thing, paint = r.randrange(1, 20), r.choice(THINGS), r.choice(PAINTS)
        value = {"thing": thing, "colour": paint, "count": n}
        things = counted(n, f"{paint} {thing}")
        forms = [
            f"There {'is' if n == 1 else 'are'} {things}. Write that as JSON.",
            f"As JSON: {things}.",
            f"Turn this into JSON: {things}.",
            f"Make a record of {things} as JSON.",
        ]
    else:
        i = r.randrange(7)
        value = {"day": DAYS[i], "before": DAYS[i - 1], "after": DAYS[(i + 1) % 7]}
        forms = [
            f"Give me {DAYS[i]} with the day before and after as JSON.",
            f"Write a record of {DAYS[i]} as JSON.",
            f"{DAYS[i]} as JSON, please.",
        ]
    question = r.choice(forms)
    *first, last = value
    thought = r.choice([f"The record has {len(value)} fields.", f"I need the fields {', '.join(first)} and {last}."])
    return Turn(question, json.dumps(value), thought, ("json", value))


# The kinds of questions and their weights.
KINDS: Kinds = [
    (sums, 12), (opposite, 11), (colour, 9), (calendar, 6), (counting, 5), (animal, 10), (group, 8), (record, 7), (small_talk, 13), (unknown, 6),
]  # fmt: skip


def single_question(r: random.Random, held_out: bool = False, kinds: Kinds = KINDS) -> Turn:
    """Returns a question of the training, or one that is held out of it. Sometimes leaves out its capital letter or last mark."""
    functions, weights = zip(*kinds)
    while True:
        function = r.choices(functions, weights)[0]
        for _ in range(4000):
            turn = function(r)
            question = turn.user
            if r.random() < 0.15 and function not in (record, small_talk):
                question = question[:1].lower() + question[1:]
            if r.random() < 0.12 and question.endswith(("?", ".")):
                question = question[:-1]
            if is_held_out(turn.user) == held_out:
                return turn._replace(user=question)
