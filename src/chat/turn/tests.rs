//! Turns on the embedded model, whose words are put in its mouth by a processor; its vocabulary is a small one of GLM-4's kind.
#![cfg(feature = "embedded-model")]

use super::*;
use crate::sample::Sampling;
use crate::session::{Model, ModelSource};
use crate::template::testing::{MERGES, small, weather};
use crate::template::{Glm4, Version};
use crate::tensor::DType;
use crate::weights::{Entry, write_safetensors};

fn session() -> Session {
    let options = crate::session::Options { device: "cpu".into(), ..Default::default() };
    Session::new(&Model::load(&ModelSource::Embedded, &options, &mut |_, _| ()).unwrap(), 2).unwrap()
}

fn options() -> Options {
    Options::new(Arc::new(Glm4(Version::Original)))
}

fn special(text: &str) -> u32 {
    small().special(text).unwrap()
}

/// Makes the model say these ids, whatever it thinks.
fn says(ids: &[u32]) -> Processor {
    let ids = ids.to_vec();
    Box::new(move |so_far, logits| {
        logits.fill(-10.0);
        logits[ids[so_far.len()] as usize] = 10.0;
    })
}

fn said(text: &str, end: &str) -> Vec<u32> {
    let mut ids = small().encode(text.as_bytes()).unwrap();
    ids.push(special(end));
    ids
}

fn turn<'a>(slot: Slot, history: &'a [Message], query: Message, ids: &[u32]) -> Turn<'a> {
    Turn { processor: Some(says(ids)), ..Turn::new(slot, history, query) }
}

fn run(session: &mut Session, turn: Turn<'_>, options: &Options) -> Result<Reply> {
    answer(session, &small(), turn, options, &mut |_| ControlFlow::Continue(()))
}

#[test]
fn a_conversation_goes_through_a_tool() {
    let (mut session, options) = (session(), options());
    let slot = session.open().unwrap();
    let system = [Message::system("").with_tools(vec![weather()])];
    // a call ends with the token that begins the observation
    let ids = said("get_weather\n{\"city\": \"x\"}", "<|observation|>");
    let call = run(&mut session, turn(slot, &system, Message::user("?"), &ids), &options).unwrap();
    assert!(matches!(&call.answer, Answer::Call { name, parameters: Ok(p), .. } if name == "get_weather" && p["city"] == "x"), "{call:?}");
    assert_eq!((call.finish, call.history.len(), call.n_guarded), (Finish::Eos, 3, 0));
    assert_eq!(call.tokens, ids[..ids.len() - 1], "the id that ended it is none of its tokens");
    assert_eq!(call.history[2], Message::call("get_weather", "{\"city\": \"x\"}"));
    assert_eq!(session.n_tokens(slot).unwrap(), call.prompt.len() + call.tokens.len(), "and the slot has not read it");
    // what was said is the beginning of what is said next
    let reply =
        run(&mut session, turn(slot, &call.history, Message::observation("7"), &said("\n7 degrees", "<|user|>")), &options).unwrap();
    assert!(matches!(&reply.answer, Answer::Text(text) if text == "7 degrees"));
    assert_eq!(reply.prompt[..call.prompt.len() + call.tokens.len()], [call.prompt, call.tokens].concat());
    assert_eq!(reply.prompt[..].iter().filter(|&&id| id == special("[gMASK]")).count(), 1);
    assert_eq!((reply.history.len(), &reply.history[4]), (5, &Message::assistant("7 degrees")));
}

#[test]
fn each_of_three_ids_ends_an_answer() {
    let (mut session, options) = (session(), options());
    let slot = session.open().unwrap();
    for end in ["<|endoftext|>", "<|user|>", "<|observation|>"] {
        let reply = run(&mut session, turn(slot, &[], Message::user("x"), &said("\nab", end)), &options).unwrap();
        assert_eq!((reply.finish, reply.answer.content()), (Finish::Eos, "ab"), "{end}");
    }
    // those of the configuration come on top, those of the caller instead
    let b = small().encode(b"b").unwrap();
    let mut with_eos = options.clone();
    with_eos.generation.eos = b.clone();
    let reply = run(&mut session, turn(slot, &[], Message::user("x"), &said("\nab", "<|user|>")), &with_eos).unwrap();
    assert_eq!((reply.finish, reply.answer.content()), (Finish::Eos, "a"));
    let reply = run(&mut session, turn(slot, &[], Message::user("x"), &said("\na", "<|user|>")), &with_eos).unwrap();
    assert_eq!(reply.finish, Finish::Eos);
    let own = Options { stop_ids: Some(b), ..options };
    let ids = [said("\na", "<|user|>"), said("ab", "<|user|>")].concat();
    let reply = run(&mut session, turn(slot, &[], Message::user("x"), &ids), &own).unwrap();
    assert_eq!(reply.answer.content(), "a<|user|>a", "what ends nothing is in the text");
}

#[test]
fn a_length_takes_nothing_from_the_answer() {
    let (mut session, mut options) = (session(), options());
    let slot = session.open().unwrap();
    let ids = small().encode("\nabcdef".as_bytes()).unwrap();
    options.generation.max_new_tokens = Some(4);
    let reply = run(&mut session, turn(slot, &[], Message::user("x"), &ids), &options).unwrap();
    assert_eq!((reply.finish, reply.answer.content(), reply.tokens.len()), (Finish::Length, "abc", 4));
    // the same in all
    options.generation.max_new_tokens = None;
    options.generation.max_length = reply.prompt.len() + 4;
    let total = run(&mut session, turn(slot, &[], Message::user("x"), &ids), &options).unwrap();
    assert_eq!((total.finish, total.tokens), (Finish::Length, reply.tokens));
    options.generation.max_length = reply.prompt.len();
    let e = run(&mut session, turn(slot, &[], Message::user("x"), &ids), &options).unwrap_err();
    assert!(e.to_string().starts_with("max_length: expected a prompt of fewer than"), "{e}");
}

#[test]
fn ids_of_padding_have_no_text() {
    let (mut session, options) = (session(), options());
    let slot = session.open().unwrap();
    let padding = 256 + MERGES.len() as u32 + 14;
    let ids = [small().encode(b"\na").unwrap(), vec![padding, 2046], said("b", "<|user|>")].concat();
    let reply = run(&mut session, turn(slot, &[], Message::user("x"), &ids), &options).unwrap();
    assert_eq!((reply.answer.content(), reply.tokens.len()), ("ab", 5));
}

#[test]
fn the_caller_may_break_it_off() {
    let (mut session, mut options) = (session(), options());
    let slot = session.open().unwrap();
    let ids = said("\nab cd", "<|user|>");
    let mut heard = String::new();
    let reply = answer(&mut session, &small(), turn(slot, &[], Message::user("x"), &ids), &options, &mut |delta| {
        match delta {
            Delta::Text(text) => heard += text,
            Delta::Begin { name } => assert_eq!(name, ""),
        }
        if heard.len() == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    let reply = reply.unwrap();
    assert_eq!((reply.finish, reply.answer.content(), heard.as_str()), (Finish::Interrupted, "ab", "ab"));
    let mut n_heard = 0;
    let ids = said("\nab [", "<|user|>");
    let reply = answer(&mut session, &small(), turn(slot, &[], Message::user("x"), &ids), &options, &mut |_| {
        n_heard += 1;
        ControlFlow::Break(())
    });
    assert_eq!((reply.unwrap().finish, n_heard), (Finish::Interrupted, 1), "whoever breaks off hears no more");
    let ids = said("\nab cd", "<|user|>");
    // a criterion over tokens
    let mut turn_with = turn(slot, &[], Message::user("x"), &ids);
    turn_with.stop_when = Some(Box::new(|tokens| tokens.len() == 3));
    let reply = run(&mut session, turn_with, &options).unwrap();
    assert_eq!((reply.finish, reply.answer.content(), reply.tokens.len()), (Finish::Stop, "ab", 3));
    // a stop text
    options.generation.stop_strings = vec!["b ".into()];
    let reply = run(&mut session, turn(slot, &[], Message::user("x"), &ids), &options).unwrap();
    assert_eq!((reply.finish, reply.answer.content()), (Finish::Stop, "a"));
}

#[test]
fn settings_decide_what_is_drawn() {
    let (mut session, mut options) = (session(), options());
    let slot = session.open().unwrap();
    options.stop_ids = Some(vec![]);
    options.generation = GenerationConfig { max_new_tokens: Some(20), do_sample: false, ..GenerationConfig::glm() };
    let tokens = |options: &Options, session: &mut Session| {
        let reply = run(session, Turn::new(slot, &[], Message::user("hello")), options).unwrap();
        assert_eq!(reply.timings.prefill_tokens, reply.prompt.len());
        reply
    };
    let greedy = tokens(&options, &mut session);
    // as the session does it
    let other = session.open().unwrap();
    session.prefill(other, &greedy.prompt).unwrap();
    let request = Request { stop_ids: Some(vec![]), ..Request::new(20) };
    let mut streams = [Stream::new(other, Sampler::new(Sampling::greedy(0)), &request)];
    session.continue_many(&mut streams, &request, &mut |_| ControlFlow::Continue(())).unwrap();
    assert_eq!(greedy.tokens, streams[0].tokens);
    session.close(other).unwrap();
    // the same from a slot that stands elsewhere, and after a seed
    assert_eq!(tokens(&options, &mut session).tokens, greedy.tokens);
    options.generation.do_sample = true;
    options.generation.temperature = 2.0;
    let sampled = tokens(&options, &mut session).tokens;
    assert_ne!(sampled, greedy.tokens);
    assert_eq!(tokens(&options, &mut session).tokens, sampled);
    options.generation.seed = 1;
    assert_ne!(tokens(&options, &mut session).tokens, sampled);
    // no token of the prompt, and none twice
    options.generation =
        GenerationConfig { max_new_tokens: Some(20), do_sample: false, repetition_penalty: 1e6, ..GenerationConfig::glm() };
    let reply = tokens(&options, &mut session);
    let mut all = reply.tokens.clone();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 20);
    assert!(all.iter().all(|id| !reply.prompt.contains(id)), "the penalty counts the prompt");
}

#[test]
fn the_guard_keeps_a_text_going_and_counts() {
    let (mut session, mut options) = (session(), options());
    let slot = session.open().unwrap();
    options.generation.max_new_tokens = Some(3);
    // the guard looks at the model's logits, not at those of a processor that forbids something
    let mut forbids = says(&said("\na", "<|user|>"));
    let processor: Processor = Box::new(move |so_far, logits| {
        forbids(so_far, logits);
        logits.iter_mut().filter(|x| **x < 0.0).for_each(|x| *x = f32::NEG_INFINITY);
    });
    let reply = run(&mut session, Turn { processor: Some(processor), ..Turn::new(slot, &[], Message::user("x")) }, &options).unwrap();
    assert_eq!((reply.answer.content(), reply.n_guarded), ("a", 0));
    // one of the model's own is no number
    let folder = tempfile::tempdir().unwrap();
    let mut session = Session::new(&failing(&folder.path().join("failing.safetensors")), 1).unwrap();
    let slot = session.open().unwrap();
    for processor in [None, Some(says(&[7, 7, 7]))] {
        let reply = run(&mut session, Turn { processor, ..Turn::new(slot, &[], Message::user("x")) }, &options).unwrap();
        assert_eq!((reply.tokens, reply.n_guarded, reply.finish), (vec![198; 3], 3, Finish::Length));
    }
    // off
    options.guard = None;
    let reply = run(&mut session, turn(slot, &[], Message::user("x"), &[7, 7, 7]), &options).unwrap();
    assert_eq!((reply.tokens, reply.n_guarded), (vec![7; 3], 0));
}

/// The embedded model with a NaN in its head.
fn failing(path: &std::path::Path) -> Model {
    let checkpoint = crate::session::embedded().unwrap();
    let entry = |name: &str| {
        let view = checkpoint.tensor(name).unwrap();
        let mut numbers = view.to_f32().unwrap();
        if name == "head.weight" {
            *numbers.last_mut().unwrap() = f32::NAN;
        }
        let bytes: Vec<u8> = numbers.iter().flat_map(|x| x.to_le_bytes()).collect();
        let data = move |out: &mut dyn std::io::Write| out.write_all(&bytes).map_err(|e| Error::io(e, "made".as_ref()));
        Entry { name: name.into(), dtype: DType::F32, shape: view.shape().to_vec(), data: Box::new(data) }
    };
    write_safetensors(path, checkpoint.metadata(), checkpoint.names().map(entry).collect(), &mut |_, _| ()).unwrap();
    let options = crate::session::Options { device: "cpu".into(), ..Default::default() };
    Model::load(&ModelSource::Path(path.into()), &options, &mut |_, _| ()).unwrap()
}

#[test]
fn what_is_no_turn_is_refused() {
    let (mut session, mut options) = (session(), options());
    let slot = session.open().unwrap();
    for query in [Message::system("x"), Message::assistant("x")] {
        let e = run(&mut session, Turn::new(slot, &[], query), &options).unwrap_err();
        assert!(e.to_string().contains("expected a query of user or observation, found one of"), "{e}");
    }
    options.generation.num_beams = 4;
    let e = run(&mut session, Turn::new(slot, &[], Message::user("x")), &options).unwrap_err();
    assert!(e.to_string().starts_with("num_beams: expected 1, found 4"), "{e}");
    // the embedded model's own vocabulary has no special tokens
    let e = chat(&mut session, Turn::new(slot, &[], Message::user("x")), &Options { generation: GenerationConfig::glm(), ..options });
    assert!(e.unwrap_err().to_string().contains("special token [gMASK]"));
    assert_eq!(session.n_tokens(slot).unwrap(), 0, "and nothing was read");
}

/// A model with attention goes back to what two prompts have in common. Its file is not part of the crate's package.
#[test]
fn the_next_turn_reads_only_what_is_new() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/models/tiny-glm4");
    if !std::path::Path::new(folder).is_dir() {
        println!("SKIPPED the_next_turn_reads_only_what_is_new: there is no {folder}");
        return;
    }
    let own = crate::session::Options { device: "cpu".into(), vocab: Some("tiny".into()), cache_dtype: "f32".into(), ..Default::default() };
    let model = Model::load(&ModelSource::Path(folder.into()), &own, &mut |_, _| ()).unwrap();
    let mut session = Session::new(&model, 2).unwrap();
    let mut options = options();
    let slot = session.open().unwrap();
    let first = run(&mut session, turn(slot, &[], Message::user("x"), &said("\nab", "<|user|>")), &options).unwrap();
    assert_eq!((first.n_reused, first.answer.content()), (0, "ab"));
    options.generation = GenerationConfig { max_new_tokens: Some(8), do_sample: false, ..GenerationConfig::glm() };
    options.stop_ids = Some(vec![]);
    let reply = run(&mut session, Turn::new(slot, &first.history, Message::user("y")), &options).unwrap();
    assert_eq!(reply.n_reused, first.prompt.len() + first.tokens.len(), "the answer too");
    assert_eq!(reply.timings.prefill_tokens, reply.prompt.len() - reply.n_reused);
    // another question in its place
    let again = run(&mut session, Turn::new(slot, &first.history, Message::user("z")), &options).unwrap();
    assert_eq!(again.n_reused, reply.prompt.len() - 2, "up to what is asked");
    let fresh = session.open().unwrap();
    for (question, reused) in [("y", &reply), ("z", &again)] {
        session.rewind(fresh, 0).unwrap();
        let read = run(&mut session, Turn::new(fresh, &first.history, Message::user(question)), &options).unwrap();
        assert_eq!((read.n_reused, &read.tokens), (0, &reused.tokens));
    }
}
