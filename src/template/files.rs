//! Chat files in a checkpoint's folder: the template and generation settings.

use super::{Family, GenerationConfig, Jinja};
use crate::error::{Error, Result};
use crate::files;
use std::io::Read;
use std::path::Path;

/// The maximum size of a file, in bytes. A `tokenizer_config.json` with thousands of added tokens has 1 MB.
const MAX_BYTES: u64 = 8 << 20;

/// The chat files of a checkpoint's folder.
#[derive(Debug)]
pub struct Files {
    /// The template in `chat_template.jinja`, or else `chat_template` in `tokenizer_config.json`. `None` if both are missing.
    pub template: Option<Jinja>,
    /// The settings of `generation_config.json`. Missing settings have the defaults of the model's family.
    pub generation: GenerationConfig,
}

impl Files {
    /// Reads the files. If `tokenizer_config.json` has several templates, takes the template `default`. A setting that `generation_config.json` lacks
    /// has its value from `defaults`.
    ///
    /// # Errors
    /// `File` if a file cannot be read or is invalid, `Usage` if a setting is unsupported.
    pub fn read(folder: &Path, family: Family, defaults: GenerationConfig) -> Result<Files> {
        let in_file = |name: &str, e: Error| e.at(folder.join(name).display());
        let template = Self::template(folder, family)?;
        let name = "generation_config.json";
        let generation = match read(folder, name)? {
            Some(json) => defaults.read(&json).map_err(|e| in_file(name, e))?,
            None => defaults,
        };
        Ok(Files { template, generation })
    }

    /// Reads only the template. If `tokenizer_config.json` has several templates, takes the template `default`. Returns `None` if the folder has no
    /// template.
    ///
    /// # Errors
    /// `File` if a file cannot be read or is invalid.
    pub fn template(folder: &Path, family: Family) -> Result<Option<Jinja>> {
        let in_file = |name: &str, e: Error| e.at(folder.join(name).display());
        let name = "chat_template.jinja";
        let template = match read(folder, name)? {
            Some(bytes) => {
                let source = std::str::from_utf8(&bytes).map_err(|_| in_file(name, Error::file("the chat template is not UTF-8 text")))?;
                Some(Jinja::parse(source, family).map_err(|e| in_file(name, e))?)
            }
            None => None,
        };
        let name = "tokenizer_config.json";
        match (template, read(folder, name)?) {
            (None, Some(json)) => Jinja::from_tokenizer_config(&json, None, family).map_err(|e| in_file(name, e)),
            (template, _) => Ok(template),
        }
    }
}

fn read(folder: &Path, name: &str) -> Result<Option<Vec<u8>>> {
    read_whole(&folder.join(name))
}

/// Returns a text file's bytes without a byte order mark, or `None` if the file does not exist. Returns a `File` error if the file is too large or
/// cannot be read.
pub fn read_whole(path: &Path) -> Result<Option<Vec<u8>>> {
    let file = match files::open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(Error::io(e, path)),
    };
    let mut bytes = Vec::new();
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(|e| Error::io(e, path))?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(Error::file(format!("expected a file of at most {MAX_BYTES} bytes, found a larger file")).at(path.display()));
    }
    Ok(Some(files::without_mark(bytes)))
}

#[cfg(test)]
mod tests {
    use super::super::{Message, Template, whole};
    use super::*;
    use std::fs;

    #[test]
    fn files_of_a_folder_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let read = || Files::read(folder.path(), Family::Glm4, GenerationConfig::glm());
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        let rendered = |files: &Files| whole(&files.template.as_ref().unwrap().render(&[Message::user("x")]).unwrap());

        let none = read().unwrap();
        assert!(none.template.is_none() && none.generation == GenerationConfig::glm());
        write("generation_config.json", r#"{"temperature": 0.5}"#);
        write(
            "tokenizer_config.json",
            r#"{"chat_template": "config {{ messages[0].content }} {{ eos_token }}", "eos_token": {"content": "E"}}"#,
        );
        let files = read().unwrap();
        assert_eq!((rendered(&files).as_str(), files.generation.temperature), ("config x E", 0.5));
        write("chat_template.jinja", "file {{ messages[0].content }}");
        assert_eq!(rendered(&read().unwrap()), "file x");

        // Editors on Windows put a byte order mark before a text.
        write("chat_template.jinja", "\u{feff}file {{ messages[0].content }}");
        write("generation_config.json", "\u{feff}{\"temperature\": 0.25}");
        let files = read().unwrap();
        assert_eq!((rendered(&files).as_str(), files.generation.temperature), ("file x", 0.25));

        write("chat_template.jinja", "{% if");
        let said = read().unwrap_err().to_string();
        assert!(said.contains("chat_template.jinja: the chat template is not valid Jinja") && !said.contains('\n'), "{said}");
        fs::remove_file(folder.path().join("chat_template.jinja")).unwrap();
        write("generation_config.json", r#"{"num_beams": 2}"#);
        let said = read().unwrap_err().to_string();
        assert!(said.contains("generation_config.json: num_beams: expected 1 beam, found 2"), "{said}");
    }
}
