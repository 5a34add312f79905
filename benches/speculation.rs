//! Measures how much faster a single text is with guesses, on models with random weights. A processor forces the text. Only the proposer
//! of tests 3 and 4 knows the text.
//!
//! `cargo bench --bench speculation -- [--models NAMES] [--formats LIST] [--device D] [--rounds N] [--tokens N] [--draft NAME] [--tests LIST]`
//!
//! 1. Copying: the answer repeats a prompt of 500 tokens; `ngram` guesses.
//! 2. Nothing to guess: no pair of tokens occurs twice; `ngram` and `auto` guess. With --draft, also a draft model with random weights.
//! 3. The ceiling: every guess is right and takes no time, for 1 to 8 guesses per step.
//! 4. A share of the guesses is right.
//!
//! All variants of a test run in turn, in each round. A ratio is the median of the rounds' ratios to the speed without guesses.

use std::time::Instant;
use wingbeat::low_level::sample::{Sampler, Sampling};
use wingbeat::low_level::session::{
    Batcher, Idle, Limits, Model, ModelSource, Options, Proposer, Session, Speculate, Speculation, TextSpec, Wish,
};

const PROMPT: usize = 500;

struct Flags {
    models: Vec<String>,
    formats: Vec<String>,
    device: String,
    rounds: usize,
    tokens: usize,
    draft: Option<String>,
    /// The numbers of the tests to run.
    tests: String,
}

fn flags() -> Flags {
    let mut flags = Flags {
        models: vec!["rwkv7-0.1b".into()],
        formats: vec!["i8".into(), "f16".into()],
        device: "cpu".into(),
        rounds: 5,
        tokens: 192,
        draft: None,
        tests: "1,2,3,4".into(),
    };
    let mut args = std::env::args().skip(1).filter(|arg| arg != "--bench");
    while let Some(name) = args.next() {
        let value = args.next().unwrap_or_else(|| panic!("{name} needs a value"));
        let list = || value.split(',').map(String::from).collect();
        match name.as_str() {
            "--models" => flags.models = list(),
            "--formats" => flags.formats = list(),
            "--device" => flags.device = value,
            "--rounds" => flags.rounds = value.parse().expect("a number of rounds"),
            "--tokens" => flags.tokens = value.parse().expect("a number of tokens"),
            "--draft" => flags.draft = Some(value),
            "--tests" => flags.tests = value,
            _ => panic!("unknown flag {name}"),
        }
    }
    flags
}

fn load(name: &str, format: &str, device: &str) -> Model {
    let mut options = Options::default();
    options.device = device.parse().expect("a device");
    match format {
        "f16" | "f32" => options.dtype = format.parse().expect("a number type"),
        _ => options.quant = Some(format.parse().expect("a weight format")),
    }
    Model::load(&ModelSource::Synthetic(name.into()), &options, &mut |_, _| ()).expect("a synthetic model")
}

/// Guesses the forced text. A share of the guesses is wrong.
struct Oracle {
    text: Vec<u32>,
    right: f64,
}

impl Proposer for Oracle {
    fn kind(&self) -> Option<Speculate> {
        Some(Speculate::Draft)
    }
    fn expected(&self) -> f64 {
        0.7
    }
    fn propose(&mut self, wishes: &mut [Wish<'_>]) {
        for wish in wishes {
            let at = wish.text.tokens.len();
            let is_right = |i: usize| (i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) as f64 / u64::MAX as f64 <= self.right;
            let guess = |i: usize| if is_right(i) { self.text[i] } else { self.text[i] ^ 1 };
            wish.guesses.extend((at..self.text.len().min(at + wish.most)).map(guess));
        }
    }
}

/// A way to generate the text.
struct Variant<'m> {
    name: String,
    speculation: Speculation,
    draft: Option<&'m Model>,
    /// The share of right guesses of a proposer that knows the text. `None` without this proposer.
    right: Option<f64>,
}

/// Generates `text`. Returns the decoding time in seconds, and the numbers of checked and right guesses.
fn generate(model: &Model, prompt: &[u32], text: &[u32], variant: &Variant<'_>) -> (f64, usize, usize) {
    let session = Session::with_idle(model, 1, Idle { guesses: true, ..Idle::default() }).expect("a slot");
    let mut batcher = Batcher::new(session);
    if let Some(draft) = variant.draft {
        batcher.set_draft(draft, 1).expect("a draft of the same vocabulary");
    }
    if let Some(right) = variant.right {
        batcher.add_proposer(Box::new(Oracle { text: text.to_vec(), right }));
    }
    let limits = Limits { stop_ids: Some(Vec::new()), ..Limits::new(text.len()) };
    let mut job = TextSpec::new(prompt.to_vec(), Sampler::new(Sampling::greedy(0)), limits);
    let forced = text.to_vec();
    job.processor = Some(Box::new(move |tokens, logits| logits[forced[tokens.len()] as usize] = 1e6));
    job.speculation = variant.speculation;
    batcher.add(job).expect("a free slot");
    let mut first = None;
    loop {
        let done = batcher.step(&mut |_, _| _ = first.get_or_insert_with(Instant::now)).expect("a step");
        if let Some(done) = done.into_iter().next() {
            let output = done.output.expect("a text");
            assert_eq!(output.tokens, text, "{}", variant.name);
            return (first.expect("a token").elapsed().as_secs_f64(), output.drafted, output.accepted);
        }
    }
}

fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    of[of.len() / 2]
}

/// Generates the text with every variant, in turn. Prints each variant's speed, and the ratio to the speed of the first variant.
fn compare(model: &Model, rounds: usize, prompt: &[u32], text: &[u32], variants: &[Variant<'_>]) {
    let mut times = vec![Vec::new(); variants.len()];
    let mut guesses = vec![(0, 0); variants.len()];
    // The first round is a warm-up and does not count.
    for round in 0..=rounds {
        for (i, variant) in variants.iter().enumerate() {
            let (took, drafted, accepted) = generate(model, prompt, text, variant);
            if round > 0 {
                times[i].push(took);
                guesses[i] = (guesses[i].0 + drafted, guesses[i].1 + accepted);
            }
        }
    }
    for (i, variant) in variants.iter().enumerate() {
        let (drafted, accepted) = guesses[i];
        let ratio = median(times[0].iter().zip(&times[i]).map(|(alone, took)| alone / took).collect());
        let speed = (text.len() - 1) as f64 / median(times[i].clone());
        let n_steps = (rounds * (text.len() - 1) - accepted) as f64;
        let step = times[i].iter().sum::<f64>() / n_steps * 1e3;
        let share = if drafted > 0 {
            format!("{:.1} % of {} right", 100.0 * accepted as f64 / drafted as f64, drafted / rounds)
        } else {
            "none".into()
        };
        println!("| {} | {speed:.1} | {ratio:.2} | {step:.2} | {share} |", variant.name);
    }
}

fn main() {
    let flags = flags();
    for name in &flags.models {
        let draft = flags.draft.as_ref().map(|name| load(name, "i8", &flags.device));
        for format in &flags.formats {
            let model = load(name, format, &flags.device);
            let n_vocab = model.facts().n_vocab as u32;
            // Odd multiples visit every id once before they repeat, so no pair of tokens occurs twice.
            let distinct = |n: usize, seed: u32| -> Vec<u32> { (0..n as u32).map(|i| (i + seed).wrapping_mul(40_503) % n_vocab).collect() };
            let prompt = distinct(PROMPT, 1);
            let copied: Vec<u32> = prompt.iter().copied().cycle().take(flags.tokens).collect();
            let new = distinct(flags.tokens, 7_000);
            let variant = |name: &str, by: Speculate, n_guesses: Option<usize>| Variant {
                name: name.into(),
                speculation: Speculation { by, n_guesses },
                draft: None,
                right: (by == Speculate::Draft).then_some(1.0),
            };
            let off = || variant("off", Speculate::Off, None);
            let head = |title: &str| {
                println!(
                    "\n{name} {format}, {}: {title}\n\n| guesses | tokens/s | ratio | ms/step | guesses |\n|:--|--:|--:|--:|--:|",
                    model.device().name
                )
            };
            let is_chosen = |test: char| flags.tests.contains(test);
            if is_chosen('1') {
                head("copying");
                compare(&model, flags.rounds, &prompt, &copied, &[off(), variant("ngram", Speculate::Ngram, None)]);
            }
            if is_chosen('2') {
                head("nothing to guess");
                let mut variants = vec![off(), variant("ngram", Speculate::Ngram, None), variant("auto", Speculate::Auto, None)];
                if let Some(draft) = &draft {
                    let by_model = |name: &str, by| Variant { draft: Some(draft), right: None, ..variant(name, by, None) };
                    variants.extend([by_model("draft", Speculate::Draft), by_model("auto with draft", Speculate::Auto)]);
                }
                compare(&model, flags.rounds, &prompt, &new, &variants);
            }
            if is_chosen('3') {
                head("every guess is right");
                let by_count = (1..=8).map(|k| variant(&format!("{k}"), Speculate::Draft, Some(k)));
                let variants: Vec<_> =
                    [off()].into_iter().chain(by_count).chain([variant("as many as pay", Speculate::Draft, None)]).collect();
                compare(&model, flags.rounds, &prompt, &new, &variants);
            }
            if is_chosen('4') {
                head("a share is right");
                let share =
                    |right: f64| Variant { right: Some(right), ..variant(&format!("{:.0} %", 100.0 * right), Speculate::Draft, None) };
                let variants: Vec<_> = [off()].into_iter().chain([0.9, 0.8, 0.6, 0.4, 0.0].map(share)).collect();
                compare(&model, flags.rounds, &prompt, &new, &variants);
            }
        }
    }
}
