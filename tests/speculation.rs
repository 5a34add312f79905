//! Tests speculation: a text must be the same with guesses and without, for every proposer and any number of wrong guesses, and so must its state.

mod beside;

use crate::support::{Golden, adapter, caps, goldens, made, options, root, runs_all, tiny, unwatched};
use std::collections::HashMap;
use wingbeat::constrain::{Follower, Grammar, Pieces};
use wingbeat::engine::{Engine, EngineOptions, Event, Request, Rules};
use wingbeat::low_level::arch::{Base, DeepAttention, Ranks, Rwkv7};
use wingbeat::low_level::exec::gpu::Device;
use wingbeat::low_level::sample::{Memory, Sampler, Sampling};
use wingbeat::low_level::session::{
    Batcher, Finish, Idle, Keeps, Limits, Logprobs, Model, ModelSource, Options, Proposer, Session, Speculate, Speculation, TextId,
    TextSpec, Wish,
};
use wingbeat::low_level::tape::Class;

/// Calls `each` with one model of every architecture on the device of `options`.
fn models(options: &mut Options, each: &mut dyn FnMut(&str, Model)) {
    options.deterministic = true;
    // With these chunks, some prompts take several steps, and the last step of some prompts has one token.
    options.chunk = Some(16);
    let folder = tempfile::tempdir().unwrap();
    let written = |name: &str, attention: Option<DeepAttention>| {
        let path = folder.path().join(name);
        let ranks = Ranks { w: 8, a: 9, v: 7, g: 10 };
        let base = Base { n_layer: 3, ..Base::new(48, 200, 16, 40) };
        made::write(&Rwkv7 { base, ranks, deep_embed: Some(32), attention }, &path);
        ModelSource::Path(path)
    };
    goldens().for_each(|tiny| each(tiny.name, tiny.load(options)));
    let mut sources =
        vec![("rwkv7a", written("a.safetensors", None)), ("rwkv7b", written("b.safetensors", Some(DeepAttention::PUBLISHED)))];
    sources.extend(Golden::of_made("flash").map(|_| ("flash", ModelSource::Path(root().join("tests/models/flash")))));
    for (name, source) in &sources {
        each(name, Model::load(source, options, &mut |_, _| ()).unwrap());
    }
}

/// Calls `each` like [`models`], on the adapter with the kernels of one class. Does nothing if the machine has no adapter.
fn models_on(class: Class, each: &mut dyn FnMut(&str, Model)) {
    let Some(adapter) = adapter() else { return };
    let base = Device::open(&adapter, true).unwrap();
    let mut options = options("gpu");
    options.gpu = Some(unwatched(&base, caps(base.caps.clone(), class)));
    models(&mut options, each);
}

/// A request, made from the number `i`. Equal numbers give equal requests.
struct Case {
    i: usize,
    prompt: Vec<u32>,
    sampling: Sampling,
    limits: Limits,
    n_logprobs: Option<usize>,
    n_prompt_logprobs: Option<usize>,
    n: usize,
    has_rules: bool,
}

fn case(i: usize, model: &Model) -> Case {
    let n_vocab = model.facts().n_vocab.min(250);
    let random = |k: usize| (((i * 31 + k * 17 + 5) * 2_654_435_761) >> 7) % 1000;
    // The prompt repeats itself, so that there is something to guess.
    let part: Vec<u32> =
        (0..5 + random(1) % 12).map(|k| ((i * 7 + k * k * 3 + k) % (n_vocab - 34).max(1) + 33).min(n_vocab - 1) as u32).collect();
    let n_prompt = match i % 9 {
        2 => 1,
        6 => 17,
        _ => part.len() * (1 + random(2) % 3) + random(3) % part.len(),
    };
    let prompt = part.iter().cycle().take(n_prompt).copied().collect();
    let seed = i as u64;
    let base = || Sampling { seed, ..Sampling::rwkv() };
    let mut sampling = match i % 8 {
        0 | 1 => Sampling::greedy(seed),
        2 => base(),
        3 => Sampling { temperature: 0.4, top_p: 0.9, ..base() },
        4 => Sampling { dry_multiplier: 1.5, dry_allowed_length: 3, ..base() },
        5 => Sampling { mirostat: 3.0, ..base() },
        6 => Sampling { repeat_penalty: 1.3, repeat_last_n: Some(12), top_k: 20, ..base() },
        _ => Sampling { typical: 0.8, min_p: 0.02, ..base() },
    };
    if i % 3 == 1 {
        (sampling.presence_penalty, sampling.frequency_penalty) = (0.6, 0.4);
    }
    let mut limits = Limits::new([1, 2, 40, 17, 25, 33, 60][random(4) % 7]);
    if i.is_multiple_of(4) {
        limits.stop_texts = vec!["the".into(), "\n\n".into()];
    }
    if i.is_multiple_of(5) {
        limits.stop_ids = Some(vec![part[part.len() / 2]]);
    }
    let has_rules = i % 6 == 5 && model.vocab().is_some_and(|vocab| vocab.len() > 200);
    let n = if i % 7 == 3 { 3 } else { 1 };
    Case {
        i,
        prompt,
        sampling,
        limits,
        n_logprobs: (i % 4 == 2).then_some(3),
        n_prompt_logprobs: (n == 1 && i % 3 != 1).then_some(2),
        n,
        has_rules,
    }
}

/// Log-probabilities at one token: the token, the bits of its log-probability, and the most likely tokens with the bits of theirs.
type Bits = (u32, u32, Vec<(u32, u32)>);

fn bits(of: &Logprobs) -> Bits {
    (of.token, of.logprob.to_bits(), of.top.iter().map(|(id, logprob)| (*id, logprob.to_bits())).collect())
}

/// The results of a job: text, sampler and state.
#[derive(Debug, Clone, PartialEq)]
struct Outcome {
    tokens: Vec<u32>,
    text: String,
    finish: Finish,
    complete: Option<bool>,
    pending: Vec<u8>,
    memory: Memory,
    logprobs: Vec<Bits>,
    prompt_logprobs: Vec<Bits>,
    n_read: usize,
    state: String,
    /// The bits of the logits after the text and one more token.
    next: Vec<u32>,
}

/// A proposer that guesses from known texts. A guess is wrong if `is_wrong` returns true for its position.
struct Oracle {
    texts: HashMap<usize, Vec<u32>>,
    is_wrong: fn(usize) -> bool,
    n_vocab: usize,
}

impl Proposer for Oracle {
    fn kind(&self) -> Option<Speculate> {
        Some(Speculate::Draft)
    }
    fn expected(&self) -> f64 {
        0.9
    }
    fn propose(&mut self, wishes: &mut [Wish<'_>]) {
        for wish in wishes {
            let at = wish.text.tokens.len();
            let known = self.texts.get(&wish.key()).and_then(|text| text.get(at..)).unwrap_or_default();
            for (k, &token) in known.iter().take(wish.most).enumerate() {
                let wrong = (token + 1) % self.n_vocab as u32;
                wish.guesses.push(if (self.is_wrong)(at + k) { wrong } else { token });
            }
        }
    }
}

/// The proposer of a test.
enum By<'a> {
    Nobody,
    Ngram,
    Forced,
    Auto,
    Draft(&'a Model),
    Oracle(fn(usize) -> bool),
}

/// Runs jobs for `cases` in a batch. `known` has their results without guesses. Returns the results, the number of checked guesses, and the number of
/// right guesses.
fn run(
    model: &Model,
    cases: &[Case],
    follower: Option<&Follower>,
    by: &By<'_>,
    n_guesses: Option<usize>,
    known: &[Outcome],
) -> (Vec<Outcome>, [usize; 2]) {
    const SLOTS: usize = 4;
    let mut batcher = Batcher::new(Session::with_idle(model, SLOTS, Idle { guesses: true, ..Idle::default() }).unwrap());
    let speculate = match by {
        By::Nobody => Speculate::Off,
        By::Ngram => Speculate::Ngram,
        By::Forced => Speculate::Forced,
        By::Auto => Speculate::Auto,
        By::Draft(_) | By::Oracle(_) => Speculate::Draft,
    };
    match by {
        By::Draft(draft) => batcher.set_draft(draft, SLOTS).unwrap(),
        By::Oracle(is_wrong) => {
            let texts = known.iter().map(|outcome| outcome.tokens.clone()).enumerate().collect();
            batcher.add_proposer(Box::new(Oracle { texts, is_wrong: *is_wrong, n_vocab: model.facts().n_vocab }));
        }
        _ => {}
    }
    let mut waiting = cases.iter().peekable();
    let (mut ids, mut logprobs, mut of_prompts) = (Vec::new(), HashMap::<TextId, Vec<Bits>>::new(), HashMap::<TextId, Vec<Bits>>::new());
    let (mut found, mut kept) = (HashMap::new(), HashMap::new());
    let mut counts = [0; 2];
    let n_all: usize = cases.iter().map(|case| case.n).sum();
    while found.len() < n_all {
        while let Some(case) = waiting.peek()
            && batcher.n_free() >= case.n
        {
            let jobs = (0..case.n as u64).map(|k| {
                let sampling = Sampling { seed: case.sampling.seed + 1000 * k, ..case.sampling.clone() };
                let mut job = TextSpec::new(case.prompt.clone(), Sampler::new(sampling), case.limits.clone());
                job.speculation = Speculation { by: speculate, n_guesses };
                job.n_logprobs = case.n_logprobs;
                job.n_prompt_logprobs = case.n_prompt_logprobs;
                job.constraint = follower.filter(|_| case.has_rules).map(|follower| Box::new(follower.clone()) as _);
                job.keeps = Keeps { end: true, whole: true, pending: case.i % 2 == 0, ..Keeps::default() };
                job
            });
            ids.extend(batcher.add_alike(jobs.collect()).unwrap());
            waiting.next();
        }
        let done = batcher.step(&mut |job, event| logprobs.entry(job).or_default().extend(event.logprobs.map(bits)));
        of_prompts.extend(batcher.take_prompt_logprobs().iter().map(|(job, all)| (*job, all.iter().map(bits).collect())));
        let done = done.unwrap();
        kept.extend(batcher.take_kept().into_iter().map(|kept| (kept.id, kept.slot)));
        for done in done {
            let output = done.output.unwrap();
            counts = [counts[0] + output.drafted, counts[1] + output.accepted];
            let session = batcher.session_mut();
            let slot = kept[&done.id];
            let (n_read, state) = (session.n_tokens(slot).unwrap(), session.snapshot(slot).unwrap().digest());
            let next = session.decode(slot, 35).unwrap().iter().map(|x| x.to_bits()).collect();
            session.close(slot).unwrap();
            let of = |of: &mut HashMap<TextId, Vec<Bits>>| of.remove(&done.id).unwrap_or_default();
            let (logprobs, prompt_logprobs) = (of(&mut logprobs), of(&mut of_prompts));
            let memory = output.spec.sampler.memory();
            let (finish, pending) = (output.reason(), output.pending());
            let (tokens, text, complete) = (output.tokens, output.text, output.complete);
            found.insert(
                done.id,
                Outcome { tokens, text, finish, complete, pending, memory, logprobs, prompt_logprobs, n_read, state, next },
            );
        }
    }
    assert_eq!(batcher.n_free(), SLOTS);
    (ids.iter().map(|id| found.remove(id).unwrap()).collect(), counts)
}

fn follower(model: &Model) -> Option<Follower> {
    let vocab = model.vocab().filter(|vocab| vocab.len() > 200)?;
    let grammar =
        Grammar::gbnf(r#"root ::= "{\"name\": \"" [a-z ]{1,12} "\", \"is_known\": " ("true" | "false") ", \"more\": [" [0-9]{2} "]}""#)
            .unwrap();
    Some(Pieces::new(vocab, model.facts().n_vocab).unwrap().follow(&grammar).unwrap())
}

/// Compares the texts of `n` requests with guesses and without. `n_guesses` lists numbers of guesses per step.
fn compare(name: &str, model: &Model, n: usize, n_guesses: &[usize]) {
    let mut cases: Vec<Case> = (0..n).map(|i| case(i, model)).collect();
    if n < 6 {
        // A few texts must be long enough for guesses.
        cases.iter_mut().for_each(|case| case.limits = Limits { stop_ids: Some(Vec::new()), ..Limits::new(16) });
    }
    let follower = follower(model);
    let run = |cases: &[Case], by: &By<'_>, n_guesses, known: &[Outcome]| run(model, cases, follower.as_ref(), by, n_guesses, known);
    let (known, none) = run(&cases, &By::Nobody, None, &[]);
    assert_eq!(none, [0, 0]);
    let check = |what: &str, by: &By<'_>, n_guesses: Option<usize>| {
        let (found, counts) = run(&cases, by, n_guesses, &known);
        for (i, (found, known)) in found.iter().zip(&known).enumerate() {
            assert_eq!(found, known, "{name}: {what}, {n_guesses:?} guesses, text {i}");
        }
        counts
    };
    let mut sums = [[0; 2]; 4];
    for &n_guesses in n_guesses {
        let n_guesses = Some(n_guesses);
        let counts = [
            check("always right", &By::Oracle(|_| false), n_guesses),
            check("always wrong", &By::Oracle(|_| true), n_guesses),
            check("sometimes wrong", &By::Oracle(|at| at * 7 % 5 == 1), n_guesses),
            check("repetitions", &By::Ngram, n_guesses),
        ];
        sums.iter_mut().zip(counts).for_each(|(sum, counts)| *sum = [sum[0] + counts[0], sum[1] + counts[1]]);
    }
    let [right, wrong, mixed, ngram] = sums;
    assert!(right[0] > 0 && right[1] == right[0], "{name}: {right:?}");
    assert!(wrong[0] > 0 && wrong[1] == 0, "{name}: {wrong:?}");
    assert!(mixed[1] > 0 && mixed[1] < mixed[0], "{name}: {mixed:?}");
    assert!(ngram[0] > 0 || n < 6, "{name}");
    check("what pays", &By::Auto, None);
    if follower.is_some() && cases.iter().any(|case| case.has_rules) {
        let forced = check("rules", &By::Forced, Some(6));
        assert!(forced[1] > forced[0] / 2, "{name}: {forced:?}");
    }
    check("its own draft", &By::Draft(model), Some(4));
    // The model as its own draft is nearly always right, also for sampled tokens. But a draft does not know the rules of a text, and reads only the
    // last tokens of a prompt of more than 32 tokens.
    let free: Vec<Case> = cases.into_iter().filter(|case| case.prompt.len() <= 32).map(|case| Case { has_rules: false, ..case }).collect();
    let (_, own) = run(&free, &By::Draft(model), Some(3), &[]);
    assert!(own[1] * 20 > own[0] * 19, "{name}: {own:?}");
}

fn count(short: usize, long: usize) -> usize {
    if runs_all() { long } else { short }
}

#[test]
fn texts_and_states_do_not_depend_on_guesses_on_the_cpu() {
    models(&mut options("cpu"), &mut |name, model| {
        compare(name, &model, count(12, 200), if runs_all() { &[1, 2, 3, 5, 8] } else { &[1, 3, 8] })
    });
}

#[test]
fn texts_and_states_do_not_depend_on_guesses_on_a_gpu() {
    models_on(Class::Groups, &mut |name, model| compare(name, &model, count(2, 40), if runs_all() { &[1, 4, 8] } else { &[3] }));
}

#[test]
fn texts_and_states_do_not_depend_on_guesses_on_a_software_adapter() {
    models_on(Class::Lanes, &mut |name, model| compare(name, &model, count(3, 200), if runs_all() { &[1, 2, 3, 5, 8] } else { &[3] }));
}

#[test]
fn another_model_guesses() {
    let find = |name: &str| goldens().find(|tiny| tiny.name == name);
    let (Some(five), Some(six)) = (find("rwkv5"), find("rwkv6")) else { return };
    let mut options = options("cpu");
    options.deterministic = true;
    let (model, draft) = (six.load(&options), five.load(&options));
    let cases: Vec<Case> = (0..count(12, 100)).map(|i| case(i, &model)).collect();
    let (known, _) = run(&model, &cases, None, &By::Nobody, None, &[]);
    let (found, counts) = run(&model, &cases, None, &By::Draft(&draft), Some(3), &[]);
    assert!(found == known && counts[0] > counts[1] && counts[1] > 0, "{counts:?}");
    models(&mut options, &mut |name, other| {
        if name == "rwkv7a" {
            let e = Batcher::new(Session::new(&other, 1).unwrap()).set_draft(&draft, 1).unwrap_err();
            let (a, b) = (draft.facts().n_vocab, other.facts().n_vocab);
            assert!(e.to_string().contains(&format!("has {a} tokens, but the model {} has {b} tokens", other.name())), "{e}");
        }
    });
}

#[test]
fn a_draft_without_room_guesses_no_further() {
    let Some(glm) = goldens().find(|tiny| tiny.name == "glm4") else { return };
    let mut options = options("cpu");
    options.deterministic = true;
    let model = glm.load(&options);
    options.context = Some(64);
    let draft = glm.load(&options);
    let limits = Limits { stop_ids: Some(vec![]), ..Limits::new(100) };
    let cases: Vec<Case> = (0..3).map(|i| Case { limits: limits.clone(), has_rules: false, n: 1, ..case(i, &model) }).collect();
    let (known, _) = run(&model, &cases, None, &By::Nobody, None, &[]);
    let (found, counts) = run(&model, &cases, None, &By::Draft(&draft), Some(4), &[]);
    assert!(found == known && counts[0] > 0 && counts[0] < 3 * 64, "{counts:?}");
}
