//! The guesses of one text: its known tokens, and how often each proposer was right.

/// The least weight of a new guess in the running share of right guesses.
const NEW: f64 = 0.1;

/// The guesses of one text.
pub struct Guessing {
    /// All known tokens of the sequence.
    pub tokens: Vec<u32>,
    /// How many tokens at the end of `tokens` belong to the text itself.
    n_text: usize,
    /// One record per proposer.
    records: Vec<Record>,
    /// The index of the proposer that made the current step's guesses.
    pub by: usize,
    /// Guesses of the next token that the last step did not check, each with the index of its proposer. They show how good further guesses would be.
    pub unchecked: Vec<(usize, u32)>,
}

/// A record of one proposer's guesses for one text.
#[derive(Debug, Clone, Copy, Default)]
pub struct Record {
    /// The running share of right guesses.
    right: f64,
    /// The number of guesses that were compared with the text.
    n: usize,
    /// True once a guess of the proposer was right for this text.
    pub was_right: bool,
    /// The number of steps since the last guess.
    pub n_idle: usize,
    /// How many times the proposer was tried again after a pause, since its last right guess. Each such try makes the next pause twice as long.
    pub n_tries: u32,
}

impl Guessing {
    /// Creates the data for a text that follows the tokens `before`, without any guess.
    pub fn new(before: &[u32]) -> Guessing {
        Guessing { tokens: before.to_vec(), n_text: 0, records: Vec::new(), by: 0, unchecked: Vec::new() }
    }

    /// Adds the tokens that the text has received since the last call.
    pub fn follow(&mut self, text: &[u32]) {
        if let Some(&next) = text.get(self.n_text) {
            for (by, guess) in std::mem::take(&mut self.unchecked) {
                self.learn(by, guess == next);
            }
        }
        self.tokens.extend_from_slice(&text[self.n_text..]);
        self.n_text = text.len();
    }

    /// Returns the record of a proposer.
    pub fn record(&mut self, by: usize) -> &mut Record {
        if self.records.len() <= by {
            self.records.resize(by + 1, Record::default());
        }
        &mut self.records[by]
    }

    /// Returns the probability that the next guess of a proposer is right. `expected` is the probability for a new text.
    pub fn right(&mut self, by: usize, expected: f64) -> f64 {
        let record = self.record(by);
        if record.n == 0 {
            record.right = expected;
        }
        record.right
    }

    /// Records whether a guess was right.
    pub fn learn(&mut self, by: usize, is_right: bool) {
        let record = self.record(by);
        // Each of the first guesses counts as much as the expectation.
        let weight = (1.0 / (record.n + 2) as f64).max(NEW);
        record.right += weight * (f64::from(u8::from(is_right)) - record.right);
        record.n += 1;
        if is_right {
            (record.was_right, record.n_tries) = (true, 0);
        }
    }
}
