//! Files of chat: what is beside a checkpoint, its template and its settings for generation.

use super::{Family, GenerationConfig, Jinja};
use crate::error::{Error, Result};
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Real ones have some kilobytes; a `tokenizer_config.json` with thousands of added tokens has a megabyte.
const MAX_BYTES: u64 = 8 << 20;

/// What a model's folder holds for chat. Either may be missing.
#[derive(Debug)]
pub struct Files {
    /// `chat_template.jinja`, or else the `chat_template` in `tokenizer_config.json`.
    pub template: Option<Jinja>,
    /// `generation_config.json`, over the defaults of the family.
    pub generation: GenerationConfig,
}

impl Files {
    /// Reads them. Of several templates in `tokenizer_config.json` the one called `default` is taken.
    ///
    /// # Errors
    /// `File` at a file that cannot be read or is none of its kind; `Usage` at a setting that is not supported.
    pub fn read(folder: &Path, family: Family) -> Result<Files> {
        let in_file = |name: &str, e: Error| e.at(folder.join(name).display());
        let name = "chat_template.jinja";
        let template = match read(folder, name)? {
            Some(bytes) => {
                let source = std::str::from_utf8(&bytes).map_err(|_| in_file(name, Error::file("expected a template in UTF-8")))?;
                Some(Jinja::parse(source, family).map_err(|e| in_file(name, e))?)
            }
            None => None,
        };
        let name = "tokenizer_config.json";
        let template = match (template, read(folder, name)?) {
            (None, Some(json)) => Jinja::from_tokenizer_config(&json, None, family).map_err(|e| in_file(name, e))?,
            (template, _) => template,
        };
        let name = "generation_config.json";
        let generation = match read(folder, name)? {
            Some(json) => GenerationConfig::glm().read(&json).map_err(|e| in_file(name, e))?,
            None => GenerationConfig::glm(),
        };
        Ok(Files { template, generation })
    }
}

fn read(folder: &Path, name: &str) -> Result<Option<Vec<u8>>> {
    read_whole(&folder.join(name))
}

/// A file whole; none where there is none.
pub(crate) fn read_whole(path: &Path) -> Result<Option<Vec<u8>>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(Error::io(e, path)),
    };
    let mut bytes = Vec::new();
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(|e| Error::io(e, path))?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(Error::file(format!("expected at most {MAX_BYTES} bytes, found more")).at(path.display()));
    }
    Ok(Some(bytes))
}

#[cfg(test)]
mod tests {
    use super::super::{Message, Template, whole};
    use super::*;
    use std::fs;

    #[test]
    fn a_folder_says_what_it_has() {
        let folder = tempfile::tempdir().unwrap();
        let read = || Files::read(folder.path(), Family::Glm4);
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

        write("chat_template.jinja", "{% if");
        let said = read().unwrap_err().to_string();
        assert!(said.contains("chat_template.jinja: expected a template in Jinja") && !said.contains('\n'), "{said}");
        fs::remove_file(folder.path().join("chat_template.jinja")).unwrap();
        write("generation_config.json", r#"{"num_beams": 2}"#);
        let said = read().unwrap_err().to_string();
        assert!(said.contains("generation_config.json: num_beams: expected 1, found 2"), "{said}");
    }
}
