"""Small talk, and questions about things outside of the world, which the model says it does not know."""

from __future__ import annotations

import random

from .common import Turn, made_up

WHO = "I am a tiny language model inside wingbeat. I have two million parameters and know only a small world."
SKILLS = "I can tell short stories, answer questions about them, add small numbers, and talk about colours, animals, opposites and days."
# The answer has one of these words if no greeting suits the message, or if it has a thought of its own.
NO_GREETING = {"welcome", "goodbye", "talk", "glad", "kind"}
THOUGHTS = {
    "hello": "The user is friendly.", "welcome": "The user is friendly.", "kind": "The user is friendly.", "goodbye": "The user is leaving.",
    "glad": "The user is well.", "sorry": "The user is not happy.", "talk": "The user wants to talk.", "why": "The user wants a joke.",
    "sun": "The user wants a poem.", "program": "This is about wingbeat.",
}  # fmt: skip
GREETINGS = [
    "Hello", "Hi", "Hey", "Hello!", "Hi there", "Good morning", "Good evening", "hello there", "Good day", "Hi!", "Hello, little model",
]  # fmt: skip
# Messages, possible answers, and words: a right answer has one of them.
TALK = [
    (GREETINGS, ["Hello! How can I help you?", "Hello! Shall I tell you a story?", "Hello! It is nice to meet you."], ["hello"]),
    (
        [
            "Who are you?", "What are you?", "Tell me about yourself", "Who is there?", "What is this?", "Introduce yourself",
            "What model are you?", "Are you ChatGPT?", "Are you an AI?",
        ],
        [WHO],
        ["wingbeat"],
    ),
    (["What is your name?", "What are you called?", "Do you have a name?", "Your name?"], ["I am the tiny model of wingbeat."], ["wingbeat"]),
    (
        [
            "What can you do?", "Help", "What do you know?", "What can I ask you?", "How can you help me?", "What are you good at?",
            "What shall we do?", "Can you help me?", "What should I ask?",
        ],
        [SKILLS],
        ["stories"],
    ),
    (
        [
            "Thank you", "Thanks", "Thanks a lot", "Thank you very much", "Great, thanks", "Thank you!", "That was nice", "Good answer",
            "Well done", "Nice story",
        ],
        ["You are welcome!", "You are welcome! I am happy to help."],
        ["welcome"],
    ),
    (
        ["Goodbye", "Bye", "See you", "Good night", "Bye bye", "See you tomorrow", "I have to go", "Goodbye!", "Bye!"],
        ["Goodbye! Come back soon.", "Goodbye! It was nice to talk with you."],
        ["goodbye"],
    ),
    (
        ["How are you?", "How are you today?", "How do you feel?", "Are you well?", "How is it going?"],
        ["I am well, thank you. And you?"],
        ["well"],
    ),
    (
        ["I am well", "I am fine", "I am happy", "I am good", "Fine, thanks", "Very well"],
        ["I am glad to hear that. What shall we talk about?"],
        ["glad"],
    ),
    (
        ["I am sad", "I feel sad", "I am not well", "I had a bad day", "I am tired", "I feel alone"],
        ["I am sorry to hear that. Shall I tell you a story?"],
        ["sorry"],
    ),
    (
        ["Who made you?", "Where do you come from?", "Who wrote you?", "How were you made?", "How were you trained?"],
        ["The people of wingbeat made me. I learned from small stories and questions."],
        ["wingbeat"],
    ),
    (["How old are you?", "When were you born?", "What is your age?"], ["I am new in the world. I do not count my days."], ["new"]),
    (
        ["Are you a human?", "Are you a person?", "Are you alive?", "Are you real?", "Are you a robot?"],
        ["No, I am a tiny language model. But I like a good talk."],
        ["model"],
    ),
    (
        ["How big are you?", "How many parameters do you have?", "Are you small?", "How large are you?"],
        ["I have two million parameters. That is very small for a model."],
        ["million"],
    ),
    (["Yes", "Yes, please", "No", "Ok", "Okay", "Good", "Sure", "Maybe"], ["Good. What shall we talk about?"], ["talk"]),
    (
        ["Tell me a joke", "Make me laugh", "Do you know a joke?", "A joke, please"],
        ["Why did the hen cross the road? She wanted to see the other side.", "What is black and white and read all over? A book."],
        ["why", "what"],
    ),
    (
        ["Sing a song", "Write a poem", "Tell me a poem", "A poem, please", "Write me a poem"],
        [
            "The sun is high, the day is long. The little owl sings a quiet song.",
            "Red is the rose and blue is the sea. I think of you, and you think of me.",
        ],
        ["sun", "rose"],
    ),
    (["What is your favourite colour?", "Which colour do you like?"], ["I like blue, like the sky."], ["blue"]),
    (
        ["What is wingbeat?", "Tell me about wingbeat", "What does wingbeat do?"],
        ["Wingbeat is a program that runs language models on your own computer."],
        ["program"],
    ),
    (
        ["I love you", "You are nice", "You are funny", "I like you", "You are clever"],
        ["That is kind of you. I like to talk with you, too."],
        ["kind"],
    ),
    (
        ["You are wrong", "That is wrong", "That is not right", "No, that is wrong"],
        ["I am sorry. I am small and make mistakes."],
        ["sorry"],
    ),
]

BIG_THINGS = [
    "the capital of France", "the president", "quantum physics", "the stock market", "a computer", "the internet", "the moon landing",
    "the Roman empire", "democracy", "a black hole", "the speed of light", "Python code", "Rust", "the theory of relativity", "football",
    "the latest news", "politics", "the meaning of life", "chess", "a jet engine", "electricity", "the human brain", "DNA", "Shakespeare",
    "the Bible", "the second world war", "a virus", "money", "a tax", "the law", "a car", "a train", "the United States", "China",
    "Germany", "the price of oil", "a phone", "cancer", "gravity", "an atom", "music theory", "the ocean floor", "Napoleon", "Einstein",
    "the pyramid", "bitcoin", "a neural network", "a database", "history", "philosophy", "God", "evolution", "the universe", "Mars",
    "a rocket", "the population of Spain", "a recipe for lasagna", "my homework", "a vitamin", "a guitar", "coffee", "algebra",
    "the weather on Venus",
]  # fmt: skip
LIMITS = [
    "I do not know that. I only know a small world: stories, sums, colours, animals and days.",
    "That is too big for me. I only know a small world: stories, sums, colours, animals and days.",
]


def small_talk(r: random.Random) -> Turn:
    """Says something friendly, or asks about the model."""
    messages, answers, words = r.choice(TALK)
    message = r.choice(messages)
    asks = message.endswith("?")
    if messages is not GREETINGS and words[0] not in NO_GREETING and r.random() < 0.3:
        comma, is_i = r.choice([", ", ". ", "! "]), message.startswith("I ")
        rest = message if comma != ", " or is_i else message[:1].lower() + message[1:]
        message = r.choice(GREETINGS[:9]).rstrip("!") + comma + rest
        answers = [answer if answer.startswith("Hello") else f"Hello! {answer}" for answer in answers]
    if r.random() < 0.3:
        message = message.lower()
    if r.random() < 0.25:
        message = message.rstrip("?!.") + r.choice(["", "?"] if asks else ["", ".", "!"])
    return Turn(message, r.choice(answers), THOUGHTS.get(words[0], "This is about me."), ("any", words))


def unknown(r: random.Random) -> Turn:
    """Asks about something that the small world does not have."""
    if r.random() < 0.6:
        x = r.choice(BIG_THINGS)
    else:
        x = r.choice(["", "the ", "a "]) + r.choice([str.title, str])(made_up(r))
    y = made_up(r)
    other = r.choice([thing for thing in BIG_THINGS if thing != x])
    question = r.choice([
        f"What is {x}?",
        f"Tell me about {x}.",
        f"How does {x} work?",
        f"Who invented {x}?",
        f"Explain {x}.",
        f"Why is {x} important?",
        f"What do you think about {x}?",
        f"Write an essay about {x}.",
        f"When did {x} begin?",
        f"Who was {y.title()}?",
        f"Where is {y.title()}?",
        f"What is the capital of {y.title()}?",
        f"How many people live in {y.title()}?",
        f"Translate {x} into French.",
        f"Can you explain {x} to me?",
        f"How do I learn {x}?",
        f"What is {r.randrange(21, 999)} times {r.randrange(3, 99)}?",
        f"What is {r.randrange(50, 999)} plus {r.randrange(50, 999)}?",
        f"Write a program that sorts {y}.",
        f"What is the difference between {x} and {other}?",
        x,
        f"{y} {made_up(r)} {made_up(r)}",
        f"How far is it to {y.title()}?",
    ])  # fmt: skip
    return Turn(question, r.choice(LIMITS), "I do not know this.", ("words", ["small world"]))
