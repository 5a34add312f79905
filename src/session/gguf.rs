//! Converts a checkpoint to a GGUF file for llama.cpp: adds the vocabulary, the chat template and the block formats to the tensors.

use super::convert::planned;
use super::importance::stored;
use super::vocabulary::vocabulary;
use crate::arch;
use crate::error::{Error, Result};
use crate::exec::QuantPlan;
use crate::quant::{FORMATS, Scaling};
use crate::vocab::{Choice, Vocab};
use crate::weights::{Calibration, Checkpoint, Conversion, GLM, GgufContent, GgufValue, Glm, STOP_IDS, check_gguf, convert, read_small};
use serde_json::Value;
use std::path::Path;

/// The largest size of a file with a chat template, in bytes.
const MAX_TEMPLATE_BYTES: u64 = 8 << 20;
/// The metadata keys of vocabularies and chat templates begin with this text.
const TOKENIZER: &str = "tokenizer.";
const TEMPLATE: &str = "tokenizer.chat_template";

/// A chat template of RWKV's World format. Names of turns are followed by a colon, and an empty line ends each turn. A llama.cpp that does not run
/// templates recognises the format by the name in the template's comment.
const WORLD_TEMPLATE: &str = "{#- rwkv-world -#}\n\
    {{- bos_token -}}\n\
    {%- for message in messages -%}\n\
    {%- set name = {'system': 'System', 'user': 'User', 'assistant': 'Assistant'}[message['role']] -%}\n\
    {{- name + ': ' + message['content'] | trim + '\\n\\n' -}}\n\
    {%- endfor -%}\n\
    {%- if add_generation_prompt -%}{{- 'Assistant:' -}}{%- endif -%}\n";
/// A chat template of GLM-4 for messages without tools, without the tokens that begin a prompt.
const GLM_TEMPLATE: &str = "{%- for message in messages -%}\n\
    {{- '<|' + message['role'] + '|>\\n' + message['content'] -}}\n\
    {%- endfor -%}\n\
    {%- if add_generation_prompt -%}{{- '<|assistant|>' -}}{%- endif -%}\n";

/// The vocabulary of a written GGUF file.
pub enum GgufVocab {
    /// The vocabulary that the model uses by default. A GGUF file's own vocabulary is copied.
    Own,
    /// No vocabulary. Programs then accept and return only ids.
    Without,
    /// This vocabulary.
    Given(Vocab),
}

/// Writes the checkpoint `input` to the GGUF file `out`. Matrices have the formats of `plan`; with `None`, they are floats of the type `what.dtype`,
/// F16 by default. `what` may have a LoRA adapter that is merged into the weights; its layout must be
/// [`Layout::Gguf`](crate::weights::Layout::Gguf). Calls `progress(bytes done so far, total bytes)`.
///
/// # Errors
/// `Usage` if llama.cpp has no architecture for the model, if no vocabulary is found, or if a format of the plan is not a type of GGUF files; the
/// errors of [`convert()`].
pub fn convert_gguf(
    input: &Checkpoint,
    out: &Path,
    vocab: &GgufVocab,
    plan: Option<&QuantPlan>,
    what: &Conversion<'_>,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<()> {
    check_gguf(input)?;
    let values = values(input, vocab)?;
    let content = match plan {
        Some(plan) => GgufContent { values, ..content(input, plan, what.calibration)? },
        None => GgufContent { values, ..GgufContent::default() },
    };
    convert(input, out, &Conversion { gguf: Some(&content), ..*what }, progress)
}

/// Returns the format and the importance of each matrix that the plan quantises, by the name of its tensor.
fn content(input: &Checkpoint, plan: &QuantPlan, calibration: Option<&Calibration>) -> Result<GgufContent> {
    let definition = planned(input, plan, calibration)?;
    let parts = definition.tape.matrices.iter().flat_map(|matrix| &matrix.parts);
    let mut content = GgufContent::default();
    for part in parts.filter(|part| part.format.scaling() != Scaling::None) {
        if part.format.file_blocks().is_none() {
            let known: Vec<&str> = FORMATS.iter().filter(|format| format.file_blocks().is_some()).map(|format| format.name()).collect();
            let text = format!("the format {} is not a type of GGUF files, expected one of {}", part.format.name(), known.join(", "));
            return Err(Error::usage(text).field("quant").hint("choose another `quant`, or leave out `layout`"));
        }
        content.formats.insert(part.tensor.clone(), part.format);
        content.importance.extend(stored(part).map(|importance| (part.tensor.clone(), importance)));
    }
    Ok(content)
}

/// Returns the metadata of the vocabulary and the chat template.
fn values(input: &Checkpoint, vocab: &GgufVocab) -> Result<Vec<(String, GgufValue)>> {
    let mut copied = input.gguf_values(TOKENIZER)?;
    let vocab = match vocab {
        GgufVocab::Own if copied.iter().any(|(key, _)| key == "tokenizer.ggml.tokens") => return Ok(copied),
        GgufVocab::Own => Some(own(input)?),
        GgufVocab::Given(vocab) => Some(vocab.clone()),
        GgufVocab::Without => None,
    };
    let glm = input.metadata().get(GLM).map(|json| Glm::parse(json)).transpose()?;
    let mut values = special_ids(input, glm.as_ref(), vocab.as_ref());
    let Some(vocab) = vocab else { return Ok(values) };
    let n_vocab = arch::detect(input)?.facts().n_vocab;
    if vocab.max_id() as usize >= n_vocab {
        let text = format!("the vocabulary has ids up to {}, but the model has {n_vocab} embeddings", vocab.max_id());
        return Err(Error::usage(text).hint("name the model's own vocabulary with `vocab`"));
    }
    let lists = vocab.lists(n_vocab).ok_or_else(|| {
        let e = Error::usage("only the vocabularies of RWKV and GLM-4 can be written to a GGUF file, and this model has another kind");
        e.hint("write the file without a vocabulary: `vocab=none`")
    })?;
    let text = |text: &str| GgufValue::Text(text.to_string());
    let key = |name: &str| format!("tokenizer.ggml.{name}");
    values.push((key("model"), text(lists.model)));
    values.extend(lists.pre.map(|pre| (key("pre"), text(pre))));
    values.push((key("tokens"), GgufValue::Texts(lists.tokens)));
    values.push((key("token_type"), GgufValue::Numbers(lists.types)));
    if !lists.merges.is_empty() {
        values.push((key("merges"), GgufValue::Texts(lists.merges)));
    }
    copied.retain(|(key, _)| key == TEMPLATE);
    match copied.pop() {
        Some(template) => values.push(template),
        None => values.push((TEMPLATE.to_string(), GgufValue::Text(template(input, glm.is_some(), &vocab)?))),
    }
    Ok(values)
}

/// Returns the vocabulary that the model uses by default.
fn own(input: &Checkpoint) -> Result<Vocab> {
    match vocabulary(input, arch::detect(input)?.facts().n_vocab).0 {
        Choice::Found(vocab) => Ok(vocab),
        Choice::Missing { hint } => Err(Error::usage("a GGUF file needs a vocabulary, and none was found for this model")
            .at(input.path().map_or_else(|| input.name().to_string(), |path| path.display().to_string()))
            .hint(format!("to write the file without a vocabulary, use `vocab=none`; otherwise, {hint}"))),
    }
}

/// Returns the ids that begin and end texts, as llama.cpp's converter sets them.
fn special_ids(input: &Checkpoint, glm: Option<&Glm>, vocab: Option<&Vocab>) -> Vec<(String, GgufValue)> {
    let mut ids: Vec<(&str, u32)> = Vec::new();
    match glm {
        Some(glm) => {
            ids.extend(["eos", "eot", "eom"].into_iter().zip(glm.eos.iter().copied()));
            ids.extend(glm.pad.map(|pad| ("padding", pad)));
            ids.extend(glm.eos.first().map(|end| ("unknown", *end)));
            // llama.cpp's converter sets `bos` only for GLM-4-0414, although prompts do not begin with this token.
            ids.extend(glm.eos.first().filter(|_| glm.has_branch_norms()).map(|end| ("bos", *end)));
        }
        None if let Some(stops) = input.metadata().get(STOP_IDS) => {
            ids.extend(["eos", "eot", "eom"].into_iter().zip(crate::weights::ids(stops).unwrap_or_default()));
        }
        None => {
            ids.extend([("bos", 0), ("eos", 0)]);
            // An empty line ends a turn of the World format, but not of G1, whose answers have paragraphs.
            let is_g1 = input.name().to_lowercase().contains("g1");
            let line = vocab.filter(|_| !is_g1).and_then(|vocab| vocab.encode(b"\n\n").ok());
            ids.extend(line.filter(|ids| ids.len() == 1).map(|ids| ("eot", ids[0])));
        }
    }
    let mut values: Vec<_> = ids.into_iter().map(|(name, id)| (format!("tokenizer.ggml.{name}_token_id"), GgufValue::U32(id))).collect();
    if glm.is_some() {
        values.push(("tokenizer.ggml.add_bos_token".to_string(), GgufValue::Bool(false)));
    }
    values
}

/// Returns the source of the chat template: the template in the model's folder, or else a template for the model's family.
fn template(input: &Checkpoint, is_glm: bool, vocab: &Vocab) -> Result<String> {
    if let Some(folder) = input.path().and_then(Path::parent)
        && let Some(source) = template_in(folder)?
    {
        return Ok(source);
    }
    let starts = ["[gMASK]", "<sop>"].iter().all(|text| vocab.special(text).is_some_and(|id| vocab.begins_with(id)));
    Ok(match (is_glm, starts) {
        (false, _) => WORLD_TEMPLATE.to_string(),
        (true, true) => format!("[gMASK]<sop>\n{GLM_TEMPLATE}"),
        (true, false) => GLM_TEMPLATE.to_string(),
    })
}

/// Returns the chat template in a folder: `chat_template.jinja`, or the default template of `tokenizer_config.json`. `None` if the folder has
/// neither.
fn template_in(folder: &Path) -> Result<Option<String>> {
    let file = folder.join("chat_template.jinja");
    if file.is_file() {
        let bytes = read_small(&file, MAX_TEMPLATE_BYTES)?;
        return match String::from_utf8(bytes) {
            Ok(source) => Ok(Some(source)),
            Err(e) => Err(Error::file("the chat template is not UTF-8 text").at(file.display()).caused_by(e)),
        };
    }
    let file = folder.join("tokenizer_config.json");
    if !file.is_file() {
        return Ok(None);
    }
    let json: Value = serde_json::from_slice(&read_small(&file, MAX_TEMPLATE_BYTES)?)
        .map_err(|e| Error::file(format!("expected JSON: {e}")).at(file.display()).caused_by(e))?;
    Ok(match &json["chat_template"] {
        Value::String(source) => Some(source.clone()),
        Value::Array(named) => {
            let default = named.iter().find(|template| template["name"] == "default");
            default.and_then(|template| template["template"].as_str()).map(str::to_string)
        }
        _ => None,
    })
}

#[cfg(all(test, feature = "embedded-model"))]
mod tests;
