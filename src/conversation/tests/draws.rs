//! Tests of sampling: the biases of newlines, characters that do not repeat, the banned end of the text, penalties.

use super::super::schedule::{BANNED, Schedule};
use super::*;
use crate::chat::format::ReplyEnd;

#[test]
fn newlines_are_scheduled() {
    let schedule = Schedule::reply(ReplyEnd::BlankLine, &Settings::default());
    let tokens = [0, 1, 2, 20, 39, 40, 41, 150, 151, 152, 161, 162, 163, 998];
    let changes = [BANNED, -3.9, -3.8, -2.0, -0.1, 0.0, 0.0, 0.0, 0.25, 0.5, 2.75, 3.0, 3.0, 3.0];
    for (i, want) in tokens.into_iter().zip(changes) {
        assert!((schedule.after(i).newline - want).abs() < 1e-6, "{i}");
    }
}

/// Returns the model's unchanged logits after `tokens`.
fn logits_after(tokens: &[u32]) -> Vec<f32> {
    let mut session = Session::new(&model(), 1).unwrap();
    let slot = session.open().unwrap();
    session.prefill(slot, tokens).unwrap().to_vec()
}

/// Checks that the logits `seen` differ from the model's logits after `tokens` exactly as `want` lists: pairs of a token and its change.
/// Changes of 0 are ignored.
fn assert_changed(tokens: &[u32], seen: &[f32], want: &[(u32, f32)], what: &str) {
    let own = logits_after(tokens);
    let mut want: Vec<(u32, f32)> = want.iter().copied().filter(|(_, by)| *by != 0.0).collect();
    want.sort_by_key(|(id, _)| *id);
    let differs = |(id, (own, seen)): (usize, (&f32, &f32))| ((own - seen).abs() > 1e-3).then_some((id as u32, seen - own));
    let got: Vec<(u32, f32)> = own.iter().zip(seen).enumerate().filter_map(differs).collect();
    let is_near = |((id, got), (other, by)): (&(u32, f32), &(u32, f32))| id == other && (got - by).abs() < 1e-3 + by.abs() * 1e-6;
    assert!(got.len() == want.len() && got.iter().zip(&want).all(is_near), "{what}: {got:?} for {want:?}");
}

#[test]
fn logits_of_a_reply_are_changed_as_the_original_does() {
    let mut chat = bob_and_alice();
    let script = Script::of(&mut chat);
    for (name, value) in [("CHAT_LEN_SHORT", "2"), ("CHAT_LEN_LONG", "4"), ("AVOID_REPEAT", ",!ß"), ("CHAT_LEN_MAX", "8")] {
        chat.set(name, value).unwrap();
    }
    let (newline, comma, x) = (encode("\n")[0], encode(",")[0], encode("x")[0]);
    let reply = [x, comma, x, comma, comma, x, x, x];
    script.says(&reply);
    answer(&mut chat, "hi");
    let pre = tokens(&chat, "chat_pre");
    // The bias of newlines after the prompt, then after each token.
    let newlines = [BANNED, BANNED, -0.1, 0.0, 0.0, 0.0, 0.25, 0.5];
    for (i, seen) in script.seen().iter().enumerate() {
        let mut want = vec![(newline, newlines[i])];
        if i > 0 {
            want.extend([(0, BANNED), (comma, if reply[i - 1] == comma { BANNED } else { 0.0 })]);
        }
        assert_changed(&[&pre[..], &reply[..i]].concat(), seen, &want, &format!("token {i}"));
    }
}

#[test]
fn free_generations_change_less() {
    let mut chat = bob_and_alice();
    let script = Script::of(&mut chat);
    let (newline, comma, x) = (encode("\n")[0], encode(",")[0], encode("x")[0]);
    for (name, value) in [("FREE_GEN_LEN", "2"), ("AVOID_REPEAT", ",")] {
        chat.set(name, value).unwrap();
    }
    let made = [x, comma, x];
    // Each command with the bias of newlines after the prompt, then after each token. The state after `+qa` keeps the bias, as in ChatRWKV.
    let cases =
        [("+gen a,", 0.0, 0.0), ("+qa b", 0.0, -2.0), ("++", 0.0, 0.0), ("+qa b", 0.0, -2.0), ("+++", -2.0, 0.0), ("+++", 0.0, 0.0)];
    for (line, first, after) in cases {
        script.says(&made);
        answer(&mut chat, line);
        let from = tokens(&chat, "gen_0");
        for (i, seen) in script.seen().iter().enumerate() {
            let read = [&from[..], &made[..i]].concat();
            let avoided = if read.last() == Some(&comma) { BANNED } else { 0.0 };
            let want = [(newline, if i == 0 { first } else { after }), (comma, avoided)];
            assert_changed(&read, seen, &want, &format!("{line}, token {i}"));
        }
    }
}

/// ChatRWKV's sampling loop, with penalties as floats. Returns the `n` tokens after `prompt`, each the most probable token after the penalties.
fn by_hand(prompt: &[u32], n: usize, change: impl Fn(usize, &mut [f32])) -> Vec<u32> {
    let mut session = Session::new(&model(), 1).unwrap();
    let slot = session.open().unwrap();
    let mut logits = session.prefill(slot, prompt).unwrap().to_vec();
    let (mut counts, mut made): (Vec<(u32, f32)>, Vec<u32>) = (Vec::new(), Vec::new());
    for i in 0..n {
        change(i, &mut logits);
        counts.iter().for_each(|&(id, count)| logits[id as usize] -= 0.4 + count * 0.4);
        let best = (0..logits.len()).reduce(|best, id| if logits[id] > logits[best] { id } else { best }).unwrap() as u32;
        counts.iter_mut().for_each(|(_, count)| *count *= 0.996);
        match counts.iter_mut().find(|(id, _)| *id == best) {
            Some((_, count)) => *count += 1.0,
            None => counts.push((best, 1.0)),
        }
        made.push(best);
        logits = session.decode(slot, best).unwrap().to_vec();
    }
    made
}

#[test]
fn penalties_count_one_command() {
    let mut chat = bob_and_alice();
    chat.set("preset", "chat").unwrap();
    for (name, value) in [("temperature", "0"), ("FREE_GEN_LEN", "20")] {
        chat.set(name, value).unwrap();
    }
    let newline = encode("\n")[0] as usize;
    let schedule = Schedule::reply(ReplyEnd::BlankLine, &Settings::default());
    for line in ["Tell me a story.", "Tell me a story about a fox 12 12"] {
        let answered = answer(&mut chat, line);
        let want = by_hand(&tokens(&chat, "chat_pre"), answered.tokens.len(), |i, logits| {
            logits[newline] += if i == 0 { BANNED } else { schedule.after(i - 1).newline };
            if i > 0 {
                logits[0] = BANNED;
            }
        });
        assert_eq!(decode(&answered.tokens), decode(&want), "{line}");
        assert!(answered.tokens.len() > 5, "{answered:?}");
        assert_eq!(answer(&mut chat, "+").tokens, want, "penalties restart");
    }
    let answered = answer(&mut chat, "+gen Once upon a time there was a fox 10 10 10 named");
    let want = by_hand(&tokens(&chat, "gen_0"), answered.tokens.len(), |_, _| ());
    assert!(answered.tokens.len() > 5, "{answered:?}");
    assert_eq!(decode(&answered.tokens), decode(&want));
}

#[test]
fn the_random_stream_continues_from_answer_to_answer() {
    let said = |seed: &str| {
        let mut chat = bob_and_alice();
        for (name, value) in
            [("preset", "chat"), ("temperature", "1.5"), ("top_p", "1"), ("seed", seed), ("FREE_GEN_LEN", "5"), ("CHAT_LEN_MAX", "6")]
        {
            chat.set(name, value).unwrap();
        }
        let texts = ["light", "+", "+gen A", "++", "+"].map(|line| answer(&mut chat, line).text);
        chat.override_next(Overrides { temperature: Some(0.2), top_p: None });
        [texts.as_slice(), &[answer(&mut chat, "+").text]].concat()
    };
    let first = said("1");
    assert_eq!(first, said("1"));
    assert!(first[0] != first[1] && first[2] != first[3], "{first:?}");
    assert_ne!(first, said("2"));
    // Setting the same seed again restarts the random stream.
    let mut chat = bob_and_alice();
    let mut first = || {
        for (name, value) in [("temperature", "1.5"), ("seed", "1"), ("FREE_GEN_LEN", "5")] {
            chat.set(name, value).unwrap();
        }
        answer(&mut chat, "+gen In").text
    };
    assert_eq!(first(), first());
}
