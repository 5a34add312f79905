//! How tokens are drawn: newlines by schedule, characters that do not repeat, no end of the text, penalties.

use super::super::schedule::{BANNED, Schedule};
use super::*;
use crate::chat::format::Ending;

#[test]
fn newlines_are_scheduled() {
    let schedule = Schedule::reply(Ending::BlankLine, &Settings::default());
    let table = [
        (0, BANNED),
        (1, -3.9),
        (2, -3.8),
        (20, -2.0),
        (39, -0.1),
        (40, 0.0),
        (41, 0.0),
        (150, 0.0),
        (151, 0.25),
        (152, 0.5),
        (161, 2.75),
        (162, 3.0),
        (163, 3.0),
        (998, 3.0),
    ];
    for (i, want) in table {
        assert!((schedule.after(i).newline - want).abs() < 1e-6, "{i}");
    }
}

/// The model's own logits behind tokens.
fn logits_behind(tokens: &[u32]) -> Vec<f32> {
    let mut session = Session::new(&model(), 1).unwrap();
    let slot = session.open().unwrap();
    session.prefill(slot, tokens).unwrap().to_vec()
}

/// What was changed of the model's logits, id by id.
fn changed(behind: &[u32], seen: &[f32]) -> Vec<(u32, f32)> {
    let own = logits_behind(behind);
    let differs = |(id, (own, seen)): (usize, (&f32, &f32))| ((own - seen).abs() > 1e-3).then_some((id as u32, seen - own));
    own.iter().zip(seen).enumerate().filter_map(differs).collect()
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
    // Behind the prompt, then behind each token.
    let newlines = [BANNED, BANNED, -0.1, 0.0, 0.0, 0.0, 0.25, 0.5];
    for (i, seen) in script.seen().iter().enumerate() {
        let behind = [&pre[..], &reply[..i]].concat();
        let mut want = vec![];
        if i > 0 {
            want.push((0, BANNED));
        }
        if newlines[i] != 0.0 {
            want.push((newline, newlines[i]));
        }
        if i > 0 && reply[i - 1] == comma {
            want.push((comma, BANNED));
        }
        let got = changed(&behind, seen);
        let mut ids: Vec<u32> = want.iter().map(|(id, _)| *id).collect();
        ids.sort_unstable();
        assert_eq!(got.iter().map(|(id, _)| *id).collect::<Vec<_>>(), ids, "token {i}");
        for (id, by) in want {
            let got = got.iter().find(|(other, _)| *other == id).unwrap().1;
            assert!((got - by).abs() < 1e-3 + by.abs() * 1e-6, "token {i}, id {id}: {got} for {by}");
        }
    }
}

#[test]
fn free_generations_change_less() {
    let mut chat = bob_and_alice();
    let script = Script::of(&mut chat);
    let (newline, comma, x) = (encode("\n")[0], encode(",")[0], encode("x")[0]);
    for (name, value) in [("FREE_GEN_LEN", "3"), ("AVOID_REPEAT", ",")] {
        chat.set(name, value).unwrap();
    }
    let made = [x, comma, x, x];
    let cases = [("+gen a,", 0.0), ("+qa b", -2.0), ("++", 0.0), ("+++", 0.0)];
    for (line, by) in cases {
        script.says(&made);
        answer(&mut chat, line);
        let from = tokens(&chat, "gen_0");
        for (i, seen) in script.seen().iter().enumerate() {
            let behind = [&from[..], &made[..i]].concat();
            let mut want = vec![];
            if by != 0.0 && i > 0 {
                want.push(newline);
            }
            if behind.last() == Some(&comma) {
                want.push(comma);
            }
            want.sort_unstable();
            let got = changed(&behind, seen);
            assert_eq!(got.iter().map(|(id, _)| *id).collect::<Vec<_>>(), want, "{line}, token {i}");
            assert!(got.iter().all(|(id, got)| *id != newline || (got - by).abs() < 1e-3));
        }
    }
}

/// The loop of the original in floats: the likeliest token after penalties, which are those of this command alone.
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
fn penalties_are_those_of_one_command() {
    let mut chat = bob_and_alice();
    chat.set("preset", "chat").unwrap();
    for (name, value) in [("temperature", "0"), ("FREE_GEN_LEN", "20")] {
        chat.set(name, value).unwrap();
    }
    let newline = encode("\n")[0] as usize;
    let schedule = Schedule::reply(Ending::BlankLine, &Settings::default());
    for line in ["light", "water 12 12"] {
        let answered = answer(&mut chat, line);
        let want = by_hand(&tokens(&chat, "chat_pre"), answered.tokens.len(), |i, logits| {
            logits[newline] += if i == 0 { BANNED } else { schedule.after(i - 1).newline };
            if i > 0 {
                logits[0] = BANNED;
            }
        });
        assert_eq!(decode(&answered.tokens), decode(&want), "{line}");
        assert!(answered.tokens.len() > 5, "{answered:?}");
        assert_eq!(answer(&mut chat, "+").tokens, want, "nothing is left of the penalties");
    }
    let answered = answer(&mut chat, "+gen And it came to pass 10 10 10");
    let want = by_hand(&tokens(&chat, "gen_0"), answered.tokens.len(), |_, _| ());
    assert!(answered.tokens.len() > 5, "{answered:?}");
    assert_eq!(decode(&answered.tokens), decode(&want));
}

#[test]
fn the_random_stream_goes_on_from_answer_to_answer() {
    let said = |seed: &str| {
        let mut chat = bob_and_alice();
        for (name, value) in [("preset", "chat"), ("temperature", "1.5"), ("seed", seed), ("FREE_GEN_LEN", "5"), ("CHAT_LEN_MAX", "6")] {
            chat.set(name, value).unwrap();
        }
        let texts = ["light", "+", "+gen In", "++", "+"].map(|line| answer(&mut chat, line).text);
        chat.override_next(Overrides { temperature: Some(0.2), top_p: None });
        [texts.as_slice(), &[answer(&mut chat, "+").text]].concat()
    };
    let first = said("1");
    assert_eq!(first, said("1"));
    assert!(first[0] != first[1] && first[2] != first[3], "{first:?}");
    assert_ne!(first, said("2"));
    // The same seed again begins its stream again.
    let mut chat = bob_and_alice();
    let mut first = || {
        for (name, value) in [("temperature", "1.5"), ("seed", "1"), ("FREE_GEN_LEN", "5")] {
            chat.set(name, value).unwrap();
        }
        answer(&mut chat, "+gen In").text
    };
    assert_eq!(first(), first());
}
