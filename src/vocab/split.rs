//! Splits text by the patterns of a `tokenizer.json`, with limits on the work.
//!
//! Patterns with look-around backtrack, and a hostile pattern can backtrack almost without end. The `tokenizers` crate has a limit, but at this
//! limit it silently stops splitting, so that the rest of the text gets wrong ids. Here, reaching a limit is an error.

use fancy_regex::{Regex, RegexBuilder};
use std::sync::OnceLock;
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::split::SplitPattern;
use tokenizers::tokenizer::pattern::{Invert, Pattern};
use tokenizers::{Offsets, PreTokenizedString, PreTokenizer, Result, SplitDelimiterBehavior};
use web_time::Instant;

/// GPT-2's pattern, the default of byte-level BPE.
const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";

/// The limit on the bytes of a pattern. The longest published pattern has 500 bytes.
const MAX_PATTERN_BYTES: usize = 4 << 10;
/// Pairs `(length, steps)`: in a text of at most `length` bytes, one match may take at most `steps` backtracking steps. A step may scan the whole
/// text. Published patterns take about ten steps per match.
const MAX_BACKTRACKS: [(usize, usize); 4] = [(1 << 14, 12_000), (1 << 18, 768), (1 << 20, 192), (usize::MAX, 64)];
/// The limit on the bytes of a compiled pattern.
const MAX_COMPILED_BYTES: usize = 4 << 20;

/// One step in which a text is split or changed.
pub(super) enum SplitStep {
    /// A pre-tokenizer of the `tokenizers` crate that takes linear time.
    Linear(PreTokenizerWrapper),
    /// Puts a space before a text that does not begin with a space.
    Space,
    Pattern(Box<Split>),
}

/// All steps that split a text, in order.
pub(super) struct SplitSteps(pub Vec<SplitStep>);

impl SplitStep {
    /// Returns the steps of the pre-tokenizer `ByteLevel`, in order. `add_prefix_space` adds a step that puts a space before the text. `use_regex`
    /// adds a step that splits the text by GPT-2's pattern. The last step converts each byte to the character that represents the byte in the file
    /// ([`byte_chars`](super::byte_chars)).
    pub fn byte_level(add_prefix_space: bool, use_regex: bool) -> Result<Vec<SplitStep>> {
        let mut parts = Vec::new();
        if add_prefix_space {
            parts.push(SplitStep::Space);
        }
        if use_regex {
            parts.push(SplitStep::Pattern(Box::new(Split::new(
                SplitPattern::Regex(GPT2.into()),
                SplitDelimiterBehavior::Isolated,
                false,
            )?)));
        }
        parts.push(SplitStep::Linear(ByteLevel::new(false, false, false).into()));
        Ok(parts)
    }

    /// Returns whether the step converts each byte to the character that represents the byte in the file.
    pub fn spells_bytes(&self) -> bool {
        matches!(self, SplitStep::Linear(PreTokenizerWrapper::ByteLevel(_)))
    }
}

impl PreTokenizer for SplitSteps {
    fn pre_tokenize(&self, text: &mut PreTokenizedString) -> Result<()> {
        self.0.iter().try_for_each(|part| match part {
            SplitStep::Linear(part) => part.pre_tokenize(text),
            SplitStep::Pattern(split) => split.pre_tokenize(text),
            SplitStep::Space => text.split(|_, mut piece| {
                if !piece.get().starts_with(' ') {
                    piece.prepend(" ");
                }
                Ok(vec![piece])
            }),
        })
    }
}

/// A pattern, and what happens to its matches.
pub(super) struct Split {
    source: String,
    /// One compilation per entry of `MAX_BACKTRACKS`, because a pattern's limit is fixed when it is compiled. Compiled at first use.
    regexes: [OnceLock<Regex>; MAX_BACKTRACKS.len()],
    behavior: SplitDelimiterBehavior,
    invert: bool,
}

impl Split {
    pub fn new(pattern: SplitPattern, behavior: SplitDelimiterBehavior, invert: bool) -> Result<Split> {
        let source = match pattern {
            SplitPattern::String(text) => regex::escape(&text),
            SplitPattern::Regex(source) => source,
        };
        if source.len() > MAX_PATTERN_BYTES {
            return Err(format!("expected at most {MAX_PATTERN_BYTES} bytes, found {} bytes", source.len()).into());
        }
        let split = Split { source, regexes: Default::default(), behavior, invert };
        split.regex(0)?;
        Ok(split)
    }

    /// Returns the pattern, compiled with the limit on backtracking for a text of `n_bytes`.
    fn regex(&self, n_bytes: usize) -> Result<&Regex> {
        let (nth, (_, limit)) = (0..).zip(MAX_BACKTRACKS).find(|(_, (most, _))| n_bytes <= *most).unwrap_or_default();
        if let Some(regex) = self.regexes[nth].get() {
            return Ok(regex);
        }
        let mut builder = RegexBuilder::new(&self.source);
        let regex = builder.backtrack_limit(limit).delegate_size_limit(MAX_COMPILED_BYTES).build()?;
        Ok(self.regexes[nth].get_or_init(|| regex))
    }
}

impl PreTokenizer for Split {
    fn pre_tokenize(&self, text: &mut PreTokenizedString) -> Result<()> {
        let mut clock = SplitClock::new();
        text.split(|_, piece| {
            clock.allow(piece.get().len());
            let matches = Matches { regex: self.regex(piece.get().len())?, clock: &clock };
            match self.invert {
                true => piece.split(Invert(matches), self.behavior),
                false => piece.split(matches, self.behavior),
            }
        })
    }
}

struct Matches<'a> {
    regex: &'a Regex,
    clock: &'a SplitClock,
}

impl Pattern for Matches<'_> {
    fn find_matches(&self, inside: &str) -> Result<Vec<(Offsets, bool)>> {
        if inside.is_empty() {
            return Ok(vec![((0, 0), false)]);
        }
        let (mut pieces, mut end) = (Vec::new(), 0);
        for found in self.regex.find_iter(inside) {
            let found = found.map_err(|e| format!("the vocabulary's pattern fails after byte {end} of a piece ({e})"))?;
            self.clock.check()?;
            if end < found.start() {
                pieces.push(((end, found.start()), false));
            }
            pieces.push(((found.start(), found.end()), true));
            end = found.end();
        }
        if end < inside.len() {
            pieces.push(((end, inside.len()), false));
        }
        Ok(pieces)
    }
}

/// The time limit of one pattern on one text: a constant plus a time per byte. This limit is needed in addition to `MAX_BACKTRACKS`: with a hostile
/// pattern, every single match can take a time proportional to the length of the text.
struct SplitClock {
    started: Instant,
    n_bytes: usize,
}

/// The constant part of the time limit, in seconds.
const SECONDS: f64 = 5.0;
/// The time limit per byte, in seconds. Published patterns take 0.1 µs.
const SECONDS_PER_BYTE: f64 = 2e-6;

impl SplitClock {
    fn new() -> SplitClock {
        SplitClock { started: Instant::now(), n_bytes: 0 }
    }

    /// Extends the limit by the time for `n_bytes` more bytes.
    fn allow(&mut self, n_bytes: usize) {
        self.n_bytes += n_bytes;
    }

    /// Checks that the text has not taken longer than its limit.
    fn check(&self) -> Result<()> {
        if self.started.elapsed().as_secs_f64() > SECONDS + SECONDS_PER_BYTE * self.n_bytes as f64 {
            return Err("the vocabulary's pattern takes too long on this text".into());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use SplitDelimiterBehavior::{Isolated, Removed};
    use tokenizers::{OffsetReferential, OffsetType};

    fn pieces(split: Split, text: &str) -> std::result::Result<Vec<String>, String> {
        let mut pieces = PreTokenizedString::from(text);
        split.pre_tokenize(&mut pieces).map_err(|e| e.to_string())?;
        let splits = pieces.get_splits(OffsetReferential::Original, OffsetType::Byte);
        Ok(splits.into_iter().map(|(text, ..)| text.to_string()).collect())
    }

    fn split(pattern: &str, behavior: SplitDelimiterBehavior, invert: bool) -> Split {
        Split::new(SplitPattern::Regex(pattern.into()), behavior, invert).unwrap()
    }

    #[test]
    fn patterns_split_as_in_the_crate() {
        use tokenizers::pre_tokenizers::split::Split as Theirs;
        for text in ["", "hello  world\n\n it's 12", "  é\t\r\n ", "a b", "aaa"] {
            for pattern in [GPT2, r"\s+", r"\s+(?!\S)|\s+", "a", "x*"] {
                for (behavior, invert) in [(Isolated, false), (Removed, true), (Removed, false)] {
                    let mut theirs = PreTokenizedString::from(text);
                    Theirs::new(SplitPattern::Regex(pattern.into()), behavior, invert).unwrap().pre_tokenize(&mut theirs).unwrap();
                    let theirs = theirs.get_splits(OffsetReferential::Original, OffsetType::Byte);
                    let theirs: Vec<String> = theirs.into_iter().map(|(text, ..)| text.to_string()).collect();
                    assert_eq!(pieces(split(pattern, behavior, invert), text).unwrap(), theirs, "{pattern} {text:?}");
                }
            }
        }
    }

    #[test]
    fn patterns_that_backtrack_without_end_are_errors() {
        let text = "a".repeat(1 << 16);
        for pattern in [r"(?=(a+)+$)b", r"(?!x)(a|a)*b", r"(a*)*(?<!a)b"] {
            let said = pieces(split(pattern, Isolated, false), &text).unwrap_err();
            assert!(said.contains("fails after byte 0"), "{pattern}: {said}");
        }
        // a pattern without look-around takes linear time
        assert_eq!(pieces(split("(a+)+$", Isolated, false), &text).unwrap(), [text.as_str()]);
    }

    #[test]
    fn long_patterns_are_refused() {
        let of = |pattern: String| Split::new(SplitPattern::Regex(pattern), Isolated, false).err().unwrap().to_string();
        assert!(of("a".repeat(5000)).contains("at most 4096 bytes"));
        assert!(of(r"\p{L}{1000}{1000}".into()).contains("compiling"));
    }
}
