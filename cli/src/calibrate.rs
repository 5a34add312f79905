//! The option `--calibrate`: reads an importance matrix, or measures it on a text.

use super::model_options::load_quietly;
use super::output::say;
use super::progress::{Progress, Unit};
use super::prompt::{GivenInput, text_file};
use super::signals;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use wingbeat::Calibration;
use wingbeat::error::{Error, Result};
use wingbeat::low_level::exec::DeviceChoice;
use wingbeat::low_level::session::{Model, ModelSource, Options, Output, Prompt, Session, Windows};

/// The default maximum number of tokens in a window of a text.
const WINDOW: usize = 2048;

/// Returns the maximum number of tokens in a window of a text: `asked`, else 2048, or the context of the model if that is shorter.
pub fn window(model: &Model, asked: Option<u32>) -> usize {
    let most = model.context().map_or(WINDOW, |context| context.min(WINDOW));
    asked.map_or(most, |n| n as usize)
}

/// Returns two lists of token ids: the vocabulary's start tokens, such as a begin-of-text token, and the rest of the text. Every window begins with
/// the start tokens. The first list is empty if the input does not begin with the start tokens.
pub fn start_and_rest(session: &Session, given: GivenInput) -> Result<(Vec<u32>, Vec<u32>)> {
    let start = session.model().vocab().map_or_else(|| Ok(Vec::new()), |vocab| vocab.encode_prompt(b""))?;
    let tokens = given.tokens(|text| session.encode(&Prompt::Text(text)))?;
    Ok(match tokens.strip_prefix(start.as_slice()) {
        Some(own) => (start, own.to_vec()),
        None => (Vec::new(), tokens),
    })
}

/// An importance matrix that was measured.
pub struct Measured {
    pub calibration: Calibration,
    pub n_tokens: usize,
    pub window: usize,
}

/// Runs a model on the CPU over a text, and measures how important each column of the model's matrices is. `asked` is the maximum number of tokens
/// in a window, or `None` for the default. `dataset` is the name of the text in the result.
pub fn measure(model: &Model, given: GivenInput, asked: Option<u32>, dataset: &str) -> Result<Measured> {
    let mut session = Session::new(model, 1)?;
    signals::stop_on_interrupt(&session.stop_flag());
    let (start, tokens) = start_and_rest(&session, given)?;
    let window = window(model, asked);
    let windows = Windows { start: &start, tokens: &tokens, len: window };
    let mut bar = Progress::new("calibrating", Unit::Tokens);
    let calibration = Calibration::measure(&mut session, &windows, dataset, &mut |done, total| bar.show(done as u64, total as u64))?;
    Ok(Measured { calibration, n_tokens: start.len() + tokens.len(), window })
}

/// Returns the options of a model that measures importance: `options`, but on the CPU and with the weights as the file stores them.
pub fn on_cpu(options: &Options) -> Options {
    let (parts, output) = (Vec::new(), Output::Logits);
    Options { device: DeviceChoice::Cpu, parts, output, quant: None, strategy: None, calibration: None, cache: None, ..options.clone() }
}

/// Returns the calibration in the file `path`. If the file is a text, measures the calibration on this text with the model of `source`.
///
/// # Errors
/// `File` if the file cannot be read or is damaged; `Input` if a text is too short or not UTF-8; the errors of loading the model.
pub fn calibration(path: &Path, source: &ModelSource, options: &Options) -> Result<Arc<Calibration>> {
    let io = |e| Error::io(e, path);
    let mut start = Vec::new();
    std::fs::File::open(path).map_err(io)?.take(8).read_to_end(&mut start).map_err(io)?;
    if Calibration::is_one(&start) {
        return Calibration::open(path).map(Arc::new);
    }
    let given = GivenInput::Text(text_file(path)?);
    let model = load_quietly(source, &on_cpu(options))?;
    let Measured { calibration, n_tokens, .. } =
        measure(&model, given, None, &path.display().to_string()).map_err(|e| e.at(path.display()))?;
    say(format_args!("calibrated with {n_tokens} tokens of {}", path.display()));
    Ok(Arc::new(calibration))
}
