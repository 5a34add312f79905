//! The order of tool results. A client names the call of a result by an id and may send results in any order. Prompts have no ids: they have results
//! in the order of the calls.

use crate::error::{Error, Result, short};
use crate::template::{Message, Role};
use std::collections::HashSet;

/// A message as a client sends it.
#[derive(Debug, Clone)]
pub struct LinkedMessage {
    /// The message.
    pub message: Message,
    /// The id of a call, or of the call to which a result belongs. `None` or empty if the client gives no id.
    pub id: Option<String>,
    /// The index of the client's message in the client's list, for errors. A client's message with several calls or results becomes several messages
    /// with the same index.
    pub from: usize,
}

/// Returns the messages with the results of each turn in the order of their calls. Results without ids stay as written. If `has_earlier` is true,
/// other messages came before the list, so an unknown id may belong to a call in an earlier message.
///
/// # Errors
/// `Input` if no earlier call has the id of a result, or if a call has two results. The error names the message in the list `field`, and its key
/// `key`.
pub fn in_call_order(all: Vec<LinkedMessage>, has_earlier: bool, field: &str, key: &str) -> Result<Vec<Message>> {
    // Each call's id, and the number of earlier messages that are neither calls nor results: calls of one turn have the same number.
    let (mut calls, mut answered): (Vec<(String, usize)>, HashSet<usize>) = (Vec::new(), HashSet::new());
    let mut n_others = 0;
    let (mut ordered, mut results): (Vec<Message>, Vec<(Option<usize>, Message)>) = (Vec::new(), Vec::new());
    let flush = |ordered: &mut Vec<Message>, results: &mut Vec<(Option<usize>, Message)>| {
        if results.iter().all(|(at, _)| at.is_some()) {
            results.sort_by_key(|(at, _)| *at);
        }
        ordered.extend(results.drain(..).map(|(_, message)| message));
    };
    for LinkedMessage { mut message, id, from } in all {
        let id = id.filter(|id| !id.is_empty());
        if message.role == Role::Observation || !message.metadata.is_empty() {
            message.id.clone_from(&id);
        }
        if message.role != Role::Observation {
            flush(&mut ordered, &mut results);
            if !message.metadata.is_empty() || id.is_some() {
                calls.push((id.unwrap_or_default(), n_others));
            } else {
                n_others += 1;
            }
            ordered.push(message);
            continue;
        }
        // Some clients use an id again, in a later turn or for another call of the same turn. The result belongs to the last turn with this id, and
        // there to the first call without a result.
        let last = id.as_ref().and_then(|id| calls.iter().rposition(|(call, _)| call == id));
        let free = |last: &usize| {
            let is_like = |at: &usize| calls[*at] == calls[*last] && !answered.contains(at);
            (0..=*last).find(is_like).unwrap_or(*last)
        };
        let at = last.as_ref().map(free);
        if let Some(id) = &id {
            let wrong =
                |what: &str| Error::input(format!("{what} the id {:?}", short(id, 40))).field(key).field(&format!("{field}[{from}]"));
            match at {
                None if !has_earlier => {
                    return Err(wrong("no earlier message has a call with").hint("send the message with the call, too"));
                }
                Some(at) if !answered.insert(at) => return Err(wrong("an earlier message is already the result of the call with")),
                _ => {}
            }
        }
        results.push((at, message));
    }
    flush(&mut ordered, &mut results);
    Ok(ordered)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ordered(all: &[(Message, &str)], has_earlier: bool) -> Result<Vec<String>> {
        let linked =
            |(from, (message, id)): (usize, &(Message, &str))| LinkedMessage { message: message.clone(), id: Some((*id).into()), from };
        let messages = in_call_order(all.iter().enumerate().map(linked).collect(), has_earlier, "messages", "tool_call_id")?;
        Ok(messages.into_iter().map(|message| message.content).collect())
    }

    #[test]
    fn results_have_the_order_of_their_calls() {
        let (a, b) = (Message::call("f", "a"), Message::call("g", "b"));
        let (of_a, of_b) = (Message::observation("of a"), Message::observation("of b"));
        let user = Message::user("x");
        let turn = |ids: [&'static str; 4]| [a.clone(), b.clone(), of_b.clone(), of_a.clone()].into_iter().zip(ids).collect::<Vec<_>>();
        let sorted = ["a", "b", "of a", "of b"];
        assert_eq!(ordered(&turn(["1", "2", "2", "1"]), false).unwrap(), sorted);
        // Unless every result has an id, results keep the client's order.
        for ids in [["", "", "", ""], ["1", "2", "", "1"]] {
            assert_eq!(ordered(&turn(ids), false).unwrap(), ["a", "b", "of b", "of a"], "{ids:?}");
        }
        // The ids of a turn may occur again in the next turn.
        let twice = [turn(["1", "2", "2", "1"]), vec![(user, "")], turn(["1", "2", "2", "1"])].concat();
        assert_eq!(ordered(&twice, false).unwrap(), [&sorted[..], &["x"], &sorted].concat());
        // Two calls of a turn may have one id.
        assert_eq!(ordered(&turn(["f", "f", "f", "f"]), false).unwrap(), ["a", "b", "of b", "of a"]);
        let e = ordered(&turn(["1", "2", "3", "1"]), false).unwrap_err();
        assert_eq!(
            e.to_string(),
            "messages[2].tool_call_id: no earlier message has a call with the id \"3\" (send the message with the call, too)"
        );
        assert_eq!(ordered(&turn(["1", "2", "3", "1"]), true).unwrap(), ["a", "b", "of b", "of a"]);
        let e = ordered(&turn(["1", "2", "1", "1"]), false).unwrap_err();
        assert_eq!(e.to_string(), "messages[3].tool_call_id: an earlier message is already the result of the call with the id \"1\"");
    }
}
