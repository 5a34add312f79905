#!/usr/bin/env python3
"""Judge a model by the held-out prompts, through `wingbeat batch` at temperature 0.

    python3 judge.py MODEL.safetensors [--wingbeat PATH] [--vocab FILE] [--n 300] [--show]
Without --vocab and with MODEL `embedded` it asks the embedded model. Prints the share of right answers of each kind; exits with 1 below 90 %.
"""
import argparse, collections, json, subprocess, sys, tempfile
import world

p = argparse.ArgumentParser(); p.add_argument('model'); p.add_argument('--wingbeat', default='wingbeat'); p.add_argument('--vocab'); p.add_argument('--n', type=int, default=300)
p.add_argument('--show', action='store_true', help='print every answer'); p.add_argument('--seed', type=int, default=300); p.add_argument('--threads', default='1')
a = p.parse_args(); items = world.heldout(a.n, a.seed); lines = []
for i in items:
    style = i['id'] % 40 < 20; msgs = [{'role': 'system', 'content': i['system']}] * bool(i['system']); fmt = {'off': 'g1', 'fast': 'g1-fast', 'on': 'g1-think'}[i['thinking']]
    for role, c in i['messages']:
        if role == 'call': msgs.append({'role': 'assistant', 'tool_calls': [{'type': 'function', 'function': {'name': c['name'], 'arguments': json.dumps(c['arguments'])}}]})
        else: msgs.append({'role': {'result': 'tool'}.get(role, role), 'content': c})
    line = {'id': i['id'], 'messages': msgs, 'max_tokens': 300, 'temperature': 0}
    if i['tools']: fmt = 'g1-tools-short' if style else 'g1-tools'; line |= {'tools': i['tools'], 'thinking': i['thinking']}
    i['prompt'] = world.tool_prompt('short' if style else 'full', world.OPENINGS[i['thinking']], i['tools'], i['messages']) if i['tools'] else None
    lines.append(json.dumps(line | {'format': fmt}))
with tempfile.NamedTemporaryFile('w', suffix='.jsonl') as f:
    f.write('\n'.join(lines) + '\n'); f.flush()
    cmd = [a.wingbeat, 'batch', f.name, '--device', 'cpu', '--threads', a.threads] + (['-m', a.model] if a.model != 'embedded' else []) + (['--vocab', a.vocab] if a.vocab else [])
    done = subprocess.run(cmd, capture_output=True, text=True)
answers = {x['id']: x for x in map(json.loads, done.stdout.splitlines())}; good, all_, odd = collections.Counter(), collections.Counter(), 0
if len(answers) < len(items): print(done.stderr, file=sys.stderr)
if a.vocab:
    import vocab
    words = vocab.Vocab(a.vocab)
    odd = sum(1 for i in items if i['prompt'] and answers[i['id']].get('usage', {}).get('prompt_tokens') != len(words.encode(i['prompt'])))
for i in items:
    x = answers.get(i['id'], {}); text = x.get('text') or ''; calls = x.get('tool_calls') or []
    call = calls and {'name': calls[0]['function']['name'], 'arguments': world.value(calls[0]['function']['arguments'])}
    ok = world.right(text, i['check'], call) and x.get('finish') != 'length'; good[i['kind']] += ok; all_[i['kind']] += 1
    if a.show or not ok: print('ok ' if ok else 'BAD', i['kind'], i['thinking'], '|', str(i['messages'][-1][1])[-110:], '|', (text or x.get('error') or calls), '| thought:', x.get('thought'), '' if ok else f'| expected: {i["expected"] or i["check"][1]}')
total = sum(good.values())
for k in all_: print(f'{k:9} {good[k]:3} of {all_[k]}')
print(f'right: {total} of {len(items)}, {100 * total / len(items):.1f} %; prompts of tools that differ from the engine: {odd}')
sys.exit(total < .9 * len(items))
