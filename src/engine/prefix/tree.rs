//! A radix tree over token ids. Sequences with a common prefix share the nodes of the prefix.

use std::collections::BTreeMap;

/// A map from sequences of tokens to values.
#[derive(Debug)]
pub struct Tree<V> {
    root: Node<V>,
}

#[derive(Debug)]
struct Node<V> {
    /// Tokens between the parent and this node. Only the root's edge is empty.
    edge: Vec<u32>,
    value: Option<V>,
    /// The children, by the first token of their edges.
    children: BTreeMap<u32, Node<V>>,
}

impl<V> Default for Tree<V> {
    fn default() -> Tree<V> {
        Tree { root: Node::new(&[], None) }
    }
}

impl<V> Tree<V> {
    /// Sets the value of a sequence. Returns the previous value.
    pub fn insert(&mut self, tokens: &[u32], value: V) -> Option<V> {
        let (mut node, mut rest) = (&mut self.root, tokens);
        while let Some(first) = rest.first() {
            let child = node.children.entry(*first).or_insert_with(|| Node::new(rest, None));
            let n = common(&child.edge, rest);
            if n < child.edge.len() {
                child.split(n);
            }
            (node, rest) = (child, &rest[n..]);
        }
        node.value.replace(value)
    }

    /// Removes and returns the value of a sequence.
    pub fn remove(&mut self, tokens: &[u32]) -> Option<V> {
        self.root.remove(tokens)
    }

    /// Returns the length and the value of each prefix of `tokens` that has a value, the shortest first. `tokens` itself counts as a prefix, too.
    pub fn on_path(&self, tokens: &[u32]) -> Vec<(usize, &V)> {
        let (mut node, mut at, mut found) = (&self.root, 0, Vec::new());
        loop {
            found.extend(node.value.as_ref().map(|value| (at, value)));
            match tokens.get(at).and_then(|first| node.children.get(first)) {
                Some(child) if tokens[at..].starts_with(&child.edge) => (node, at) = (child, at + child.edge.len()),
                _ => return found,
            }
        }
    }

    /// Finds a sequence that shares the longest prefix with `tokens`. Returns the prefix's length and the sequence's value, or `None` if the tree is
    /// empty.
    pub fn nearest(&self, tokens: &[u32]) -> Option<(usize, &V)> {
        let (mut node, mut at) = (&self.root, 0);
        while let Some(child) = tokens.get(at).and_then(|first| node.children.get(first)) {
            let n = common(&child.edge, &tokens[at..]);
            (node, at) = (child, at + n);
            if n < child.edge.len() {
                break;
            }
        }
        node.any().map(|value| (at, value))
    }
}

impl<V> Node<V> {
    fn new(edge: &[u32], value: Option<V>) -> Node<V> {
        Node { edge: edge.to_vec(), value, children: BTreeMap::new() }
    }

    /// Splits the edge after its first `n` tokens: this node gets no value, and a new child gets the old value and children.
    fn split(&mut self, n: usize) {
        let rest = self.edge.split_off(n);
        let below = Node { edge: rest, value: self.value.take(), children: std::mem::take(&mut self.children) };
        self.children.insert(below.edge[0], below);
    }

    fn remove(&mut self, tokens: &[u32]) -> Option<V> {
        let Some(first) = tokens.first() else { return self.value.take() };
        let child = self.children.get_mut(first)?;
        let rest = tokens.strip_prefix(child.edge.as_slice())?;
        let value = child.remove(rest);
        child.merge();
        if child.value.is_none() && child.children.is_empty() {
            self.children.remove(first);
        }
        value
    }

    /// Merges this node with its child if the node has no value and exactly one child.
    fn merge(&mut self) {
        if self.value.is_none()
            && self.children.len() == 1
            && let Some((_, below)) = self.children.pop_first()
        {
            self.edge.extend(below.edge);
            (self.value, self.children) = (below.value, below.children);
        }
    }

    /// Returns the value of this node or of any node below it. Returns `None` if none of these nodes has a value.
    fn any(&self) -> Option<&V> {
        self.value.as_ref().or_else(|| self.children.values().find_map(Node::any))
    }
}

/// Returns the length of the common prefix of `a` and `b`.
fn common(a: &[u32], b: &[u32]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_chacha::ChaCha8Rng;
    use rand_chacha::rand_core::{Rng, SeedableRng};
    use std::collections::HashMap;

    /// Counts the nodes. Checks that every node except the root has a value or at least two children.
    fn size(node: &Node<usize>, is_root: bool) -> usize {
        assert!(is_root || node.value.is_some() || node.children.len() >= 2);
        assert!(node.children.iter().all(|(first, child)| child.edge.first() == Some(first)));
        1 + node.children.values().map(|child| size(child, false)).sum::<usize>()
    }

    #[test]
    fn it_finds_what_a_list_finds() {
        let mut random = ChaCha8Rng::seed_from_u64(7);
        let (mut tree, mut list) = (Tree::default(), HashMap::<Vec<u32>, usize>::new());
        for step in 0..4000 {
            let tokens: Vec<u32> = (0..random.next_u32() % 9).map(|_| random.next_u32() % 3).collect();
            match random.next_u32() % 5 {
                0..2 => assert_eq!(tree.insert(&tokens, step), list.insert(tokens, step)),
                2 => assert_eq!(tree.remove(&tokens), list.remove(&tokens)),
                3 => {
                    let found: Vec<(usize, usize)> = tree.on_path(&tokens).into_iter().map(|(n, v)| (n, *v)).collect();
                    let all = (0..=tokens.len()).filter_map(|n| list.get(&tokens[..n]).map(|v| (n, *v)));
                    assert_eq!(found, all.collect::<Vec<_>>());
                }
                _ => {
                    let best = list.keys().map(|known| common(known, &tokens)).max();
                    let found = tree.nearest(&tokens);
                    assert_eq!(found.map(|(n, _)| n), best);
                    if let Some((n, value)) = found {
                        assert!(list.iter().any(|(known, v)| v == value && common(known, &tokens) == n));
                    }
                }
            }
            assert!(size(&tree.root, true) <= 1 + 2 * list.len());
        }
        for tokens in list.keys() {
            assert!(tree.remove(tokens).is_some());
        }
        assert_eq!(size(&tree.root, true), 1);
    }
}
