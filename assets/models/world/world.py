#!/usr/bin/env python3
"""A small world in plain English: stories, questions, sums, colours, days, records, tools. Training data for a tiny model.

All words were written for this project (CC0). The same seed gives the same texts.
    python3 world.py --seed 1 --n 1000             prints documents, separated by a line of `-----`
    python3 world.py --heldout 300                 prints held-out prompts with their checks as JSON lines
A document is a list of segments (text, learned): the model is trained on the segments with learned = True.
"""
import argparse, hashlib, json, random, re

# ---------------------------------------------------------------- the tables of the world
GIRLS = 'Ada Mia Nora Lily Rosa Emma Ruth Sara Anna Ella Clara Ida'.split()
BOYS = 'Tom Ben Sam Leo Max Finn Noah Jack Paul Oscar Hugo Tim'.split()
PET_HER = 'Hazel Bella Daisy Luna Poppy Olga Tilly Ruby'.split()
PET_HIM = 'Rusty Bruno Pip Felix Otto Teddy Milo Fred'.split()
# animal: colour, legs, sound, food, home, young, size (rank), can fly
ANIMALS = {
    'fox': ('red', 4, 'yelps', 'mice', 'a den', 'a cub', 5, 0), 'dog': ('brown', 4, 'barks', 'bones', 'a kennel', 'a puppy', 5, 0),
    'cat': ('grey', 4, 'meows', 'fish', 'a house', 'a kitten', 4, 0), 'rabbit': ('brown', 4, 'squeaks', 'carrots', 'a burrow', 'a bunny', 3, 0),
    'bear': ('brown', 4, 'growls', 'honey', 'a cave', 'a cub', 9, 0), 'mouse': ('grey', 4, 'squeaks', 'cheese', 'a hole', 'a pup', 1, 0),
    'duck': ('white', 2, 'quacks', 'bread', 'a pond', 'a duckling', 4, 1), 'hen': ('brown', 2, 'clucks', 'grain', 'a coop', 'a chick', 3, 0),
    'frog': ('green', 4, 'croaks', 'flies', 'a pond', 'a tadpole', 1, 0), 'owl': ('brown', 2, 'hoots', 'mice', 'a tree', 'an owlet', 3, 1),
    'goat': ('white', 4, 'bleats', 'grass', 'a stable', 'a kid', 6, 0), 'horse': ('brown', 4, 'neighs', 'hay', 'a stable', 'a foal', 9, 0),
    'hedgehog': ('brown', 4, 'snuffles', 'beetles', 'a nest', 'a hoglet', 2, 0), 'squirrel': ('red', 4, 'chatters', 'nuts', 'a tree', 'a kit', 2, 0),
    'sheep': ('white', 4, 'bleats', 'grass', 'a fold', 'a lamb', 6, 0), 'cow': ('black and white', 4, 'moos', 'grass', 'a barn', 'a calf', 9, 0),
    'pig': ('pink', 4, 'grunts', 'corn', 'a sty', 'a piglet', 7, 0), 'lion': ('yellow', 4, 'roars', 'meat', 'the savanna', 'a cub', 8, 0),
    'bee': ('yellow and black', 6, 'buzzes', 'nectar', 'a hive', 'a larva', 0, 1), 'crow': ('black', 2, 'caws', 'seeds', 'a nest', 'a chick', 3, 1),
}
HEROES = [a for a in ANIMALS if a not in ('lion', 'bee', 'cow')]
TALES = HEROES * 2 + 'dragon wolf bird elephant tiger turtle snail monkey penguin donkey deer king queen princess prince wizard witch giant robot knight sailor'.split()
ROLES = ['the baker', 'the miller', 'the old fisherman', 'the farmer', 'the teacher', 'the gardener', 'the postman', 'the shepherd']
PLACES = ['in the forest', 'in the village', 'by the river', 'on the hill', 'on the beach', 'on the farm', 'in the garden', 'at the market', 'by the lake',
          'in the meadow', 'at the castle', 'by the old mill', 'at the school', 'in the town', 'on a small island', 'in the valley']
TIMES = ['One morning', 'One sunny day', 'One evening', 'One cold day', 'One windy day', 'One day in spring', 'One day in autumn', 'On Monday', 'On Tuesday',
         'On Wednesday', 'On Thursday', 'On Friday', 'On Saturday', 'On Sunday']
THINGS = ['key', 'kite', 'ball', 'hat', 'bell', 'book', 'ring', 'lamp', 'cup', 'basket', 'scarf', 'drum', 'coin', 'doll', 'glove', 'whistle']
PAINTS = ['red', 'blue', 'green', 'yellow', 'white', 'black', 'brown', 'golden', 'silver', 'orange']
SPOTS = ['under a bush', 'behind a tree', 'in the tall grass', 'under the bridge', 'on a big rock', 'behind the barn', 'in an old boot', 'next to the well',
         'under a leaf', 'in the hay', 'under a bench', 'behind the door']
FOODS = ['warm bread', 'sweet apples', 'hot soup', 'a cake', 'fresh berries', 'pancakes', 'bread and honey', 'some cheese', 'ripe plums', 'an apple pie']
OPPOSITES = [p.split('/') for p in '''hot/cold big/small up/down day/night long/short old/new fast/slow happy/sad open/closed full/empty wet/dry hard/soft light/dark
    high/low good/bad early/late near/far in/out left/right loud/quiet strong/weak rich/poor thick/thin heavy/light_in_weight clean/dirty first/last yes/no
    black/white begin/end push/pull front/back north/south east/west summer/winter friend/enemy win/lose buy/sell give/take sweet/sour wide/narrow true/false
    young/old_in_years love/hate remember/forget over/under before/after inside/outside asleep/awake tall/short_in_height deep/shallow'''.split() for p in [p] if '_' not in p]
COLOURS = {'the sky': 'blue', 'grass': 'green', 'snow': 'white', 'a lemon': 'yellow', 'a tomato': 'red', 'coal': 'black', 'the sun': 'yellow', 'a carrot': 'orange',
           'blood': 'red', 'milk': 'white', 'a banana': 'yellow', 'a leaf': 'green', 'chocolate': 'brown', 'a cucumber': 'green', 'the sea': 'blue', 'an orange': 'orange',
           'a strawberry': 'red', 'a plum': 'purple', 'the night': 'black', 'a cloud': 'white', 'a frog': 'green', 'a pig': 'pink', 'a crow': 'black', 'a fox': 'red',
           'salt': 'white', 'a cherry': 'red', 'bread': 'brown', 'gold': 'yellow', 'a pea': 'green', 'a pumpkin': 'orange', 'a swan': 'white', 'an egg': 'white',
           'a brick': 'red', 'a cork': 'brown', 'ice': 'white', 'honey': 'golden', 'a rose': 'red', 'a daisy': 'white', 'a blueberry': 'blue', 'a stone': 'grey'}
DAYS = 'Monday Tuesday Wednesday Thursday Friday Saturday Sunday'.split()
MONTHS = 'January February March April May June July August September October November December'.split()
SEASONS = {'spring': 'summer', 'summer': 'autumn', 'autumn': 'winter', 'winter': 'spring'}
NUMBERS = ('zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen twenty').split()
GROUPS = {'fruit': 'apple pear plum cherry banana lemon orange'.split(), 'vegetable': 'carrot potato onion cucumber cabbage pumpkin pea'.split(),
          'animal': 'fox dog cat bear horse owl duck'.split(), 'colour': 'red blue green yellow white black brown'.split(),
          'tool': 'hammer saw spade rake axe broom needle'.split(), 'drink': 'water milk tea juice cocoa lemonade'.split(),
          'thing to wear': 'hat coat scarf glove boot sock shirt'.split(), 'flower': 'rose daisy tulip lily violet'.split()}
USES = {'a key': 'open a door', 'a lamp': 'give light', 'a spoon': 'eat soup', 'a knife': 'cut bread', 'a broom': 'sweep the floor', 'a hammer': 'hit nails', 'a boat': 'cross water',
        'a bed': 'sleep', 'a book': 'read', 'a pen': 'write', 'a cup': 'drink tea', 'an umbrella': 'stay dry in the rain', 'a clock': 'tell the time', 'a bell': 'call people',
        'a ladder': 'climb up', 'a bucket': 'carry water', 'a needle': 'sew', 'a spade': 'dig', 'a scarf': 'keep warm', 'a kite': 'play in the wind'}
CITIES = 'Paris London Rome Berlin Oslo Madrid Lisbon Vienna Tokyo Cairo Dublin Athens Prague Lima Boston Delhi'.split()
SKIES = ['sunny', 'cloudy', 'rainy', 'windy', 'snowy', 'foggy']
LIKES = ['apples', 'stories', 'cats', 'dogs', 'music', 'books', 'the sea', 'snow', 'cake', 'trees', 'horses', 'the rain']


def held(text):
    """Whether a prompt is held out of the training."""
    return hashlib.sha256(text.lower().rstrip('?!. ').encode()).digest()[0] < 10


def a_name(r):
    return r.choice(GIRLS + BOYS) if r.random() < .75 else fancy(r).title()


def an(noun):
    return ('an ' if noun[0] in 'aeiou' else 'a ') + noun


def cap(text):
    return text[:1].upper() + text[1:]


class Who:
    """A person, a named animal, or somebody with a trade."""
    def __init__(s, r, animal=None, roles=False, name=None):
        if roles and r.random() < .3:
            s.name, s.kind, s.he = r.choice(ROLES), '', 'he'
        elif animal or r.random() < .5:
            s.kind = animal or r.choice(HEROES if r.random() < .8 else TALES)
            s.name, s.he = r.choice([(n, 'she') for n in PET_HER] + [(n, 'he') for n in PET_HIM])
        else:
            s.name, s.he, s.kind = r.choice([(n, 'she', 'girl') for n in GIRLS] + [(n, 'he', 'boy') for n in BOYS])
        if name:
            girl = name in GIRLS or name not in BOYS and r.random() < .5; s.name, s.he, s.kind = name, 'she' if girl else 'he', 'girl' if girl else 'boy'
        s.his, s.him, s.He = {'he': ('his', 'him', 'He'), 'she': ('her', 'her', 'She')}[s.he]
        s.intro = f'{an(s.kind)} named {s.name}' if s.kind else s.name
        s.Name = cap(s.name)


# ---------------------------------------------------------------- stories
def story(r, animal=None, name=None, place=None, thing=None):
    """-> dict: text, hero, place, facts [(questions, answer, words that a right answer has)]"""
    h = Who(r, animal, name=name); f = Who(r, roles=True)
    while f.name == h.name or f.kind == h.kind: f = Who(r, roles=True)
    place = place or r.choice(PLACES); when = r.choice(TIMES); col = r.choice(PAINTS); th = thing or r.choice(THINGS); food = r.choice(FOODS); spot = r.choice(SPOTS)
    p = r.choice
    start = p([f'Once upon a time there was {h.intro}. {h.He} lived {place}.', f'There was once {h.intro} who lived {place}.', f'{cap(h.intro)} lived {place}.',
               f'Once upon a time, {h.intro} lived {place}.', f'{h.Name} was {an(h.kind)} who lived {place}.', f'Once there was {h.intro}. {cap(h.his)} home was {place}.',
               f'Long ago, {h.intro} lived {place}.', f'There was {h.intro}, and {h.he} lived {place}.', f'In the beginning of this story, {h.intro} lived {place}.', f'In the beginning there was only a small house {place}. {cap(h.intro)} lived in it.', f'The {h.kind} {h.name} lived {place}.'])
    facts = [(['Who is the story about?', 'Who is it about?'], f'It is about {h.name}, {an(h.kind)}.', [h.name]),
             (['Where did it happen?', 'Where is the story?', f'Where did {h.name} live?'], f'{h.Name} lived {place}.', [place.split()[-1]]),
             (['When did it happen?', 'What day or time was it?'], f'It happened {when[0].lower() + when[1:]}.', [when.split()[-1]])]
    def ask(qs, a, *words): facts.append(([qs] if isinstance(qs, str) else qs, a, list(words)))
    plot = r.randrange(10)
    if plot == 0:
        wrong = f'{h.name} lost {h.his} {col} {th}'
        body = [f'{when}, {wrong}.', p([f'{h.He} looked everywhere, but could not find it.', f'{h.He} looked and looked, and was very sad.', f'{h.He} looked in the house and in the yard, but it was not there.']),
                f'Then {f.intro} came by and asked, "What is wrong?"', f'"I lost my {th}," said {h.name}.', f'They looked together, and {f.name} found the {th} {spot}.']
        end = p([f'{h.name} was happy again, and they ate {food}', f'{h.name} thanked {f.name}, and they ate {food}'])
        ask([f'What did {h.name} lose?', 'What was lost?'], f'{h.name} lost {an(col)} {th}.', col, th); ask([f'What colour was the {th}?'], f'The {th} was {col}.', col)
        ask([f'Who found the {th}?', 'Who found it?'], f'{f.Name} found it.', f.name); ask([f'Where was the {th}?', 'Where did they find it?'], f'It was {spot}.', spot.split()[-1])
    elif plot == 1:
        th, part, tool = p([('kite', 'string', 'a rope'), ('cart', 'wheel', 'a hammer'), ('boat', 'sail', 'a needle'), ('chair', 'leg', 'some glue'), ('bucket', 'handle', 'a nail'), ('clock', 'spring', 'some oil'), ('table', 'leg', 'a board')])
        wrong = f'the {part} of {h.his} {th} broke'
        body = [f'{h.Name} had {an(col)} {th}.', f'{when}, {wrong}.', p([f'"Oh no," said {h.name}, "what shall I do?"', f'{h.name} sat down and cried.', f'{h.name} tried to mend it alone, but it was too hard.']),
                f'{f.Name} heard it and came with {tool}.' if not f.kind else f'Then {f.intro} came with {tool}.', f'Together they mended the {th}.']
        end = p([f'the {th} was as good as new, and they ate {food}', f'{h.name} could use the {th} again, and they ate {food}'])
        ask(['What broke?'], f'The {part} of the {th} broke.', part, th); ask([f'What colour was the {th}?'], f'The {th} was {col}.', col)
        ask([f'What did {f.name} bring?'], f'{f.Name} came with {tool}.', tool.split()[-1]); ask(['Who helped?', f'Who helped {h.name}?'], f'{f.Name} helped {h.name}.', f.name)
    elif plot == 2:
        baby = p([a for a in ('lamb', 'kitten', 'puppy', 'duckling', 'piglet', 'chick')]); trap, tool = p([('a deep well', 'a rope'), ('a high tree', 'a ladder'), ('the mud', 'a board'), ('a dark hole', 'a basket'), ('the cold water', 'a boat')])
        wrong = f'a little {baby} was stuck in {trap}'
        body = [f'{when}, {h.name} heard a cry.', f'{cap(wrong)}!', f'{h.name} ran to {f.name} and called, "Please help!"' if not f.kind else f'{h.name} ran to {h.his} friend {f.name}{"" if f.kind in ("boy", "girl") else " the " + f.kind} and called, "Please help!"', f'{f.Name} brought {tool}, and they pulled the {baby} out.']
        end = p([f'the {baby} was safe, and they all ate {food}', f'the {baby} went home to its mother, and the two friends ate {food}'])
        ask(['Who was stuck?', 'What animal was stuck?'], f'A little {baby} was stuck.', baby); ask([f'Where was the {baby}?', f'Where was the {baby} stuck?'], f'The {baby} was stuck in {trap}.', trap.split()[-1])
        ask([f'What did {f.name} bring?'], f'{f.Name} brought {tool}.', tool.split()[-1]); ask(['Who helped?', f'Who helped {h.name}?'], f'{f.Name} helped {h.name}.', f.name)
    elif plot == 3:
        shelter = p(['an old barn', 'a small cave', 'a warm hut', 'the mill', 'a hollow tree']); storm = p(['a storm', 'heavy rain', 'deep snow', 'thick fog'])
        wrong = f'{storm} came and {h.name} could not go home'
        body = [f'{when}, {h.name} went for a walk.', f'Then {wrong}.', f'{h.He} saw {shelter} and went in.', f'There sat {f.intro}.', f'"You are welcome," said {f.name}, and gave {h.him} {food}.']
        end = p([f'the sun came out and {h.name} went home with a new friend', f'the sky was blue again, and {h.name} went home happy'])
        ask(['What was the weather like?', 'What came?'], f'{cap(storm)} came.', storm.split()[-1]); ask([f'Where did {h.name} wait?', f'Where did {h.name} go in?'], f'{h.name} went into {shelter}.', shelter.split()[-1])
        ask([f'Who was there?', f'Who gave {h.name} food?'], f'{f.Name} was there.', f.name)
    elif plot == 4:
        wrong = f'{h.name} was hungry and had no food'
        body = [f'{when}, {wrong}.', f'{h.He} asked at the first house, but nobody was home.', f'At the second house lived {f.intro}.', f'"Come in," said {f.name}, "I have {food}. We can share."', f'They sat down at the table and ate {food}.']
        end = p([f'{h.name} was full and happy, and brought {f.name} {an(col)} {th} as a gift', f'they were good friends, and {h.name} gave {f.name} {an(col)} {th}'])
        ask(['What did they eat?', f'What did {f.name} have?'], f'They ate {food}.', food.split()[-1]); ask(['Who shared the food?', f'Who helped {h.name}?'], f'{f.Name} helped {h.name}.', f.name)
        ask([f'What did {h.name} give?', f'What was the gift?'], f'{h.name} gave {f.name} {an(col)} {th}.', col, th)
    elif plot == 5:
        sign = p(['the river', 'the stars', 'the sound of the bells', 'the smoke of a fire', 'the old road', 'the light of a lamp'])
        wrong = f'{h.name} lost {h.his} way'
        body = [f'{when}, {h.name} went to look for {p(["berries", "nuts", "flowers", "mushrooms", "wood"])}.', f'{h.He} went too far, and {wrong}.', f'"Do not be afraid," said {f.intro}.' if f.kind else f'"Do not be afraid," said {f.name}.',
                f'"We only have to follow {sign}."', f'They followed {sign} all the way.']
        end = p([f'they came home before dark and ate {food}', f'{h.name} saw {h.his} own house again, and they ate {food}'])
        ask(['What did they follow?'], f'They followed {sign}.', sign.split()[-1]); ask(['Who helped?', f'Who helped {h.name}?'], f'{f.Name} helped {h.name}.', f.name); ask(['What did they eat?'], f'They ate {food}.', food.split()[-1])
    elif plot == 6:
        fear = p(['the dark', 'the deep water', 'the thunder', 'the high bridge', 'big dogs']); tool = p([f'{an(col)} lamp', f'{an(col)} blanket', 'a song', 'a kind word'])
        wrong = f'{h.name} was afraid of {fear}'
        body = [p([f'{h.Name} was brave, but', f'{h.Name} could do many things, but']) + f' {wrong}.'.replace(h.name, h.he, 1), f'{when}, {f.intro} came to see {h.him}.', f'"I was afraid of {fear} too," said {f.name}. "Take {tool}, and I will stay with you."', f'They tried it once, and then again.']
        end = p([f'{h.name} was not afraid any more, and they laughed and ate {food}', f'{h.name} could do it alone, and {f.name} was proud'])
        ask([f'What was {h.name} afraid of?'], f'{h.name} was afraid of {fear}.', fear.split()[-1]); ask([f'What did {f.name} give {h.name}?', f'What did {h.name} get?'], f'{f.Name} gave {h.name} {tool}.', tool.split()[-1]); ask(['Who helped?', f'Who helped {h.name}?'], f'{f.Name} helped {h.name}.', f.name)
    elif plot == 7:
        plant = p(['a bean', 'a sunflower', 'a pumpkin', 'an apple tree', 'a rose', 'a carrot']); n = r.randrange(3, 13); need = p(['water', 'sun', 'good earth'])
        wrong = f'nothing grew for {n} days'
        body = [f'{when}, {h.name} planted {plant}.', f'But {wrong}.', f'{h.name} asked {f.intro}, "What did I do wrong?"', f'"It needs {need}," said {f.name}.', f'So {h.he} gave it {need} every day.']
        end = p([f'the plant was big and green, and they ate {food} beside it', f'it grew taller than {h.name}, and everybody came to see it'])
        ask([f'What did {h.name} plant?'], f'{h.name} planted {plant}.', plant.split()[-1]); ask(['What did it need?', 'What did the plant need?'], f'It needed {need}.', need.split()[-1]); ask(['How many days did nothing grow?', 'How long did nothing grow?'], f'Nothing grew for {n} days.', str(n))
        ask(['Who helped?', f'Who knew what to do?'], f'{f.Name} helped {h.name}.', f.name)
    elif plot == 8:
        goal = p(['the big oak', 'the bridge', 'the church', 'the red gate', 'the lake']); why = p(['fell over a stone', 'lost a shoe', 'ran the wrong way', 'stopped to rest'])
        wrong = f'{f.name} {why}'
        body = [f'{when}, {h.name} and {f.intro} had a race to {goal}.', f'They ran as fast as they could, but {wrong}.', p([f'{h.Name} stopped and came back to help.', f'{h.Name} turned around and gave {f.him} a hand.']), f'They came to {goal} side by side.']
        end = p([f'nobody lost, and they ate {food}', f'both had won, and they ate {food}'])
        ask([f'Where did they run?', 'Where did the race go?'], f'They ran to {goal}.', goal.split()[-1]); ask([f'Why did {f.name} stop?', f'What happened to {f.name}?'], f'{f.Name} {why}.', why.split()[-1]); ask(['Who won?', 'Who won the race?'], 'Nobody lost. They came side by side.', 'side'); ask([f'Who helped {f.name}?'], f'{h.name} helped {f.name}.', h.name)
    else:
        noise = p(['a knock', 'a scratch', 'a soft cry', 'a loud bang']); cause = p(['a branch in the wind', 'a hungry cat', 'a little mouse', 'an open window', 'a lost puppy'])
        wrong = f'there was {noise} at night'
        body = [f'{when}, {h.name} went to bed, but {wrong}.', f'"Who is there?" said {h.name}, but nobody spoke.', f'{h.He} called {f.intro}.', f'{f.Name} took {an(col)} lamp and went to look.', f'It was only {cause}!']
        end = p([f'they laughed, ate {food} and slept well', f'{h.name} was not afraid any more and slept well'])
        ask(['What was the noise?', 'What was it?'], f'It was only {cause}.', cause.split()[-1]); ask([f'What did {f.name} take?'], f'{f.Name} took {an(col)} lamp.', col, 'lamp'); ask([f'Who did {h.name} call?', 'Who helped?'], f'{h.name} called {f.name}.', f.name)
    wrong, end = cap(wrong), p(['In the end', 'At last', 'So in the end']) + ', ' + end + '.'
    facts += [(['What went wrong?', 'What was the problem?'], wrong + '.', [w for w in re.findall(r'\w+', wrong)[-1:]]), (['How did it end?', 'How did the story end?'], end, re.findall(r'\w+', end)[-1:])]
    text = start + ' ' + ' '.join(body) + ' ' + end
    return {'text': text, 'hero': h, 'friend': f, 'place': place, 'facts': facts, 'wrong': wrong, 'when': when}


def a_story(r, want_held=False, **given):
    while True:
        s = story(r, **given)
        if held(s['text']) == want_held: return s


# ---------------------------------------------------------------- single questions: (question, answer, thought, check)
# A check is ('words', [...]), ('number', n), ('list', [...]), ('json', value) or ('story', [...]).
def q_sum(r):
    k = r.random()
    if k < .08:
        a = r.randrange(0, 11); b = r.randrange(0, 20 // max(a, 2) + 1); n = a * b
        return r.choice([f'What is {a} times {b}?', f'How much is {a} times {b}?', f'What is {a} * {b}?', f'{a} times {b}']), f'{a} times {b} is {n}.', f'I take {a} for {b} times. That is {n}.', ('number', n)
    if k < .65:
        a, b = r.randrange(21), r.randrange(21)
        while a + b > 20 and r.random() < .8: a, b = r.randrange(21), r.randrange(21)
        n, op, sign, line = a + b, 'plus', '+', [a + i for i in range(1, b + 1)]
    else:
        a = r.randrange(21); b = r.randrange(a + 1); n, op, sign, line = a - b, 'minus', '-', [a - i for i in range(1, b + 1)]
    A, B = (NUMBERS[x] if r.random() < .12 else str(x) for x in (a, b)); things = r.choice(['apples', 'nuts', 'eggs', 'coins', 'books', 'plums', 'ducks', 'bells'])
    name = r.choice(GIRLS + BOYS); he = 'she' if name in GIRLS else 'he'
    q, ans = r.choice([(f'What is {A} {op} {B}?', f'{A} {op} {B} is {n}.'), (f'How much is {A} {op} {B}?', f'{A} {op} {B} is {n}.'), (f'{a} {sign} {b} = ?', f'{a} {sign} {b} = {n}'), (f'{a} {sign} {b}', f'{a} {sign} {b} = {n}'),
                       (f'What is {a} {sign} {b}?', f'{a} {sign} {b} = {n}'), (f'{a}{sign}{b}', f'{a} {sign} {b} = {n}'), (f'What is {a}{sign}{b}?', f'{a} {sign} {b} = {n}'), (f'{cap(A)} {op} {B}?', f'{A} {op} {B} is {n}.'), (f'Can you tell me what {A} {op} {B} is?', f'{A} {op} {B} is {n}.'),
                       (f'{name} has {a} {things} and gets {b} more. How many {things} does {he} have?' if op == 'plus' else f'{name} has {a} {things} and gives away {b}. How many {things} are left?', f'{name} has {n} {things}.')])
    steps = ', '.join(map(str, line))
    return q, cap(ans), (f'I start at {a} and count {b} {"up" if op == "plus" else "down"}: {steps}. That is {n}.' if 0 < b < 8 else f'{a} {sign} {b} is {n}.'), ('number', n)


def q_opposite(r):
    pair = r.choice(OPPOSITES); a, b = pair if r.random() < .5 else pair[::-1]
    q = r.choice([f'What is the opposite of {a}?', f'Opposite of {a}?', f'the opposite of {a}', f'Tell me the opposite of "{a}".', f'Which word is the opposite of {a}?', f'What is not {a}?', f'Do you know the opposite of {a}?'])
    return q, f'The opposite of {a} is {b}.', f'{cap(a)} and {b} are opposites.', ('words', [b])


def q_colour(r):
    x, c = r.choice(list(COLOURS.items())); k = r.random()
    if k < .2:
        c2 = r.choice(list(set(COLOURS.values()) - {c}) if r.random() < .5 else [c])
        return f'Is {x} {c2}?', f'Yes, {x} is {c}.' if c == c2 else f'No, {x} is {c}.', f'{cap(x)} is {c}.', ('words', ['yes' if c == c2 else 'no', c])
    q = r.choice([f'What colour is {x}?', f'What color is {x}?', f'Which colour is {x}?', f'Tell me the colour of {x}.', f'What colour does {x} have?'])
    return q, f'{cap(x)} is {c}.', f'I know {x}. It is {c}.', ('words', [c])


def q_day(r):
    k = r.randrange(9); i = r.randrange(7); d, nxt, prev = DAYS[i], DAYS[(i + 1) % 7], DAYS[i - 1]; m = r.randrange(12)
    if k == 0: return f'Today is {d}. What day is tomorrow?' if r.random() < .5 else f'If today is {d}, what day is tomorrow?', f'Tomorrow is {nxt}.', f'After {d} comes {nxt}.', ('words', [nxt])
    if k == 1: return f'Today is {d}. What day was yesterday?' if r.random() < .5 else f'If today is {d}, what day was yesterday?', f'Yesterday was {prev}.', f'Before {d} comes {prev}.', ('words', [prev])
    if k == 2: return r.choice([f'Which day comes after {d}?', f'What day is after {d}?', f'What comes after {d}?']), f'{nxt} comes after {d}.', f'The days go {d}, {nxt}.', ('words', [nxt])
    if k == 3: return r.choice([f'Which day comes before {d}?', f'What day is before {d}?', f'What comes before {d}?']), f'{prev} comes before {d}.', f'The days go {prev}, {d}.', ('words', [prev])
    if k == 4: return r.choice([f'Which month comes after {MONTHS[m]}?', f'What month is after {MONTHS[m]}?', f'What comes after {MONTHS[m]}?']), f'{MONTHS[(m + 1) % 12]} comes after {MONTHS[m]}.', f'The months go {MONTHS[m]}, {MONTHS[(m + 1) % 12]}.', ('words', [MONTHS[(m + 1) % 12]])
    if k == 5: return r.choice([f'Which month comes before {MONTHS[m]}?', f'What month is before {MONTHS[m]}?']), f'{MONTHS[m - 1]} comes before {MONTHS[m]}.', f'The months go {MONTHS[m - 1]}, {MONTHS[m]}.', ('words', [MONTHS[m - 1]])
    if k == 6: s = r.choice(list(SEASONS)); return r.choice([f'Which season comes after {s}?', f'What comes after {s}?', f'What season is after {s}?']), f'{cap(SEASONS[s])} comes after {s}.', f'After {s} comes {SEASONS[s]}.', ('words', [SEASONS[s]])
    if k == 7: return r.choice([(r.choice(['How many days are in a week?', 'How many days has a week?', 'How many days does a week have?']), 'A week has 7 days.', 'Monday to Sunday are 7 days.', ('number', 7)), (r.choice(['How many months are in a year?', 'How many months has a year?', 'How many months does a year have?']), 'A year has 12 months.', 'January to December are 12 months.', ('number', 12)),
                                (r.choice(['How many seasons are there?', 'How many seasons has a year?']), 'There are 4 seasons.', 'Spring, summer, autumn, winter.', ('number', 4)), (r.choice(['What is the first day of the week?', 'Which day is the first of the week?']), 'Monday is the first day of the week.', 'The week begins with Monday.', ('words', ['Monday'])),
                                (r.choice(['What is the last day of the week?', 'Which day is the last of the week?']), 'Sunday is the last day of the week.', 'The week ends with Sunday.', ('words', ['Sunday']))])
    return q_list(r)


def q_list(r):
    q, items = r.choice([('Tell me the days of the week.', DAYS), ('Name the days of the week.', DAYS), ('What are the days of the week?', DAYS), ('Tell me the months.', MONTHS), ('Name the months of the year.', MONTHS), ('Name the seasons.', list(SEASONS))])
    return q, cap(', '.join(items)) + '.', f'There are {len(items)} of them.', ('list', items)


def q_count(r):
    k = r.randrange(5); a = r.randrange(0, 16); b = a + r.randrange(2, 11); b = min(b, 20); up = list(map(str, range(a, b + 1)))
    if k == 0: return r.choice([f'Count from {a} to {b}.', f'Count from {a} to {b}', f'Please count from {a} to {b}.', f'Can you count from {a} to {b}?']), ', '.join(up) + '.', f'I begin at {a} and stop at {b}.', ('list', up)
    if k == 1: return r.choice([f'Count down from {b} to {a}.', f'Count backwards from {b} to {a}.']), ', '.join(up[::-1]) + '.', f'I begin at {b} and go down to {a}.', ('list', up[::-1])
    n = r.randrange(1, 20)
    if k == 2: return r.choice([f'What number comes after {n}?', f'Which number is after {n}?', f'What comes after {n}?']), f'{n + 1} comes after {n}.', f'I count: {n}, {n + 1}.', ('words', [str(n + 1)])
    if k == 3: return r.choice([f'What number comes before {n}?', f'Which number is before {n}?', f'What comes before {n}?']), f'{n - 1} comes before {n}.', f'I count: {n - 1}, {n}.', ('words', [str(n - 1)])
    m = r.choice([x for x in range(21) if x != n])
    return r.choice([f'Which is more, {n} or {m}?', f'Which number is bigger, {n} or {m}?']), f'{max(n, m)} is more than {min(n, m)}.', f'{min(n, m)} comes before {max(n, m)}.', ('first', str(max(n, m)))


def q_animal(r):
    a = r.choice(list(ANIMALS)); c, legs, sound, food, home, young, size, flies = ANIMALS[a]; A = an(a); k = r.randrange(9)
    if k == 0: return r.choice([f'What sound does {A} make?', f'What does {A} say?', f'Which sound does {A} make?']), f'{cap(A)} {sound}.', f'I think of {A}. It {sound}.', ('words', [sound])
    if k == 1: return r.choice([f'What does {A} eat?', f'What do you feed {A}?', f'Which food does {A} like?']), f'{cap(A)} eats {food}.', f'I think of {A}. It eats {food}.', ('words', [food])
    if k == 2: return r.choice([f'Where does {A} live?', f'What is the home of {A}?', f'Where does {A} sleep?']), f'{cap(A)} lives in {home}.', f'The home of {A} is {home}.', ('words', [home.split()[-1]])
    if k == 3: return r.choice([f'How many legs does {A} have?', f'How many legs has {A}?', f'Count the legs of {A}.']), f'{cap(A)} has {legs} legs.', f'{cap(A)} walks on {legs} legs.', ('number', legs)
    if k == 4: return r.choice([f'What do you call a young {a}?', f'What is a young {a} called?', f'What is a baby {a}?']), f'A young {a} is {young}.', f'I think of a small {a}.', ('words', [young.split()[-1]])
    if k == 5: return r.choice([f'Can {A} fly?', f'Does {A} fly?', f'Is {A} able to fly?']), f'Yes, {A} can fly.' if flies else f'No, {A} cannot fly.', f'I think of {A} and its wings.' if flies else f'I think of {A} and its legs.', ('words', ['yes' if flies else 'no'])
    if k == 6:
        b = r.choice([x for x in ANIMALS if ANIMALS[x][6] != size]); big, small = (a, b) if size > ANIMALS[b][6] else (b, a)
        return (f'Which is bigger, {A} or {an(b)}?', f'{cap(an(big))} is bigger than {an(small)}.', f'{cap(an(small))} is small beside {an(big)}.', ('first', big)) if r.random() < .6 else (f'Which is smaller, {A} or {an(b)}?', f'{cap(an(small))} is smaller than {an(big)}.', f'{cap(an(big))} is big beside {an(small)}.', ('first', small))
    if k == 7: return r.choice([f'What is {A}?', f'Tell me about {A}.', f'{a}', f'{cap(a)}', f'What do you know about {A}?']), f'{cap(A)} is an animal. It is {c}, has {legs} legs, lives in {home} and eats {food}.', f'I know {A} well.', ('words', ['animal', c, str(legs), food])
    return r.choice([f'What colour is {A}?', f'Which colour does {A} have?']), f'{cap(A)} is {c}.', f'I think of {A}. It is {c}.', ('words', [c])


def q_group(r):
    g = r.choice(list(GROUPS)); items = GROUPS[g]; x = r.choice(items); k = r.randrange(4)
    if k == 0:
        n = r.randrange(2, 5); words = r.sample(items, n); many = {'thing to wear': 'things to wear'}.get(g, g + 's')
        return r.choice([f'Name {NUMBERS[n]} {many}.', f'Tell me {NUMBERS[n]} {many}.', f'Give me {n} {many}.']), cap(', '.join(words[:-1]) + ' and ' + words[-1]) + '.', f'I choose {n} of them.', ('members', n, items)
    if k == 1:
        g2 = g if r.random() < .5 else r.choice([o for o in GROUPS if x not in GROUPS[o]]); word = x if g == 'colour' else an(x)
        return f'Is {word} {an(g2)}?', f'Yes, {word} is {an(g)}.' if g2 == g else f'No, {word} is {an(g)}.', f'{cap(word)} is {an(g)}.', ('words', ['yes' if g2 == g else 'no', g])
    x2, use = r.choice(list(USES.items()))
    if k == 2: return r.choice([f'What is {x2} for?', f'What do you do with {x2}?', f'Why do people have {x2}?']), f'You use {x2} to {use}.', f'I think of {x2}.', ('words', [use.split()[-1]])
    return r.choice([f'What do you need to {use}?', f'What can I use to {use}?']), f'You need {x2}.', f'People {use} with {x2}.', ('words', [x2.split()[-1]])


def record(r, kind=None):
    """A record as JSON, with the question that asks for it and a list of fields."""
    k = r.randrange(5) if kind is None else kind
    if k == 0:
        a = r.choice(list(ANIMALS)); c, legs, sound, food, home, *_ = ANIMALS[a]; v = {'name': a, 'colour': c, 'legs': legs, 'food': food}
        q = r.choice([f'Give me a record of {an(a)} as JSON.', f'Write a record of {an(a)} in JSON.', f'Describe {an(a)} as JSON.', f'{cap(a)} as JSON, please.', f'Make a JSON record of {an(a)}.'])
    elif k == 1:
        n, age, like = a_name(r), r.randrange(3, 20), r.choice(LIKES); v = {'name': n, 'age': age, 'likes': like}
        q = r.choice([f'{n} is {age} years old and likes {like}. Write that as JSON.', f'Make a JSON record: {n}, {age} years old, likes {like}.', f'Turn this into JSON: {n} is {age} and likes {like}.', f'As JSON: {n} is {age} years old and likes {like}.'])
    elif k == 2:
        x, c = r.choice(list(COLOURS.items())); x = re.sub('^(the|an?) ', '', x); v = {'name': x, 'colour': c}
        q = r.choice([f'Give me the colour of {x} as JSON.', f'Write {x} and its colour as JSON.', f'JSON with the name and colour of {x}, please.'])
    elif k == 3:
        n, th, c = r.randrange(1, 20), r.choice(THINGS), r.choice(PAINTS); v = {'thing': th, 'colour': c, 'count': n}
        q = r.choice([f'There are {n} {c} {th}s. Write that as JSON.', f'As JSON: {n} {c} {th}s.', f'Turn this into JSON: {n} {c} {th}s.', f'Make a record of {n} {c} {th}s as JSON.'])
    else:
        d = r.randrange(7); v = {'day': DAYS[d], 'before': DAYS[d - 1], 'after': DAYS[(d + 1) % 7]}
        q = r.choice([f'Give me {DAYS[d]} with the day before and after as JSON.', f'Write a record of {DAYS[d]} as JSON.', f'{DAYS[d]} as JSON, please.'])
    return q, json.dumps(v), r.choice(['The record has ' + str(len(v)) + ' fields.', f'I need the fields {" and ".join([", ".join(list(v)[:-1]), list(v)[-1]])}.']), ('json', v)


ME = 'I am a tiny language model inside wingbeat. I have two million parameters and know only a small world.'
CAN = 'I can tell short stories, answer questions about them, add small numbers, and talk about colours, animals, opposites and days.'
TALK = [  # (what people say, answers, words of which one must be in the answer)
    (['Hello', 'Hi', 'Hey', 'Hello!', 'Hi there', 'Good morning', 'Good evening', 'hello there', 'Good day', 'Hi!', 'Hello, little model'], ['Hello! How can I help you?', 'Hello! Shall I tell you a story?', 'Hello! It is nice to meet you.'], ['hello']),
    (['Who are you?', 'What are you?', 'Tell me about yourself', 'Who is there?', 'What is this?', 'Introduce yourself', 'What model are you?', 'Are you ChatGPT?', 'Are you an AI?'], [ME], ['wingbeat']),
    (['What is your name?', 'What are you called?', 'Do you have a name?', 'Your name?'], ['I am the tiny model of wingbeat.'], ['wingbeat']),
    (['What can you do?', 'Help', 'What do you know?', 'What can I ask you?', 'How can you help me?', 'What are you good at?', 'What shall we do?', 'Can you help me?', 'What should I ask?'], [CAN], ['stories']),
    (['Thank you', 'Thanks', 'Thanks a lot', 'Thank you very much', 'Great, thanks', 'Thank you!', 'That was nice', 'Good answer', 'Well done', 'Nice story'], ['You are welcome!', 'You are welcome! I am happy to help.'], ['welcome']),
    (['Goodbye', 'Bye', 'See you', 'Good night', 'Bye bye', 'See you tomorrow', 'I have to go', 'Goodbye!', 'Bye!'], ['Goodbye! Come back soon.', 'Goodbye! It was nice to talk with you.'], ['goodbye']),
    (['How are you?', 'How are you today?', 'How do you feel?', 'Are you well?', 'How is it going?'], ['I am well, thank you. And you?'], ['well']),
    (['I am well', 'I am fine', 'I am happy', 'I am good', 'Fine, thanks', 'Very well'], ['I am glad to hear that. What shall we talk about?'], ['glad']),
    (['I am sad', 'I feel sad', 'I am not well', 'I had a bad day', 'I am tired', 'I feel alone'], ['I am sorry to hear that. Shall I tell you a story?'], ['sorry']),
    (['Who made you?', 'Where do you come from?', 'Who wrote you?', 'How were you made?', 'How were you trained?'], ['The people of wingbeat made me. I learned from small stories and questions.'], ['wingbeat']),
    (['How old are you?', 'When were you born?', 'What is your age?'], ['I am new in the world. I do not count my days.'], ['new']),
    (['Are you a human?', 'Are you a person?', 'Are you alive?', 'Are you real?', 'Are you a robot?'], ['No, I am a tiny language model. But I like a good talk.'], ['model']),
    (['How big are you?', 'How many parameters do you have?', 'Are you small?', 'How large are you?'], ['I have two million parameters. That is very small for a model.'], ['million']),
    (['Yes', 'Yes, please', 'No', 'Ok', 'Okay', 'Good', 'Sure', 'Maybe'], ['Good. What shall we talk about?'], ['talk']),
    (['Tell me a joke', 'Make me laugh', 'Do you know a joke?', 'A joke, please'], ['Why did the hen cross the road? She wanted to see the other side.', 'What is black and white and read all over? A book.'], ['why', 'what']),
    (['Sing a song', 'Write a poem', 'Tell me a poem', 'A poem, please', 'Write me a poem'], ['The sun is high, the day is long. The little owl sings a quiet song.', 'Red is the rose and blue is the sea. I think of you, and you think of me.'], ['sun', 'rose']),
    (['What is your favourite colour?', 'Which colour do you like?'], ['I like blue, like the sky.'], ['blue']),
    (['What is wingbeat?', 'Tell me about wingbeat', 'What does wingbeat do?'], ['Wingbeat is a program that runs language models on your own computer.'], ['program']),
    (['I love you', 'You are nice', 'You are funny', 'I like you', 'You are clever'], ['That is kind of you. I like to talk with you, too.'], ['kind']),
    (['You are wrong', 'That is wrong', 'That is not right', 'No, that is wrong'], ['I am sorry. I am small and make mistakes.'], ['sorry']),
]
BIG = '''the capital of France|the president|quantum physics|the stock market|a computer|the internet|the moon landing|the Roman empire|democracy|a black hole|the speed of light|Python code|Rust|the theory of relativity|football|the latest news|
politics|the meaning of life|chess|a jet engine|electricity|the human brain|DNA|Shakespeare|the Bible|the second world war|a virus|money|taxes|the law|a car|a train|the United States|China|Germany|the price of oil|a phone|cancer|gravity|atoms|music theory|
the ocean floor|Napoleon|Einstein|the pyramids|bitcoin|a neural network|a database|history|philosophy|God|evolution|the universe|Mars|a rocket|the population of Spain|a recipe for lasagna|my homework|vitamins|a guitar|coffee|algebra|the weather on Venus'''.replace('\n', '').split('|')
LIMITS = ['I do not know that. I only know a small world: stories, sums, colours, animals and days.', 'That is too big for me. I only know a small world: stories, sums, colours, animals and days.']


def fancy(r):
    """A word that nobody knows, so that the model meets every letter."""
    return ''.join(r.choice(['b', 'k', 'st', 'v', 'm', 'gr', 'z', 'l', 'qu', 'h', 'tr', 'p', 'sch', 'w', 'x', 'd', 'ch', 'n', 'j', 'y', 'f']) + r.choice('aeiouyaeio') + r.choice(['', '', 'n', 'r', 'st', 'l', 'x', 'm', 'ck']) for _ in range(r.randrange(1, 4)))


def q_unknown(r):
    x = r.choice(BIG) if r.random() < .6 else r.choice(['', 'the ', 'a ']) + r.choice([str.title, str])(fancy(r)); y = fancy(r)
    q = r.choice([f'What is {x}?', f'Tell me about {x}.', f'How does {x} work?', f'Who invented {x}?', f'Explain {x}.', f'Why is {x} important?', f'What do you think about {x}?', f'Write an essay about {x}.', f'When did {x} begin?', f'Who was {y.title()}?', f'Where is {y.title()}?',
                  f'What is the capital of {y.title()}?', f'How many people live in {y.title()}?', f'Translate {x} into French.', f'Can you explain {x} to me?', f'How do I learn {x}?', f'What is {r.randrange(21, 999)} times {r.randrange(3, 99)}?', f'What is {r.randrange(50, 999)} plus {r.randrange(50, 999)}?',
                  f'Write a program that sorts {y}.', f'What is the difference between {x} and {r.choice(BIG)}?', f'{x}', f'{y} {fancy(r)} {fancy(r)}', f'How far is it to {y.title()}?'])
    return q, r.choice(LIMITS), 'I do not know this.', ('words', ['small world'])


def q_talk(r):
    says, answers, words = r.choice(TALK); q = r.choice(says)
    if says[0] != 'Hello' and r.random() < .3:
        q = r.choice(TALK[0][0][:9]) + r.choice([', ', '. ', '! ']) + q; answers = [(a if a.startswith('Hello') else 'Hello! ' + a) for a in answers]
    if r.random() < .3: q = q.lower()
    if r.random() < .25: q = q.rstrip('?!.') + r.choice(['', '.', '!', '?' if q.endswith('?') else ''])
    return q, r.choice(answers), 'The user is friendly.' if 'hello' in words or 'welcome' in words else 'This is about me.', ('any', words)


def q_story(r, want_held=False):
    while True:
        out = story_request(r, want_held)
        if plain(out[0]) in CORE and not want_held or held(out[0]) == want_held: return out


def story_request(r, want_held):
    given, extra = {}, ''
    k = r.randrange(6)
    if k < 3: given['animal'] = r.choice(TALES); extra = f' about {an(given["animal"])}'
    elif k == 3: given['name'] = a_name(r); extra = f' about {given["name"]}'
    if r.random() < .35: given['place'] = r.choice(PLACES); extra += (' ' if extra else ' that happens ') + given['place']
    s = a_story(r, want_held, **given)
    q = r.choice([f'Tell me a story{extra}.', f'Tell me a story{extra}', f'Tell a story{extra}, please.', f'Can you tell me a short story{extra}?', f'Write a short story{extra}.', f'I want to hear a story{extra}.', f'A story{extra}, please.', f'Please write a story{extra}.'])
    return q, s['text'], f'A story{extra or " about " + s["hero"].name}. Something goes wrong, and a friend helps.', ('story', [w for w in (given.get('animal'), given.get('name')) if w] + ([given['place'].split()[-1]] if 'place' in given else [])), s


SINGLE = [(q_sum, 13), (q_opposite, 6), (q_colour, 6), (q_day, 8), (q_count, 6), (q_animal, 10), (q_group, 7), (record, 8), (q_talk, 8), (q_unknown, 7)]
CORE = {'hello', 'hi', 'who are you', 'what are you', 'what is your name', 'what can you do', 'help', 'thank you', 'thanks', 'goodbye', 'bye', 'how are you', 'tell me a joke', 'yes', 'no', 'fox',
        'tell me a story', 'tell me a story about a fox', 'a story, please', 'what is wingbeat'}


def plain(q): return q.lower().rstrip('?!. ')


def question(r, want_held=False, kinds=None):
    """A question on its own. Held-out questions never come without want_held."""
    fns, weights = zip(*(kinds or SINGLE)); fn = r.choices(fns, weights)[0]
    for tries in range(4000):
        q, a, t, c = fn(r)
        is_held = held(q) and plain(q) not in CORE
        if r.random() < .15 and fn not in (record, q_talk): q = q[:1].lower() + q[1:]
        if r.random() < .12 and q.endswith(('?', '.')): q = q[:-1]
        if is_held == want_held: return q, a, t, c
    return question(r, want_held, kinds)


# ---------------------------------------------------------------- turns: [(user, answer, thought, check)], the last one is the one to judge
def about_story(r, s, n, told):
    """n questions about a story; `told` is the first turn."""
    out = [told]; facts = r.sample(s['facts'], min(n, len(s['facts'])))
    for qs, a, words in facts:
        if r.random() < .08:
            v = {'hero': s['hero'].name, 'place': s['place'].split()[-1], 'problem': s['wrong']}
            out.append((r.choice(['Write the story as JSON.', 'Give me the story as JSON.', 'Now as a JSON record.']), json.dumps(v), 'The fields are hero, place and problem.', ('json', v)))
        else: out.append((r.choice(qs), a, r.choice(['The story says: ', 'I look at the story: ']) + a, ('words', words)))
    return out


def chat(r, want_held=False):
    """-> turns of a chat whose later turns refer back. A held-out chat has a held-out story, question or sequence of messages."""
    while True:
        turns = a_chat(r, want_held); says = [u for u, *_ in turns]
        if not want_held and any(held(u) and plain(u) not in CORE for u in says): continue
        if held('\n'.join(says)) == want_held and (want_held or not any(held('\n'.join(says[:i])) for i in range(2, len(says)))): return turns


def a_chat(r, want_held):
    k = r.random(); q = lambda kinds=None: question(r, False, kinds)
    if k < .30:                                   # a story is told by the model, then questions
        *told, s = q_story(r, want_held)
        turns = about_story(r, s, r.randrange(1, 4), tuple(told))
        if r.random() < .15:
            more = a_story(r, want_held); turns.append((r.choice(['Another one, please.', 'Tell me another story.', 'Another story, please', 'One more!', 'Please tell me one more story.']), more['text'], 'One more story.', ('story', [])))
        return turns
    if k < .50:                                   # the user tells the story
        s = a_story(r, want_held); qs, a, words = r.choice(s['facts'])
        lead = r.choice(['', 'Here is a story. ', 'Read this. ', 'Story: ']); first = r.choice(qs)
        turns = [(f'{lead}{s["text"]} {first}', a, 'The story says: ' + a, ('words', words))]
        return turns + about_story(r, s, r.randrange(0, 3), None)[1:]
    if k < .58:                                   # the day goes on
        i = r.randrange(7); turns = [(f'Today is {DAYS[i]}.', r.choice([f'Then tomorrow is {DAYS[(i + 1) % 7]}.']), f'After {DAYS[i]} comes {DAYS[(i + 1) % 7]}.', ('words', [DAYS[(i + 1) % 7]]))]
        if r.random() < .5: turns = [(f'If today is {DAYS[i]}, what day is tomorrow?', f'Tomorrow is {DAYS[(i + 1) % 7]}.', f'After {DAYS[i]} comes {DAYS[(i + 1) % 7]}.', ('words', [DAYS[(i + 1) % 7]]))]
        more = [('And yesterday?', f'Yesterday was {DAYS[i - 1]}.', DAYS[i - 1]), ('And the day after tomorrow?', f'The day after tomorrow is {DAYS[(i + 2) % 7]}.', DAYS[(i + 2) % 7]), ('What day is it today?', f'Today is {DAYS[i]}.', DAYS[i]), ('And the day before yesterday?', f'The day before yesterday was {DAYS[i - 2]}.', DAYS[i - 2])]
        return turns + [(u, a, f'Today is {DAYS[i]}.', ('words', [w])) for u, a, w in r.sample(more, r.randrange(1, 4))]
    if k < .66:                                   # a running sum
        n = r.randrange(1, 12); m = r.randrange(0, 8); t = n + m; turns = [(f'What is {n} plus {m}?', f'{n} plus {m} is {t}.', f'{n} + {m} is {t}.', ('number', t))]
        for _ in range(r.randrange(1, 4)):
            d = r.randrange(1, 7); up = t + d <= 20 and (r.random() < .5 or t < d); t2 = t + d if up else t - d
            if t2 < 0: break
            w = 'plus' if up else 'minus'; turns.append((r.choice([f'And {w} {d}?', f'Now {w} {d}.']), f'{t} {w} {d} is {t2}.', f'We had {t}. {t} {"+" if up else "-"} {d} is {t2}.', ('number', t2))); t = t2
        return turns
    if k < .74:                                   # the same question about another thing
        if r.random() < .5:
            xs = r.sample(list(COLOURS), 3); turns = [(f'What colour is {xs[0]}?', f'{cap(xs[0])} is {COLOURS[xs[0]]}.', f'I know {xs[0]}.', ('words', [COLOURS[xs[0]]]))]
            return turns + [(r.choice([f'And {x}?', f'And what about {x}?']), f'{cap(x)} is {COLOURS[x]}.', f'The question is about the colour of {x}.', ('words', [COLOURS[x]])) for x in xs[1:r.randrange(2, 4)]]
        if r.random() < .5:
            ps = r.sample(OPPOSITES, 3); turns = [(f'What is the opposite of {ps[0][0]}?', f'The opposite of {ps[0][0]} is {ps[0][1]}.', 'I think of the other end.', ('words', [ps[0][1]]))]
            return turns + [(r.choice([f'And of {a}?', f'And {a}?']), f'The opposite of {a} is {b}.', f'{cap(a)} and {b} are opposites.', ('words', [b])) for a, b in ps[1:r.randrange(2, 4)]]
        xs = r.sample(list(ANIMALS), 3); i, ask, say = r.choice([(2, 'What sound does {} make?', '{} {}.'), (3, 'What does {} eat?', '{} eats {}.'), (4, 'Where does {} live?', '{} lives in {}.')])
        turn = lambda q, x: (q, say.format(cap(an(x)), ANIMALS[x][i]), f'The question is about {an(x)}.', ('words', [ANIMALS[x][i].split()[-1]]))
        return [turn(ask.format(an(xs[0])), xs[0])] + [turn(r.choice([f'And {an(x)}?', f'And what about {an(x)}?']), x) for x in xs[1:r.randrange(2, 4)]]
    if k < .88:                                   # what the user says about himself
        n, like, age, pet = a_name(r), r.choice(LIKES), r.randrange(4, 20), r.choice(HEROES); c, th = r.choice(PAINTS), r.choice(THINGS); pname = r.choice(PET_HER + PET_HIM) if r.random() < .8 else fancy(r).title(); city = r.choice(CITIES)
        tells = [([f'My name is {n}.', f'I am {n}.', f'Hello, I am {n}.', f'Hi, my name is {n}.'], f'Hello, {n}! It is nice to meet you.', ['What is my name?', 'Who am I?', 'Do you remember my name?'], f'Your name is {n}.', n),
                 ([f'I like {like}.', f'I really like {like}.'], f'{cap(like)}! That is nice.', ['What do I like?', 'Do you remember what I like?'], f'You like {like}.', like), ([f'I am {age} years old.', f'I am {age}.'], f'{age} is a good age.', ['How old am I?', 'What is my age?'], f'You are {age} years old.', str(age)),
                 ([f'I have {an(pet)} named {pname}.', f'My {pet} is called {pname}.'], f'{pname} is a good name for {an(pet)}.', [f'What is the name of my {pet}?', f'What is my {pet} called?'], f'Your {pet} is called {pname}.', pname),
                 ([f'I have {an(c)} {th}.', f'My {th} is {c}.'], f'{cap(an(c))} {th} is a fine thing.', [f'What colour is my {th}?'], f'Your {th} is {c}.', c), ([f'I live in {city}.'], f'{city} must be a nice place.', ['Where do I live?', 'In which city do I live?'], f'You live in {city}.', city)]
        said = r.sample(tells, r.randrange(1, 4)); low = str.lower if r.random() < .12 and n in GIRLS + BOYS else str; turns = [(low(r.choice(u)), a, 'The user tells me something.', ('words', [a.split()[0].strip('!,.')])) for u, a, *_ in said]
        if r.random() < .4: turns.append(q())
        return turns + [(r.choice(x[2]), x[3], 'The user said it before. ' + x[3], ('words', [x[4]])) for x in r.sample(said, r.randrange(1, len(said) + 1))]
    turns = [q([(q_talk, 1)])] if r.random() < .5 else []
    for _ in range(r.randrange(1, 4)):
        turns.append(q() if r.random() < .8 else q_story(r)[:4])
    if r.random() < .4: turns.append(r.choice([('Thank you', 'You are welcome!', 'The user is friendly.', ('any', ['welcome'])), ('Bye', 'Goodbye! Come back soon.', 'The user is leaving.', ('any', ['goodbye']))]))
    if want_held: turns.append(question(r, True))
    return turns


# ---------------------------------------------------------------- tools
def tool(r, name, about, **props):
    p = {'type': 'object', 'properties': {k: {'type': t} for k, t in props.items()}, 'required': list(props)}
    return {'type': 'function', 'function': {'name': name, 'description': about, 'parameters': p}}


def tools_of(r):
    w = tool(r, r.choice(['weather', 'get_weather']), r.choice(['Weather of a city.', 'The weather of a city', 'Get the weather.']), city='string')
    a = tool(r, 'add', r.choice(['Add two numbers.', 'The sum of two numbers']), a='integer', b='integer')
    return r.choice([[w], [a], [w, a], [a, w], [w], [w, a]])


def tool_talk(r, want_held=False):
    """-> (tools, messages before the last answer, last answer, thought, check, call or None). Messages are of OpenAI's form."""
    tools = tools_of(r); names = [t['function']['name'] for t in tools]; f = r.choice(names)
    if r.random() < .15:
        q, a, t, c = question(r, want_held, [(q_opposite, 1), (q_colour, 1), (q_talk, 1), (q_animal, 1)])
        return tools, [('user', q)], a, t, c, None
    while True:
        if f == 'add':
            a, b = (r.randrange(r.choice([10, 100, 1000])) for _ in '12'); args, n = {'a': a, 'b': b}, a + b
            q = r.choice([f'What is {a} plus {b}?', f'Add {a} and {b}.', f'How much is {a} plus {b}?', f'{a} + {b}', f'Use the tool to add {a} and {b}.'])
            result = r.choice([json.dumps({'sum': n}), str(n), json.dumps({'result': n})]); said, t, c = f'{a} plus {b} is {n}.', f'The tool says {n}.', ('words', [str(n)])
            t0 = f'I add {a} and {b} with the tool.'
        else:
            city = r.choice(CITIES) if r.random() < .7 else fancy(r).title(); sky, deg = r.choice(SKIES), r.randrange(-5, 36); args = {'city': city}
            q = r.choice([f'What is the weather in {city}?', f'How is the weather in {city}?', f'Weather in {city}?', f'Is it warm in {city}?', f'Tell me the weather in {city}.', f'What is the weather like in {city} today?'])
            result = r.choice([json.dumps({'sky': sky, 'celsius': deg}), json.dumps({'city': city, 'sky': sky, 'celsius': deg}), json.dumps({'celsius': deg, 'sky': sky})]); said, t, c = f'It is {sky} in {city}, with {deg} degrees.', f'The tool says {sky} and {deg} degrees.', ('words', [sky, city, str(deg)])
            t0 = f'I need the weather of {city}.'
        if held('tool ' + q) == want_held: break
    call = {'name': f, 'arguments': args}
    if r.random() < .5: return tools, [('user', q)], None, t0, ('call', call), call
    msgs = [('user', q), ('call', call), ('result', result)]
    return tools, msgs, said, t, c, None


HOW = ('To call one of these tools, write exactly this format:\n**Tool Call:**\n```json\n{"name": "tool_name", "arguments": {"key": "value"}}\n```\nDo not invent tool call IDs or write tool outputs yourself.')
fenced = lambda v: '```json\n' + json.dumps(v, indent=2, ensure_ascii=False) + '\n```'


def value(text):
    try: return json.loads(text)
    except ValueError: return text


def tool_prompt(style, opening, tools, msgs, system=''):
    """The prompt as src/template/g1/write.rs renders it; the same in Python."""
    if style == 'short':
        lines = ['Tools:']
        for f in (t['function'] for t in tools):
            lines.append(f'- {f["name"]}({", ".join(k + ": " + p["type"] for k, p in f["parameters"]["properties"].items())}): {f["description"]}')
        out = ['System: ' + '\n'.join([system] * bool(system) + lines + ['Return only a JSON function call.'])]
        for role, c in msgs: out.append({'user': lambda: f'User: {c}', 'call': lambda: f'Assistant: ```json\n{json.dumps(c)}\n```', 'result': lambda: f'User: Function output: {c}'}[role]())
        return '\n\n'.join(out + ['Assistant:' + (' ' + opening if opening else '')])
    out = ['### System'] + [system] * bool(system)
    for f in (t['function'] for t in tools): out += [f'### `{f["name"]}`', f'**Description:** {f["description"]}', '**Parameters:**', fenced(f['parameters'])]
    out.append(HOW)
    for role, c in msgs: out += {'user': lambda: ['### User', c], 'call': lambda: ['### Assistant', f'**Tool Call:**\n{fenced(c)}'], 'result': lambda: ['### Tool Output', fenced(value(c))]}[role]()
    return '\n'.join(out + ['### Assistant'] + [opening] * bool(opening))


# ---------------------------------------------------------------- documents
OPENINGS = {'off': '', 'fast': '<think></think', 'on': '<think'}
SYSTEMS = ['You are a friendly storyteller.', 'Be kind.', 'You are a helpful assistant.', 'Answer in plain words.', 'You talk with a child.', 'Be brief.']
HELLO = '\nUser: hello\n\nAssistant: Hello! How can I help you?\n\n'


def system_of(r, turns):
    """A system message and the turns under it."""
    k = r.random(); u, a, t, c = turns[-1]
    if k < .5: return r.choice(SYSTEMS), turns
    if k < .75:
        n = r.choice(PET_HER + PET_HIM); return r.choice([f'Your name is {n}.', f'You are {n}.', f'Your name is {n}. Be kind.']), turns + [(r.choice(['What is your name?', 'Who are you?', 'What are you called?']), f'My name is {n}.', f'My name is {n}.', ('words', [n]))]
    if c[0] == 'number' or c[0] == 'words' and len(c[1]) == 1 and ' ' not in c[1][0]:
        w = str(c[1]) if c[0] == 'number' else c[1][0]; return r.choice(['Answer in one word.', 'Use only one word.']), [(u, cap(w) + '.', t, ('only', w))]
    if c[0] in ('words', 'number'): return 'Answer as JSON.', [(u, json.dumps({'answer': a}), t, ('json', {'answer': a}))]
    return r.choice(SYSTEMS), turns


def talk_doc(r, turns, system='', style=None, thinking=None):
    """The segments of a chat. Thoughts of earlier turns are not in the text, as the engine drops them."""
    style = style or ('bot' if r.random() < .02 else 'lines'); thinking = thinking or r.choices(['off', 'fast', 'on'], [60, 15, 25])[0]
    out, last = [], len(turns) - 1
    if style == 'bot': head, user, bot, end, glue = f'System✿{system}✿\n' if system else '', 'User✿{}✿\nBot✿', '', '✿', '\n'
    else: head, user, bot, end, glue = f'System: {system}\n\n' if system else '', 'User: {}\n\nAssistant:', ' ', '\n\n', ''
    if not system and style == 'lines': head = r.choices(['', '\n', HELLO], [90, 5, 5])[0]
    for i, (u, a, t, _) in enumerate(turns):
        text = head + user.format(u); head = glue
        if i == last and thinking != 'off':
            hint = r.choices(['', ' (think a bit)', ' (think a lot)'], [70, 15, 15])[0] if thinking == 'on' else ''
            text = text.replace(u, u + hint) if hint else text
            out += [(text + bot + OPENINGS[thinking], False), ('>' + (t + '</think>' if thinking == 'on' else '') + ' ' + a + end, True)]
        else: out += [(text, False), (bot + a + end, True)]
    return out


def prose(r):
    s = a_story(r); parts = [s['text']]
    if r.random() < .15: parts.append(f'{a_story(r)["text"]}')
    return [('\n\n'.join(parts), True)]


def tool_doc(r):
    tools, msgs, said, thought, check, call = tool_talk(r); style = r.choice(['short', 'full']); thinking = r.choices(['off', 'fast', 'on'], [50, 15, 35])[0]
    prompt = tool_prompt(style, OPENINGS[thinking], tools, msgs, r.choice(SYSTEMS) if r.random() < .2 else '')
    if call: said = ('' if style == 'short' else '**Tool Call:**\n') + f'```json\n{json.dumps(call)}\n```'
    lead = {'short': ' ', 'full': '\n'}[style] if thinking == 'off' else '>' + (thought + '</think>' if thinking == 'on' else '') + (' ' if style == 'short' else '\n')
    return [(prompt, False), (lead + said + ('\n\n' if style == 'short' else ''), True)]


def document(r):
    k = r.random()
    if k < .13: return prose(r)
    if k < .19: return tool_doc(r)
    if k < .56: turns = chat(r)
    elif k < .92: turns = [question(r)] if k < .86 else [question(r) for _ in range(r.randrange(2, 4))]
    else: turns = [q_story(r)[:4]]
    system = ''
    if r.random() < .10: system, turns = system_of(r, turns)
    return talk_doc(r, turns, system)


def documents(seed):
    r = random.Random(seed)
    while True: yield document(r)


# ---------------------------------------------------------------- held-out prompts
def heldout(n, seed=300):
    """n prompts of all kinds that the training never has: dicts with kind, messages, tools, thinking, check"""
    r = random.Random(seed); out, seen = [], set()
    kinds = [('sum', q_sum), ('opposite', q_opposite), ('colour', q_colour), ('day', q_day), ('count', q_count), ('animal', q_animal), ('group', q_group), ('json', record), ('talk', q_talk), ('unknown', q_unknown)]
    tries = 0
    while len(out) < n:
        tries += 1; i = 12 if tries > 40 else len(out) % 20; thinking = r.choices(['off', 'fast', 'on'], [60, 15, 25])[0]; system, tools = '', None
        if i < 10: kind, fn = kinds[i]; q, a, t, c = question(r, True, [(fn, 1)]); msgs = [('user', q)]
        elif i < 12: kind = 'story'; q, a, t, c, s = q_story(r, True); msgs = [('user', q)]; thinking = 'off'
        elif i < 18:
            turns = chat(r, True); kind = 'chat'
            if i == 17:
                kind = 'system'; system, turns = system_of(r, [question(r, True, [(q_opposite, 1), (q_day, 1), (q_sum, 1), (q_colour, 1)])])
            msgs = [m for u, a, *_ in turns[:-1] for m in (('user', u), ('assistant', a))] + [('user', turns[-1][0])]; c, a = turns[-1][3], turns[-1][1]
        else: kind = 'tool'; tools, msgs, a, t, c, call = tool_talk(r, True)
        key = json.dumps([msgs, thinking if i < 10 else '', system])
        if key in seen: continue
        if kind == 'story' and not c[1]: continue
        seen.add(key); tries = 0; out.append({'id': len(out), 'kind': kind, 'system': system, 'tools': tools, 'messages': msgs, 'thinking': thinking, 'check': c, 'expected': a})
    return out


def right(answer, check, call=None):
    """Whether an answer (without its thought) passes a check. `call` is the parsed tool call, if the engine found one."""
    kind, want = check[0], check[1]; text = answer.strip(); low = text.lower(); words = re.findall(r"[\w']+", low)
    if kind == 'call':
        found = call or value((re.findall(r'\{.*\}', text, re.S) or [''])[0])
        return isinstance(found, dict) and found.get('name') == want['name'] and found.get('arguments') == want['arguments']
    if kind == 'json': return value(text) == want
    if len(text) > 900 or not text: return False
    if kind == 'number': found = re.findall(r'\d+', text); return bool(found) and found[-1] == str(want)
    if kind == 'words': return len(text) < 260 and all(re.search(r'(?<![\w])' + re.escape(w.lower()) + r'(?![\w])', low) for w in want)
    if kind == 'only': return words == [want.lower()]
    if kind == 'any': return any(w in low for w in want)
    if kind == 'first': return bool([w for w in words if w not in ('a', 'an', 'the', 'yes')]) and [w for w in words if w not in ('a', 'an', 'the', 'yes')][0] == want
    if kind == 'list': return words == [w.lower() for w in want]
    if kind == 'members': found = [w for w in words if w != 'and']; return len(found) == want == len(set(found)) and all(w in check[2] for w in found)
    if kind == 'story': return text.endswith('.') and text.count('.') >= 4 and len(text) > 150 and all(w.lower() in low for w in want)
    raise ValueError(kind)


def main():
    p = argparse.ArgumentParser(description=__doc__.split('\n')[0]); p.add_argument('--seed', type=int, default=1); p.add_argument('--n', type=int, default=1000); p.add_argument('--heldout', type=int, default=0)
    a = p.parse_args()
    if a.heldout:
        for item in heldout(a.heldout): print(json.dumps(item, ensure_ascii=False))
        return
    docs = documents(a.seed)
    for _ in range(a.n): print(''.join(text for text, _ in next(docs)), '-----', sep='\n')


if __name__ == '__main__': main()
