"""The people, animals and things of the small world. All texts of this folder are our own words (CC0)."""

from __future__ import annotations

from typing import NamedTuple

GIRLS = "Ada Mia Nora Lily Rosa Emma Ruth Sara Anna Ella Clara Ida".split()
BOYS = "Tom Ben Sam Leo Max Finn Noah Jack Paul Oscar Hugo Tim".split()
SHE_PETS = "Hazel Bella Daisy Luna Poppy Olga Tilly Ruby".split()
HE_PETS = "Rusty Bruno Pip Felix Otto Teddy Milo Fred".split()


class Animal(NamedTuple):
    """Facts about an animal. `size` is a rank."""

    colour: str
    legs: int
    sound: str
    food: str
    home: str
    young: str
    size: int
    flies: bool


ANIMALS = {
    "fox": Animal("red", 4, "yelps", "mice", "a den", "a cub", 5, False),
    "dog": Animal("brown", 4, "barks", "bones", "a kennel", "a puppy", 5, False),
    "cat": Animal("grey", 4, "meows", "fish", "a house", "a kitten", 4, False),
    "rabbit": Animal("brown", 4, "squeaks", "carrots", "a burrow", "a bunny", 3, False),
    "bear": Animal("brown", 4, "growls", "honey", "a cave", "a cub", 9, False),
    "mouse": Animal("grey", 4, "squeaks", "cheese", "a hole", "a pup", 1, False),
    "duck": Animal("white", 2, "quacks", "bread", "a pond", "a duckling", 4, True),
    "hen": Animal("brown", 2, "clucks", "grain", "a coop", "a chick", 3, False),
    "frog": Animal("green", 4, "croaks", "flies", "a pond", "a tadpole", 1, False),
    "owl": Animal("brown", 2, "hoots", "mice", "a tree", "an owlet", 3, True),
    "goat": Animal("white", 4, "bleats", "grass", "a stable", "a kid", 6, False),
    "horse": Animal("brown", 4, "neighs", "hay", "a stable", "a foal", 9, False),
    "hedgehog": Animal("brown", 4, "snuffles", "beetles", "a nest", "a hoglet", 2, False),
    "squirrel": Animal("red", 4, "chatters", "nuts", "a tree", "a kit", 2, False),
    "sheep": Animal("white", 4, "bleats", "grass", "a fold", "a lamb", 6, False),
    "cow": Animal("black and white", 4, "moos", "grass", "a barn", "a calf", 9, False),
    "pig": Animal("pink", 4, "grunts", "corn", "a sty", "a piglet", 7, False),
    "lion": Animal("yellow", 4, "roars", "meat", "the savanna", "a cub", 8, False),
    "bee": Animal("yellow and black", 6, "buzzes", "nectar", "a hive", "a larva", 0, True),
    "crow": Animal("black", 2, "caws", "seeds", "a nest", "a chick", 3, True),
}
HEROES = [name for name in ANIMALS if name not in ("lion", "bee", "cow")]
# The heroes of stories that somebody asks for. The world knows nothing else about those after HEROES.
TALES = HEROES * 2 + (
    "dragon wolf bird elephant tiger turtle snail monkey penguin donkey deer king queen princess prince wizard witch giant robot knight sailor"
).split()
ROLES = ["the baker", "the miller", "the old fisherman", "the farmer", "the teacher", "the gardener", "the postman", "the shepherd"]

PLACES = [
    "in the forest", "in the village", "by the river", "on the hill", "on the beach", "on the farm", "in the garden", "at the market",
    "by the lake", "in the meadow", "at the castle", "by the old mill", "at the school", "in the town", "on a small island", "in the valley",
]  # fmt: skip
TIMES = [
    "One morning", "One sunny day", "One evening", "One cold day", "One windy day", "One day in spring", "One day in autumn",
    "On Monday", "On Tuesday", "On Wednesday", "On Thursday", "On Friday", "On Saturday", "On Sunday",
]  # fmt: skip
THINGS = "key kite ball hat bell book ring lamp cup basket scarf drum coin doll glove whistle".split()
PAINTS = "red blue green yellow white black brown golden silver orange".split()
SPOTS = [
    "under a bush", "behind a tree", "in the tall grass", "under the bridge", "on a big rock", "behind the barn", "in an old boot",
    "next to the well", "under a leaf", "in the hay", "under a bench", "behind the door",
]  # fmt: skip
FOODS = [
    "warm bread", "sweet apples", "hot soup", "a cake", "fresh berries", "pancakes", "bread and honey", "some cheese", "ripe plums",
    "an apple pie",
]  # fmt: skip

OPPOSITES = [
    pair.split("/")
    for pair in """
    hot/cold big/small up/down day/night long/short old/new fast/slow happy/sad open/closed full/empty wet/dry hard/soft light/dark high/low
    good/bad early/late near/far in/out left/right loud/quiet strong/weak rich/poor thick/thin clean/dirty first/last yes/no black/white
    begin/end push/pull front/back north/south east/west summer/winter friend/enemy win/lose buy/sell give/take sweet/sour wide/narrow
    true/false love/hate remember/forget over/under before/after inside/outside asleep/awake deep/shallow
    """.split()
]
COLOURS = {
    "the sky": "blue", "grass": "green", "snow": "white", "a lemon": "yellow", "a tomato": "red", "coal": "black", "the sun": "yellow",
    "a carrot": "orange", "blood": "red", "milk": "white", "a banana": "yellow", "a leaf": "green", "chocolate": "brown",
    "a cucumber": "green", "the sea": "blue", "an orange": "orange", "a strawberry": "red", "a plum": "purple", "the night": "black",
    "a cloud": "white", "a frog": "green", "a pig": "pink", "a crow": "black", "a fox": "red", "salt": "white", "a cherry": "red",
    "bread": "brown", "gold": "yellow", "a pea": "green", "a pumpkin": "orange", "a swan": "white", "an egg": "white", "a brick": "red",
    "a cork": "brown", "ice": "white", "honey": "golden", "a rose": "red", "a daisy": "white", "a blueberry": "blue", "a stone": "grey",
}  # fmt: skip
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
MONTHS = "January February March April May June July August September October November December".split()
NEXT_SEASON = {"spring": "summer", "summer": "autumn", "autumn": "winter", "winter": "spring"}
NUMBERS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen twenty"
).split()
GROUPS = {
    "fruit": "apple pear plum cherry banana lemon orange".split(),
    "vegetable": "carrot potato onion cucumber cabbage pumpkin pea".split(),
    "animal": "fox dog cat bear horse owl duck".split(),
    "colour": "red blue green yellow white black brown".split(),
    "tool": "hammer saw spade rake axe broom needle".split(),
    "drink": "water milk tea juice cocoa lemonade".split(),
    "thing to wear": "hat coat scarf glove boot sock shirt".split(),
    "flower": "rose daisy tulip lily violet".split(),
}
USES = {
    "a key": "open a door", "a lamp": "give light", "a spoon": "eat soup", "a knife": "cut bread", "a broom": "sweep the floor",
    "a hammer": "hit nails", "a boat": "cross water", "a bed": "sleep", "a book": "read", "a pen": "write", "a cup": "drink tea",
    "an umbrella": "stay dry in the rain", "a clock": "tell the time", "a bell": "call people", "a ladder": "climb up",
    "a bucket": "carry water", "a needle": "sew", "a spade": "dig", "a scarf": "keep warm", "a kite": "play in the wind",
}  # fmt: skip
CITIES = "Paris London Rome Berlin Oslo Madrid Lisbon Vienna Tokyo Cairo Dublin Athens Prague Lima Boston Delhi".split()
SKIES = "sunny cloudy rainy windy snowy foggy".split()
LIKES = ["apples", "stories", "cats", "dogs", "music", "books", "the sea", "snow", "cake", "trees", "horses", "the rain"]
