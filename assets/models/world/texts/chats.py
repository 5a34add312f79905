"""Chats of several turns, in which later turns refer to earlier ones. The last turn is the one that is judged."""

from __future__ import annotations

import json
import random
from typing import Any

from .common import CORE, Turn, a_name, an, cap, hashed_out, is_held_out, last_word, made_up, plain
from .questions import single_question
from .stories import Story, new_story
from .talk import small_talk
from .words import ANIMALS, BOYS, CITIES, COLOURS, DAYS, GIRLS, HE_PETS, HEROES, LIKES, OPPOSITES, PAINTS, PLACES, SHE_PETS, TALES, THINGS


def any_story_request(r: random.Random, held_out: bool) -> tuple[Turn, Story]:
    """Returns a request for a story, about a given hero or place in some cases, and the story."""
    given: dict[str, Any] = {}
    about = ""
    kind = r.randrange(6)
    if kind < 3:
        given["animal"] = r.choice(TALES)
        about = f" about {an(given['animal'])}"
    elif kind == 3:
        given["name"] = a_name(r)
        about = f" about {given['name']}"
    wanted = list(given.values())
    if r.random() < 0.35:
        given["place"] = r.choice(PLACES)
        about += (" " if about else " that happens ") + given["place"]
        wanted.append(last_word(given["place"]))
    story = new_story(r, held_out, **given)
    message = r.choice([
        f"Tell me a story{about}.",
        f"Tell me a story{about}",
        f"Tell a story{about}, please.",
        f"Can you tell me a short story{about}?",
        f"Write a short story{about}.",
        f"I want to hear a story{about}.",
        f"A story{about}, please.",
        f"Please write a story{about}.",
    ])  # fmt: skip
    thought = f"A story{about or ' about ' + story.hero.name}. Something goes wrong, and a friend helps."
    return Turn(message, story.text, thought, ("story", wanted)), story


def story_request(r: random.Random, held_out: bool = False) -> tuple[Turn, Story]:
    """Returns a request for a story, and the story; the request is one of the training or held out of it."""
    while True:
        turn, story = any_story_request(r, held_out)
        if (plain(turn.user) in CORE and not held_out) or hashed_out(turn.user) == held_out:
            return turn, story


def about_story(r: random.Random, story: Story, n: int, known: str = "") -> list[Turn]:
    """Returns n questions about a story, but not one with the answer `known`."""
    turns = []
    has_json = False
    facts = [fact for fact in story.facts if fact[1] != known]
    for questions, answer, words, short in r.sample(facts, min(n, len(facts))):
        if r.random() < 0.08 and not has_json:
            has_json = True
            value = {"hero": story.hero.name, "place": last_word(story.place), "problem": story.wrong}
            message = r.choice(["Write the story as JSON.", "Give me the story as JSON.", "Now as a JSON record."])
            turns.append(Turn(message, json.dumps(value), "The fields are hero, place and problem.", ("json", value)))
        else:
            message = r.choice(questions)
            thought = r.choice(["The story says: ", "I look at the story: "]) + answer
            turns.append(Turn(message, answer, thought, ("words", words), short))
    return turns


def model_tells_story(r: random.Random, held_out: bool) -> list[Turn]:
    """The model tells a story, and the user asks about it."""
    told, story = story_request(r, held_out)
    turns = [told, *about_story(r, story, r.randrange(1, 4))]
    if r.random() < 0.15:
        another = new_story(r, held_out)
        message = r.choice([
            "Another one, please.",
            "Tell me another story.",
            "Another story, please",
            "One more!",
            "Please tell me one more story.",
        ])  # fmt: skip
        turns.append(Turn(message, another.text, "One more story.", ("story", [])))
    return turns


def user_tells_story(r: random.Random, held_out: bool) -> list[Turn]:
    """The user tells a story and asks about it."""
    story = new_story(r, held_out)
    questions, answer, words, short = r.choice(story.facts)
    lead = r.choice(["", "Here is a story. ", "Read this. ", "Story: "])
    told = Turn(f"{lead}{story.text} {r.choice(questions)}", answer, f"The story says: {answer}", ("words", words), short)
    return [told, *about_story(r, story, r.randrange(0, 3), answer)]


def days_before_and_after(r: random.Random, _: bool) -> list[Turn]:
    """The user names a day and asks for the days around it."""
    i = r.randrange(7)
    today, tomorrow = DAYS[i], DAYS[(i + 1) % 7]
    message, answer, short = f"Today is {today}.", f"Then tomorrow is {tomorrow}.", ""
    if r.random() < 0.5:
        message, answer, short = f"If today is {today}, what day is tomorrow?", f"Tomorrow is {tomorrow}.", tomorrow
    more = [
        ("And yesterday?", f"Yesterday was {DAYS[i - 1]}.", DAYS[i - 1]),
        ("And the day after tomorrow?", f"The day after tomorrow is {DAYS[(i + 2) % 7]}.", DAYS[(i + 2) % 7]),
        ("What day is it today?", f"Today is {today}.", today),
        ("And the day before yesterday?", f"The day before yesterday was {DAYS[i - 2]}.", DAYS[i - 2]),
    ]
    first = Turn(message, answer, f"After {today} comes {tomorrow}.", ("words", [tomorrow]), short)
    later = r.sample(more, r.randrange(1, 4))
    return [first, *(Turn(question, answer, f"Today is {today}.", ("words", [day]), day) for question, answer, day in later)]


def running_sum(r: random.Random, _: bool) -> list[Turn]:
    """Each question adds to the last result, or takes from it."""
    a, b = r.randrange(1, 12), r.randrange(0, 8)
    total = a + b
    turns = [Turn(f"What is {a} plus {b}?", f"{a} plus {b} is {total}.", f"{a} + {b} is {total}.", ("number", total), str(total))]
    for _ in range(r.randrange(1, 4)):
        n = r.randrange(1, 7)
        is_plus = total + n <= 20 and (r.random() < 0.5 or total < n)
        word, sign, result = ("plus", "+", total + n) if is_plus else ("minus", "-", total - n)
        message = r.choice([f"And {word} {n}?", f"Now {word} {n}."])
        thought = f"We had {total}. {total} {sign} {n} is {result}."
        turns.append(Turn(message, f"{total} {word} {n} is {result}.", thought, ("number", result), str(result)))
        total = result
    return turns


def several_colours(r: random.Random) -> list[Turn]:
    """Asks for the colours of 2 or 3 things."""
    first, *others = r.sample(list(COLOURS), 3)
    known = COLOURS[first]
    turns = [Turn(f"What colour is {first}?", f"{cap(first)} is {known}.", f"I know {first}.", ("words", [known]), known)]
    for thing in others[: r.randrange(2, 4) - 1]:
        message = r.choice([f"And {thing}?", f"And what about {thing}?"])
        thought = f"The question is about the colour of {thing}."
        known = COLOURS[thing]
        turns.append(Turn(message, f"{cap(thing)} is {known}.", thought, ("words", [known]), known))
    return turns


def several_opposites(r: random.Random) -> list[Turn]:
    """Asks for the opposites of 2 or 3 words."""
    (a, b), *others = r.sample(OPPOSITES, 3)
    turns = [Turn(f"What is the opposite of {a}?", f"The opposite of {a} is {b}.", "I think of the other end.", ("words", [b]), b)]
    for a, b in others[: r.randrange(2, 4) - 1]:
        message = r.choice([f"And of {a}?", f"And {a}?"])
        turns.append(Turn(message, f"The opposite of {a} is {b}.", f"{cap(a)} and {b} are opposites.", ("words", [b]), b))
    return turns


def several_animals(r: random.Random) -> list[Turn]:
    """Asks for the same fact about 2 or 3 animals."""
    first, *others = r.sample(list(ANIMALS), 3)
    field, question, answer = r.choice([
        ("sound", "What sound does {} make?", "{} {}."),
        ("food", "What does {} eat?", "{} eats {}."),
        ("home", "Where does {} live?", "{} lives in {}."),
    ])  # fmt: skip

    def turn(message: str, name: str) -> Turn:
        known = getattr(ANIMALS[name], field)
        thought = f"The question is about {an(name)}."
        return Turn(message, answer.format(cap(an(name)), known), thought, ("words", [last_word(known)]), "" if " " in known else known)

    turns = [turn(question.format(an(first)), first)]
    for name in others[: r.randrange(2, 4) - 1]:
        turns.append(turn(r.choice([f"And {an(name)}?", f"And what about {an(name)}?"]), name))
    return turns


def same_question(r: random.Random, _: bool) -> list[Turn]:
    """Asks the same question about several things."""
    if r.random() < 0.5:
        return several_colours(r)
    return several_opposites(r) if r.random() < 0.5 else several_animals(r)


def about_user(r: random.Random, _: bool) -> list[Turn]:
    """The user says something about himself and asks for it later."""
    name, like, age, pet = a_name(r), r.choice(LIKES), r.randrange(4, 20), r.choice(HEROES)
    paint, thing = r.choice(PAINTS), r.choice(THINGS)
    pet_name = r.choice(SHE_PETS + HE_PETS) if r.random() < 0.8 else made_up(r).title()
    city = r.choice(CITIES)
    # Statements of the user, the reply, later questions, their answer, and the word that the answer must have.
    memories = [
        (
            [f"My name is {name}.", f"I am {name}.", f"Hello, I am {name}.", f"Hi, my name is {name}."],
            f"Hello, {name}! It is nice to meet you.",
            ["What is my name?", "Who am I?", "Do you remember my name?"],
            f"Your name is {name}.",
            name,
        ),
        (
            [f"I like {like}.", f"I really like {like}."],
            f"{cap(like)}! That is nice.",
            ["What do I like?", "Do you remember what I like?"],
            f"You like {like}.",
            like,
        ),
        (
            [f"I am {age} years old.", f"I am {age}."],
            f"{age} is a good age.",
            ["How old am I?", "What is my age?"],
            f"You are {age} years old.",
            str(age),
        ),
        (
            [f"I have {an(pet)} named {pet_name}.", f"My {pet} is called {pet_name}."],
            f"{pet_name} is a good name for {an(pet)}.",
            [f"What is the name of my {pet}?", f"What is my {pet} called?"],
            f"Your {pet} is called {pet_name}.",
            pet_name,
        ),
        (
            [f"I have {an(paint)} {thing}.", f"My {thing} is {paint}."],
            f"{cap(an(paint))} {thing} is a fine thing.",
            [f"What colour is my {thing}?"],
            f"Your {thing} is {paint}.",
            paint,
        ),
        (
            [f"I live in {city}."],
            f"{city} must be a nice place.",
            ["Where do I live?", "In which city do I live?"],
            f"You live in {city}.",
            city,
        ),
    ]
    said = r.sample(memories, r.randrange(1, 4))
    in_lower_case = r.random() < 0.12 and name in GIRLS + BOYS
    turns = []
    for messages, reply, *_ in said:
        message = r.choice(messages)
        check = ("words", [reply.split()[0].strip("!,.")])
        turns.append(Turn(message.lower() if in_lower_case else message, reply, "The user tells me something.", check))
    if r.random() < 0.4:
        turns.append(single_question(r))
    for *_, questions, answer, word in r.sample(said, r.randrange(1, len(said) + 1)):
        turns.append(Turn(r.choice(questions), answer, f"The user said it before. {answer}", ("words", [word]), "" if " " in word else word))
    return turns


def mixture(r: random.Random, held_out: bool) -> list[Turn]:
    """Small talk, questions and stories that do not refer to each other."""
    turns = [single_question(r, kinds=[(small_talk, 1)])] if r.random() < 0.5 else []
    if turns and turns[0].answer.endswith("Shall I tell you a story?") and r.random() < 0.5:
        message = r.choice(["Yes", "Yes, please", "Yes, please.", "Yes!", "Please tell me a story."])
        turns.append(Turn(message, new_story(r, held_out).text, "The user wants a story.", ("story", [])))
    for _ in range(r.randrange(1, 4)):
        turns.append(single_question(r) if r.random() < 0.8 else story_request(r)[0])
    if r.random() < 0.4:
        thanks = Turn("Thank you", "You are welcome!", "The user is friendly.", ("any", ["welcome"]))
        bye = Turn("Bye", "Goodbye! Come back soon.", "The user is leaving.", ("any", ["goodbye"]))
        turns.append(r.choice([thanks, bye]))
    if held_out:
        turns.append(single_question(r, True))
    return turns


# The kinds of chats, each with the sum of its share and the shares before it.
KINDS = [
    (0.30, model_tells_story),
    (0.50, user_tells_story),
    (0.58, days_before_and_after),
    (0.66, running_sum),
    (0.74, same_question),
    (0.88, about_user),
    (1.00, mixture),
]


def any_chat(r: random.Random, held_out: bool) -> list[Turn]:
    """Returns a chat of any kind, also one that is not allowed in the training."""
    x = r.random()
    kind = next(kind for limit, kind in KINDS if x < limit)
    return kind(r, held_out)


def new_chat(r: random.Random, held_out: bool = False) -> list[Turn]:
    """Returns a chat of the training, or one that is held out of it by the sequence of its messages."""
    while True:
        turns = any_chat(r, held_out)
        messages = [turn.user for turn in turns]
        if not held_out and any(is_held_out(message) for message in messages):
            continue
        if hashed_out("\n".join(messages)) != held_out:
            continue
        # The training also has no beginning of a chat that may be a held-out prompt.
        if held_out or not any(hashed_out("\n".join(messages[:n])) for n in range(2, len(messages))):
            return turns
