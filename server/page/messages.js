// The actions on messages: send, answer again, edit, continue, delete, and choose a branch.

import { say } from './announce.js';
import { backend } from './backend.js';
import * as composer from './composer.js';
import * as running from './running.js';
import * as store from './store.js';
import * as thread from './thread.js';
import { toast } from './toast.js';
import * as tree from './tree.js';

/**
 * Makes the actions. `current` has the shown conversation `c`, which changes, and `show()`, `touch()` (save and show), `open(c)`, `isValid()`
 * (returns whether the settings are valid). `page` is passed to `running.run`.
 */
export const messageActions = (current, page) => {
  /** Requests an answer to the user message `user`. */
  const answer = (user) => running.run(current.c, tree.add(current.c, user.id, 'assistant', ''), 'begin', page);

  /** Returns whether a request can begin: one answer at a time, and valid settings. */
  const ready = () => {
    if (running.has(current.c.id)) {
      toast('This conversation receives an answer. Stop the answer first.');
      return false;
    }
    return current.isValid();
  };

  /** Extends an answer, and says so if the model adds nothing. Returns whether the answer has new text, or may get some later. */
  const extend = async (own, node) => {
    const live = await running.run(own, node, 'extend', page);
    if (!live?.addsNothing) return true;
    if (page.isShown(own)) toast('The model has nothing to add to this answer.');
    return false;
  };

  const lastOf = (role) => tree.path(current.c).findLast((node) => node.role === role);

  const actions = {
    send(text, files = []) {
      if (!ready()) return false;
      const user = tree.add(current.c, current.c.head, 'user', text);
      if (files.length) user.files = files;
      answer(user);
      composer.focus();
      return true;
    },
    /** Requests an answer to a user's message that has no answer. */
    generate(user) {
      if (!ready()) return;
      answer(user);
      composer.focus();
    },
    stop: () => running.stop(current.c.id),
    /** Requests another answer in place of `node`. Without a node, answers the last message. */
    regenerate(node = tree.path(current.c).at(-1)) {
      if (!node) return;
      if (node.role === 'user') return actions.generate(node);
      if (!ready()) return;
      answer(tree.get(current.c, node.parent));
      composer.focus();
    },
    /** Makes a branch with a changed message. A changed answer stays as it is; a changed message of the user gets an answer. */
    edit(node, text) {
      if (!ready()) return;
      const changed = tree.add(current.c, node.parent, node.role, text);
      if (node.files) changed.files = node.files;
      if (node.role === 'user') answer(changed);
      else {
        changed.finish = 'edited';
        current.touch();
      }
      composer.focus();
    },
    editLast() {
      const node = lastOf('user');
      if (!node || running.has(current.c.id)) return false;
      thread.edit(node.id);
      return true;
    },
    /** Requests an answer again. An answer without text is replaced, otherwise it stays as a branch. */
    resend(node) {
      if (!ready()) return;
      const user = tree.get(current.c, node.parent);
      if (!node.content) tree.remove(current.c, node.id);
      answer(user);
      composer.focus();
    },
    /**
     * Continues the text of an answer. If messages follow the answer, continues a copy in a new branch, because those messages refer to the old
     * text.
     */
    async continueAnswer(node) {
      if (!ready()) return;
      composer.focus();
      const own = current.c;
      if (node.answer && backend.resumes) {
        await running.run(own, node, 'resume', page);
        if (node.finish !== 'lost') return;
      }
      if (!node.content && !node.reasoning) return actions.resend(node);
      if (!tree.children(own, node.id).length) return extend(own, node);
      const head = own.head;
      const { content, reasoning, thought } = node;
      const copy = Object.assign(tree.add(own, node.parent, 'assistant', content), { reasoning, thought: thought && { ...thought } });
      if (await extend(own, copy)) return;
      // the copy got no new text, so the branch is removed again
      const isCurrent = own.head === copy.id;
      tree.remove(own, copy.id);
      if (isCurrent) tree.select(own, head);
      store.save(own);
      if (page.isShown(own)) current.show();
    },
    removeMessage(node) {
      if (!ready()) return;
      const own = current.c;
      const [nodes, head] = [own.nodes, own.head];
      tree.remove(own, node.id);
      if (own.nodes.length) current.touch();
      else {
        store.forget(own.id);
        current.show();
      }
      const restore = () => {
        tree.restore(own, nodes, head);
        store.save(own);
        current.open(own);
      };
      toast('Deleted the message and all after it.', { label: 'Undo', run: restore });
      composer.focus();
    },
    step(node, by) {
      const other = tree.sibling(current.c, node, by);
      if (!other) return;
      tree.select(current.c, other.id);
      current.touch();
      thread.focus(other.id, `[data-step="${by}"]`);
      const all = tree.siblings(current.c, other);
      say(`Branch ${all.indexOf(other) + 1} of ${all.length}.`);
    },
    previous: () => lastOf('assistant') && actions.step(lastOf('assistant'), -1),
    next: () => lastOf('assistant') && actions.step(lastOf('assistant'), 1),
    select(id) {
      tree.select(current.c, id);
      current.touch();
    },
    continueFrom(node) {
      current.c.head = node.id;
      current.touch();
      composer.focus();
      say('The next message begins a branch after this answer.');
    },
  };
  return actions;
};
