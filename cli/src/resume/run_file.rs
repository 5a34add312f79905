//! Records which model and settings made the results `OUT.jsonl`, in the file `OUT.jsonl.run.json`.
//!
//! A run compares its model and settings with the earlier run's record, so that one file does not mix two kinds of texts.

use super::lock::beside;
use crate::output::say;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::path::Path;
use wingbeat::error::{Error, Result};
use wingbeat::low_level::front_end::short;
use wingbeat::low_level::weights::{Checkpoint, NewFile, Readers};

const FORMAT_VERSION: u32 = 1;

/// The maximum size of a record file (`OUT.jsonl.run.json`) in bytes. A record of 100 settings has 10 KB.
const MAX_BYTES: u64 = 1 << 20;

/// The maximum number of differences that an error lists.
const SHOWN: usize = 4;

/// A record of everything that determines the texts of a run, except the prompts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunFile {
    format_version: u32,
    wingbeat: String,
    /// The model's name. The name is shown, but not compared.
    name: String,
    /// The seed of the run. Lines without their own seed derive their seeds from this seed.
    seed: u64,
    /// Names and values of everything that determines the texts, except the seed and the prompts: the hash of the weights, the weight format,
    /// the settings.
    made_with: Map<String, Value>,
}

impl RunFile {
    /// Creates the record of a run. `name` is the model's name. `made_with` has everything else that determines the texts, by name.
    pub fn new(name: &str, seed: u64, made_with: Map<String, Value>) -> RunFile {
        RunFile { format_version: FORMAT_VERSION, wingbeat: env!("CARGO_PKG_VERSION").into(), name: name.into(), seed, made_with }
    }

    /// If `has_results` is true, compares this record with the earlier run's record, which is stored beside the results. Then replaces the earlier
    /// record by this one. Returns the seed of the run: `asked_seed`, else the seed of the earlier record, else this record's seed.
    ///
    /// # Errors
    /// `File` if the records differ or the earlier record is damaged. With `force`, a note is printed instead.
    pub fn settle(mut self, results: &Path, has_results: bool, asked_seed: Option<u64>, force: bool) -> Result<u64> {
        let path = beside(results, "run.json")?;
        let old = match read(&path) {
            _ if !has_results => None,
            Err(e) if force => {
                say(format_args!("note: {e}; the file is replaced"));
                None
            }
            found => found?,
        };
        match &old {
            Some(old) => {
                self.seed = asked_seed.unwrap_or(old.seed);
                let found = self.differences(old);
                if !found.is_empty() && !force {
                    let text = format!("the results were made with other settings: {}", list(&found));
                    let hint = "give the same flags, another file with -o, or --force to continue with these settings";
                    return Err(Error::file(text).at(results.display()).hint(hint));
                }
                if !found.is_empty() {
                    say(format_args!("note: {} now records this run: {}", path.display(), list(&found)));
                }
            }
            None if has_results && !force => {
                let missing = path.file_name().unwrap_or_default().to_string_lossy();
                say(format_args!(
                    "note: {} has no {missing}: the results may come from another model or other settings",
                    results.display()
                ));
            }
            None => {}
        }
        if old.as_ref() != Some(&self) {
            self.write(&path).unwrap_or_else(|e| log::warn!("later runs cannot compare their settings with this run: {e}"));
        }
        Ok(self.seed)
    }

    /// Returns one text per setting that differs: its name and both values.
    fn differences(&self, old: &RunFile) -> Vec<String> {
        let value = |of: &RunFile, name: &str| of.made_with.get(name).cloned().unwrap_or_default();
        let mut names: Vec<&String> = self.made_with.keys().collect();
        names.extend(old.made_with.keys().filter(|name| !self.made_with.contains_key(*name)));
        let mut found = Vec::new();
        for name in names {
            let (was, is) = (value(old, name), value(self, name));
            // Earlier versions had the setting `tail-free`, which had no effect with the value 1.
            let is_deleted = name == "sampling.tail-free" && was == "1";
            if was != is && !is_deleted {
                let shown = |of: &RunFile, value: &Value| match name.as_str() {
                    "model" => format!("{} {}", short(&of.name, 40), shown(value)),
                    _ => shown(value),
                };
                found.push(format!("{name} (was {}, is {})", shown(old, &was), shown(self, &is)));
            }
        }
        if self.seed != old.seed {
            found.push(format!("seed (was {}, is {})", old.seed, self.seed));
        }
        found
    }

    fn write(&self, path: &Path) -> Result<()> {
        let new = NewFile::create(path, Readers::Umask)?;
        let text = serde_json::to_string_pretty(self).expect("a run is plain data");
        writeln!(new.file(), "{text}").map_err(|e| Error::io(e, path))?;
        new.finish()
    }
}

/// Reads the record in the file `path`. Returns `None` if the file does not exist.
fn read(path: &Path) -> Result<Option<RunFile>> {
    let mut text = String::new();
    match File::open(path).and_then(|file| file.take(MAX_BYTES + 1).read_to_string(&mut text)) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        read => read.map_err(|e| Error::io(e, path))?,
    };
    let run: serde_json::Result<RunFile> = serde_json::from_str(&text);
    match run {
        Ok(run) if run.format_version == FORMAT_VERSION => Ok(Some(run)),
        Ok(run) => Err(format!("format {}", run.format_version)),
        Err(e) => Err(e.to_string()),
    }
    .map_err(|found| {
        let e = Error::file(format!("expected the settings of a run of batch in format version {FORMAT_VERSION}, found {found}"));
        e.at(path.display()).hint("restore the file, or continue without it: --force")
    })
}

/// Returns the first [`SHOWN`] differences as one text, and the number of further differences.
fn list(found: &[String]) -> String {
    let more = found.len().saturating_sub(SHOWN);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{more}", found[..found.len().min(SHOWN)].join(", "))
}

/// Returns a short form of a setting's value for a message. A hash is shown by its first 8 digits.
fn shown(value: &Value) -> String {
    match value {
        Value::Null => "none".into(),
        Value::String(text) if text.len() == 64 && text.bytes().all(|b| b.is_ascii_hexdigit()) => text[..8].into(),
        Value::String(text) if !text.is_empty() => short(text, 40),
        other => short(&other.to_string(), 40),
    }
}

/// Returns the sha256 of all `parts` as hexadecimal digits. The length of each part is hashed before the part, so that `ab`, `c` and
/// `a`, `bc` have different hashes.
pub fn hash_of_parts<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hex(hash)
}

/// Returns the sha256 of all files of a checkpoint as hexadecimal digits. `path` is a file, a file's path without the extension, or a folder.
///
/// # Errors
/// `File` if the checkpoint does not exist or cannot be read.
pub fn hash_of_checkpoint(path: &Path) -> Result<String> {
    let (mut hash, mut block) = (Sha256::new(), vec![0; 1 << 20]);
    for path in Checkpoint::open(path)?.files() {
        let io = |e| Error::io(e, path);
        let mut file = File::open(path).map_err(io)?;
        loop {
            match file.read(&mut block).map_err(io)? {
                0 => break,
                n => hash.update(&block[..n]),
            }
        }
    }
    Ok(hex(hash))
}

fn hex(hash: Sha256) -> String {
    hash.finalize().iter().map(|b| format!("{b:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn run(temperature: &str, seed: u64) -> RunFile {
        let made_with = json!({"model": "a".repeat(64), "format": null, "sampling.temperature": temperature});
        let Value::Object(made_with) = made_with else { unreachable!() };
        RunFile { format_version: FORMAT_VERSION, wingbeat: "0".into(), name: "m".into(), seed, made_with }
    }

    #[test]
    fn results_are_continued_with_what_made_them() {
        let folder = tempfile::tempdir().unwrap();
        let results = folder.path().join("out.jsonl");
        let settle = |run: RunFile, seed, force| run.settle(&results, true, seed, force).map_err(|e| e.to_string());
        // At first, the results have no record, as from an older version. The first call of `settle` writes a record.
        assert_eq!(settle(run("1", 7), None, false), Ok(7));
        assert_eq!(settle(run("1", 8), None, false), Ok(7), "the seed stays");
        assert_eq!(settle(run("1", 8), Some(7), false), Ok(7));
        let said = settle(run("1", 8), Some(8), false).unwrap_err();
        assert!(said.contains("out.jsonl: the results were made with other settings: seed (was 7, is 8)"), "{said}");
        let said = settle(run("0.5", 7), None, false).unwrap_err();
        assert!(said.contains(": sampling.temperature (was 1, is 0.5) (give") && said.contains("--force"), "{said}");
        let mut other = RunFile { name: "n".into(), ..run("1", 7) };
        other.made_with["model"] = "b".repeat(64).into();
        other.made_with["format"] = "g1".into();
        let said = settle(other, None, false).unwrap_err();
        assert!(said.contains("model (was m aaaaaaaa, is n bbbbbbbb), format (was none, is g1)"), "{said}");
        // A deleted setting of earlier versions counts as a difference only if the setting had an effect.
        let path = folder.path().join("out.jsonl.run.json");
        let text = std::fs::read_to_string(&path).unwrap();
        for (was, want) in [("1", true), ("0.5", false)] {
            let old = text.replace("\"sampling.temperature\"", &format!("\"sampling.tail-free\":\"{was}\",\"sampling.temperature\""));
            assert_ne!(old, text);
            std::fs::write(&path, old).unwrap();
            assert_eq!(settle(run("1", 7), None, false).is_ok(), want, "{was}");
        }
        std::fs::write(&path, text).unwrap();
        // A model with another name but equal weights counts as the same model.
        assert_eq!(settle(RunFile { name: "n".into(), ..run("1", 7) }, None, false), Ok(7));
        assert_eq!(settle(run("0.5", 9), Some(9), true), Ok(9));
        assert_eq!(settle(run("0.5", 1), None, false), Ok(9), "what was forced holds from then on");
        // A new file of results has no earlier settings.
        assert_eq!(run("2", 3).settle(&results, false, None, false).unwrap(), 3);
        assert_eq!(settle(run("2", 1), None, false), Ok(3));
    }

    #[test]
    fn a_damaged_file_is_refused_unless_forced() {
        let folder = tempfile::tempdir().unwrap();
        let (results, path) = (folder.path().join("out.jsonl"), folder.path().join("out.jsonl.run.json"));
        for text in ["", "{}", "[1]", r#"{"format_version":2,"wingbeat":"0","name":"m","seed":1,"made_with":{}}"#] {
            std::fs::write(&path, text).unwrap();
            let said = run("1", 7).settle(&results, true, None, false).unwrap_err().to_string();
            assert!(said.contains("run.json: expected the settings of a run of batch") && said.contains("--force"), "{said}");
            assert_eq!(run("1", 7).settle(&results, true, None, true).unwrap(), 7);
            assert_eq!(run("1", 8).settle(&results, true, None, false).unwrap(), 7);
        }
    }
}
