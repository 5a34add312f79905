//! Measures the cost of grammars: reading a vocabulary, compiling a grammar, and the time per token. Each grammar is measured without and
//! with `--close`, which reserves tokens to complete the text.
//!
//! `cargo bench --bench mask_time`

use serde_json::json;
use std::time::Instant;
use wingbeat::constrain::{Constraint, Follower, Grammar, Pieces};
use wingbeat::vocab::Vocab;

const TOKENS: usize = 400;

/// The number of tokens that a text may have from now on: enough to complete any text.
const LEFT: usize = 10_000;

fn main() {
    let world = Vocab::world();
    let schema = json!({
        "type": "object",
        "properties": { "name": { "type": "string" }, "notes": { "type": "array", "items": { "type": "string" } }, "age": { "type": "integer" } },
        "required": ["name", "notes", "age"]
    });
    let characters = "root ::= text\ntext ::= [^\\n] text | \"\\n\"\n";
    let json = Grammar::gbnf(include_str!("../examples/grammars/json.gbnf")).unwrap();
    let schema = Grammar::json_schema(&schema).unwrap();
    let regular = Grammar::gbnf("root ::= ([A-Z] [a-z]* [ ,.])* \"\\n\"\n").unwrap();
    let grammars = [
        ("JSON schema", schema.clone().close(false)),
        ("JSON schema, closed", schema),
        ("any JSON", Grammar::json_value().close(false)),
        ("any JSON, closed", Grammar::json_value()),
        ("GBNF of JSON", json.clone()),
        ("GBNF of JSON, closed", json.close(true)),
        ("GBNF, a regular expression", regular.clone()),
        ("GBNF, a regular expression, closed", regular.close(true)),
        ("GBNF, character by character", Grammar::gbnf(characters).unwrap()),
    ];
    for (vocab, n_ids) in [(world.clone(), 65_536), (larger(&world), 151_552)] {
        let started = Instant::now();
        let pieces = Pieces::new(&vocab, n_ids).unwrap();
        println!("{n_ids} ids: vocabulary in {:.0} ms", started.elapsed().as_secs_f64() * 1e3);
        for (name, grammar) in &grammars {
            let started = Instant::now();
            let mut follower = pieces.follow(grammar).unwrap();
            let read_ms = started.elapsed().as_secs_f64() * 1e3;
            let mut times = walk(&mut follower, n_ids);
            times.sort_by(f64::total_cmp);
            let (mean, n) = (times.iter().sum::<f64>() / times.len() as f64, times.len());
            let (half, late, last) = (times[n / 2], times[n * 99 / 100], times[n - 1]);
            println!(
                "  {name}: compiled in {read_ms:.1} ms; per token {mean:.3} ms, median {half:.3}, 99 % {late:.3}, longest {last:.3} ({n} tokens)"
            );
        }
    }
}

/// Returns a vocabulary with as many tokens as GLM-4's. Its tokens are tokens of the World vocabulary and pairs of these tokens.
fn larger(world: &Vocab) -> Vocab {
    let texts: Vec<&str> =
        (1..65_530).filter_map(|id| std::str::from_utf8(world.token(id)).ok()).filter(|t| t.chars().all(char::is_alphanumeric)).collect();
    let mut all: Vec<String> = texts.iter().map(|t| t.to_string()).collect();
    for step in 1.. {
        let pairs = texts.iter().zip(texts.iter().skip(step * 97)).map(|(a, b)| format!("{a}{b}"));
        all.extend(pairs.filter(|t| t.len() < 20));
        if all.len() > 160_000 {
            break;
        }
    }
    all.extend((0x20..0x7f).map(|b| char::from(b).to_string()));
    all.push("\n".into());
    all.sort();
    all.dedup();
    let punctuation = |t: &String| t.len() == 1;
    let (few, mut many): (Vec<String>, Vec<String>) = all.into_iter().partition(punctuation);
    many.truncate(151_000 - few.len());
    let line = |(id, text): (usize, &String)| format!("{} {} {}\n", id + 1, json!(text), text.len());
    Vocab::parse(few.iter().chain(&many).enumerate().map(line).collect::<String>().as_bytes()).unwrap()
}

/// Generates texts of random tokens that the grammar allows. Returns the time of each token in milliseconds.
fn walk(follower: &mut Follower, n_ids: usize) -> Vec<f64> {
    let (mut number, mut times) = (1u64, Vec::new());
    let begin = follower.clone();
    while times.len() < TOKENS {
        let started = Instant::now();
        let allowed = follower.allowed().unwrap();
        let mut logits = vec![0.0f32; n_ids];
        allowed.mask(&mut logits, &[0]);
        let taken = started.elapsed();
        let ids: Vec<u32> = (1..n_ids as u32).filter(|&id| logits[id as usize] == 0.0).collect();
        if ids.is_empty() {
            *follower = begin.clone();
            continue;
        }
        number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let id = ids[(number >> 33) as usize % ids.len()];
        let started = Instant::now();
        // `constrain::draw` makes the same calls.
        assert!(follower.closing().is_none_or(|ending| ending.len() < LEFT) && follower.closes_within(id, LEFT));
        follower.accept(id).unwrap();
        times.push((taken + started.elapsed()).as_secs_f64() * 1e3);
    }
    times
}
