// Announces an answer to screen readers: sentence by sentence, then its end. Single tokens are never announced.

import { byId, el } from './dom.js';

const region = byId('spoken');
const SENTENCE = /[\s\S]*?(?:[.!?…]["')\]]*\s|[。！？]|\n)/y;

/** Announces a text. The region keeps few entries, because screen readers announce additions only. */
export const say = (text) => {
  if (!text.trim()) return;
  region.append(el('p', {}, text.trim()));
  while (region.childElementCount > 6) region.firstChild.remove();
};

/** Returns `{add, end}`. `add(text)` announces the sentences that the text completes; `end(closing)` announces the rest and a closing text. */
export const sentences = () => {
  let rest = '';
  let code = false;
  const add = (text) => {
    rest += text;
    let at = 0;
    let found = '';
    for (;;) {
      SENTENCE.lastIndex = at;
      const sentence = SENTENCE.exec(rest)?.[0];
      if (!sentence) break;
      at += sentence.length;
      if (/^\s*(```|~~~)/.test(sentence)) {
        code = !code;
        found += code ? 'Code block. ' : 'End of code. ';
      } else if (!code) found += sentence;
    }
    rest = rest.slice(at);
    say(found);
  };
  return {
    add,
    end: (closing) => {
      say(code ? '' : rest.replace(/^\s*```\s*$/, ''));
      say(closing);
    },
  };
};
