"""Checks the held-out prompts: that the judge accepts the expected answers, and that no prompt is in 40 000 documents of the training."""
import collections, json, sys, world
L = [json.loads(l) for l in open('heldout.jsonl')]; print(collections.Counter(i['kind'] for i in L))
print('expected answers judged wrong:', [(i['kind'], i['expected'], i['check']) for i in L if i['expected'] is not None and not world.right(i['expected'], i['check'])])
prompts = {'\n\n'.join(('User: ' if a == 'user' else 'Assistant: ') + b for a, b in i['messages']).lower() for i in L if not i['tools'] and not i['system']}
docs, found = world.documents(20), collections.Counter()
for _ in range(40000):
    parts = ''.join(t for t, _ in next(docs)).lower().strip().split('\n\nassistant:')
    for n in range(1, len(parts)):
        if (p := '\n\nassistant:'.join(parts[:n])) in prompts: found[p[-100:]] += 1
print('found in the training:', found)
