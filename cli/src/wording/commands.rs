//! Lists commands that fail: wrong flags, which clap rejects, and subcommands that end with an error.

use super::files::Files;
use super::printed;
use crate::help::Shows;
use crate::{Cli, Failure, command, failure, flags, run_verb};
use clap::FromArgMatches;
use std::ffi::OsString;

/// Command lines that clap rejects.
const REFUSED: &str = "\
generat x
generate x --tempp 3
quality x --quant int8
generate x --quant Q4_K_M
chat -sys x
generate x -ngl 99
serve --metrics
serve --api-key x
serve --hf-repo owner/repo --hf-file x.gguf
chat -hf owner/repo
generate x -n
generate x -n -2
generate x -n many
generate x y
generate x --json --jsonl
generate x --trials 0
generate x --trials 2000
generate x --tokens 1 --prompt x
generate x --dtype f17
generate x --quant i9
generate x --quant i4,tail=i8
generate x --strategy cpu --device gpu
generate x --context 0
generate x --cache-dtype f8
generate x --rope-theta 1
generate x --group-norm-eps 0
generate x --state-orientation up
generate x --state-any
generate x --backend opengl
generate x --threads 0
generate x --chunk 0
generate x --temperature abc
generate x --temperature -1
generate x --top-p 7
generate x --top-k -1
generate x --min-p 2
generate x --typical 0
generate x --stop ''
generate x --mirostat -1
generate x --repeat-penalty 0
generate x --penalty-decay 2
generate x --dry-base 0
generate x --logit-bias 1
generate x --logit-bias x=1
generate x --ban x
generate x --sampler-order up
generate x --seed x
generate x --preset best
generate x --grammar a --json-object
batch
batch --json
batch in.jsonl --slots 0
batch in.jsonl --slots 1024
batch in.jsonl --retry-errors
batch in.jsonl --force
batch in.jsonl --format best
chat --format best
chat --color blue
chat --system x --load y
score --text a --tokens 1
classify --jsonn
tokenize --pretty --json x
detokenize --vocab
inspect a b
inspect a -m b
convert
convert a b c
convert a b --dtype i4
convert a b --layout flat
convert a b --lora-alpha 1
convert a b --lora c --lora-alpha x
devices --all
doctor --quick
bench -o xml
bench -p -1
bench -r 0
bench-serve -c 1,x
bench-serve --seed x
bench-serve -r 2 -s 2
quality --window 1
quality --against i8
completions
completions foo";

/// Command lines whose subcommand ends with an error. The device is the CPU unless a line names a device or a strategy.
const FAILING: &str = "\
generate
generate x -e --stop '\\q'
generate x --trials 2 --save-state DIR/new
generate x --save-state DIR/absent/new
generate x --save-state DIR/saved.state
generate x --save-state DIR/notes.txt
generate x --save-state DIR/folder
generate x --save-state -
generate --tokens 1,x
generate --tokens 9999
generate -f DIR/absent
generate -f DIR/folder
generate -f DIR/bytes.txt
generate x -m DIR/absent
generate x -m rwkv7-g1-1.5b
generate x -m https://huggingface.co/zai-org/glm-4-9b-chat
generate x --vocab DIR/absent
generate x --vocab world
generate x --grammar DIR/absent
generate x --grammar DIR/open.gbnf
generate x --grammar DIR/unknown.gbnf
generate x --grammar DIR/endless.gbnf
generate x --grammar DIR/no-root.gbnf
generate x --grammar DIR/picture.png
generate x --json-schema DIR/open.json
generate x --json-schema DIR/type.json
generate x --json-schema DIR/reference.json
generate x --json-schema DIR/remote.json
generate x --json-schema DIR/unsupported.json
generate x --ban 99999
generate x --device gpu:x
generate x --device ''
generate x --device cpu --backend vulkan
generate x --strategy ''
generate x --strategy 'gpu fp17'
generate x --strategy 'cpu fp16 *x'
generate x --strategy 'cpu fp16 *1 -> cpu'
generate x --state DIR/absent
batch DIR/absent
batch DIR/prompts.jsonl -o DIR/prompts.jsonl
batch DIR/prompts.jsonl -o - --json
batch DIR/prompts.jsonl -o DIR/absent/out
batch DIR/prompts.jsonl -o DIR/notes.txt
chat --load DIR/absent
chat --load DIR/saved.state
chat --load DIR/tuned.safetensors
chat --prompt DIR/absent
chat --prompt DIR/open.toml
chat --prompt DIR/field.toml
chat --prompt DIR/code.py
chat --save DIR/absent/new
score
score --text x
score --text 'a b' --logits DIR/absent/new
classify x
embed x --task similarity
embed x -o vectors.bin
rerank x y
tokenize x --vocab DIR/folder
tokenize x -m DIR/absent
detokenize x
detokenize 99999
inspect DIR/absent
convert DIR/absent DIR/new
convert DIR/saved.state DIR/new
convert DIR/tuned.safetensors DIR/new
convert DIR/lacking.safetensors DIR/lacking.safetensors
convert DIR/lacking.safetensors DIR/notes.txt
convert DIR/lacking.safetensors DIR/new --layout web-rwkv --quant i8
convert DIR/lacking.safetensors DIR/new --lora DIR/notes.txt --lora-alpha 8
convert DIR/lacking.safetensors DIR/new --lora DIR/half.safetensors --lora-alpha 8
convert DIR/lacking.safetensors DIR/new --state-of DIR/lacking.safetensors
convert DIR/lacking.safetensors DIR/new.gguf
convert DIR/lacking.safetensors DIR/new.st --layout gguf
convert DIR/lacking.safetensors DIR/new.gguf --layout gguf
convert DIR/lacking.safetensors DIR/new.gguf --layout gguf --shard 1M
convert DIR/lacking.safetensors DIR/new --vocab world
convert DIR/lacking.safetensors DIR/new --state-orientation key-value
doctor --out DIR/absent/new
bench --synthetic foo
bench --pg 4
bench -b 0
bench-serve https://127.0.0.1:1
bench-serve http://127.0.0.1:1
bench-serve --key-file DIR/absent
quality --text x
quality -f DIR/absent";

/// Splits a command line at blanks. A text between apostrophes is one argument.
fn words(line: &str) -> Vec<OsString> {
    let mut words = vec![OsString::from("wingbeat")];
    for (i, part) in line.split('\'').enumerate() {
        if i % 2 == 1 {
            words.push(part.into());
        } else {
            words.extend(part.split_whitespace().map(OsString::from));
        }
    }
    words
}

/// Returns each line of `REFUSED` with the error that the program prints for the line.
pub fn refused() -> Vec<(String, String)> {
    let case = |line: &str| {
        let said = match command(Shows::Basics).term_width(100).try_get_matches_from(words(line)) {
            Ok(_) => "accepted".into(),
            Err(e) => printed(&failure::usage(&e, &words(line))),
        };
        (format!("wingbeat {line}"), said)
    };
    REFUSED.lines().map(case).collect()
}

/// Runs each line of `FAILING` in this process. Returns the lines with the text that is printed.
pub fn failing(files: &Files) -> Vec<(String, String)> {
    let case = |line: &str| {
        let mut args = words(&files.with_names(line));
        let runs = ["generate", "batch", "chat", "score", "classify", "embed", "rerank", "doctor", "bench", "quality"]
            .iter()
            .any(|verb| args[1] == *verb);
        if runs && !line.contains("--device") && !line.contains("--strategy") {
            args.extend(["--device".into(), "cpu".into()]);
        }
        let text = match command(Shows::Basics).try_get_matches_from(&args) {
            Err(e) => printed(&failure::usage(&e, &args)),
            Ok(matches) => match run_verb(Cli::from_arg_matches(&matches).unwrap().verb) {
                Err(Failure::Error(e)) => printed(&flags::in_field(e, &args)),
                _ => "accepted".into(),
            },
        };
        (format!("wingbeat {line}"), text)
    };
    FAILING.lines().map(case).collect()
}
