//! Returns hints on how to download a published model that is not on this disk. wingbeat itself downloads nothing.

mod table;

use crate::error::{Error, Result};
use crate::weights::EXTENSIONS;
use std::path::Path;
use table::{PUBLISHED, PublishedModel};

/// The minimum similarity of two names for a suggestion, from 0 (different) to 1 (equal).
const ALIKE: f64 = 0.85;

/// The page of the documentation that lists all published models.
const PAGE: &str = "docs/models.md";

/// Refuses web addresses. Also refuses a missing file whose path is the name of a published model, or has neither a folder nor a checkpoint's
/// extension. Accepts all other paths.
///
/// # Errors
/// `File`. If the path is the name of a published model, the hint has the command that downloads the model.
pub fn check(path: &Path) -> Result<()> {
    let text = path.to_string_lossy();
    if let Some(address) = address(&text) {
        return Err(Error::file("expected a file, found a web address: wingbeat does not download models")
            .at(&text)
            .hint(for_address(&address)));
    }
    if exists(path) {
        return Ok(());
    }
    if let Some(model) = named(&text) {
        let size = model.size.map(|size| format!(", {size}")).unwrap_or_default();
        let found = format!("no such file or folder, but this is a published model: {}, {}{size}", model.architecture, model.parameters);
        return Err(Error::file(found).at(&text).hint(model.how_to_get()));
    }
    if !is_bare(&text) {
        return Ok(());
    }
    let e = Error::file("no such file or folder").at(&text);
    Err(match nearest(&text) {
        Some(model) => {
            e.hint(format!("a published model is called {}; {}; {PAGE} lists all published models", model.name, model.how_to_get()))
        }
        None => e.hint(format!("wingbeat runs RWKV-4 to RWKV-7 and GLM-4, such as {}; {PAGE} lists published models", PUBLISHED[0].name)),
    })
}

impl PublishedModel {
    /// Returns the command that downloads the model.
    pub fn command(&self) -> String {
        match self.file {
            Some(file) => format!("curl -LO https://huggingface.co/{}/resolve/main/{file}", self.repository),
            None => format!("hf download {} --local-dir {}", self.repository, self.name),
        }
    }

    fn how_to_get(&self) -> String {
        format!("download the model with: {}; then give -m {}", self.command(), self.file.unwrap_or(self.name))
    }
}

/// Returns whether `path`, as it is or with a checkpoint's extension, is a file or a folder.
fn exists(path: &Path) -> bool {
    let longer = |extension: &str| {
        let mut name = path.as_os_str().to_owned();
        name.push(".");
        name.push(extension);
        Path::new(&name).exists()
    };
    path.exists() || EXTENSIONS.iter().any(|extension| longer(extension))
}

/// Returns `text` if it is a web address, with `https://` added before Hugging Face's host name. Otherwise returns `None`.
fn address(text: &str) -> Option<String> {
    let lower = text.to_lowercase();
    if lower.starts_with("http://") || lower.starts_with("https://") {
        return Some(text.into());
    }
    let is_host = ["huggingface.co/", "hf.co/", "www.huggingface.co/"].iter().any(|host| lower.starts_with(host));
    is_host.then(|| format!("https://{text}"))
}

/// Returns the hint for a web address: how to download a file with curl, or a repository of Hugging Face with `hf`.
fn for_address(address: &str) -> String {
    let plain = address.split(['?', '#']).next().unwrap_or(address).trim_end_matches('/');
    let parts: Vec<&str> = plain.split('/').skip(2).collect();
    let is_hub = parts.first().is_some_and(|host| host.ends_with("huggingface.co") || *host == "hf.co");
    let last = parts.last().copied().unwrap_or_default();
    let is_file = EXTENSIONS.iter().any(|e| last.to_lowercase().ends_with(&format!(".{e}")));
    match parts.as_slice() {
        _ if is_file => {
            // Hugging Face shows a page about a file at `blob`. The file itself is at `resolve`.
            let file = if is_hub { plain.replacen("/blob/", "/resolve/", 1) } else { address.into() };
            format!("download the model with: curl -LO '{file}'; then give -m {last}")
        }
        [_, owner, name, ..] if is_hub => {
            let repository = format!("{owner}/{name}");
            match PUBLISHED.iter().find(|p| p.repository.eq_ignore_ascii_case(&repository)) {
                Some(model) if model.file.is_some() => {
                    format!("this repository has several models; {PAGE} lists them; one is {}: {}", model.name, model.command())
                }
                _ => format!("download the model with: hf download {repository} --local-dir {name}; then give -m {name}"),
            }
        }
        _ => format!("download a checkpoint (.{}) and give its path; {PAGE} lists published models", EXTENSIONS.join(", .")),
    }
}

/// Returns whether the text is only a name: no folder, no extension of a checkpoint.
fn is_bare(text: &str) -> bool {
    let has_extension = EXTENSIONS.iter().any(|e| text.to_lowercase().ends_with(&format!(".{e}")));
    !text.is_empty() && !text.contains(['/', '\\']) && !text.starts_with(['.', '~']) && !has_extension
}

/// Returns the letters, digits and dots of a name, in lower case. Names with equal letters count as equal, such as `RWKV_7 G1:1.5b` and
/// `rwkv7-g1-1.5b`.
fn letters(name: &str) -> String {
    name.to_lowercase().chars().filter(|c| c.is_alphanumeric() || *c == '.').collect()
}

/// Returns the published model with this name, alias, file or repository, or `None` if no published model matches.
fn named(text: &str) -> Option<&'static PublishedModel> {
    let wanted = letters(text);
    let file = |p: &PublishedModel| p.file.is_some_and(|f| letters(f) == wanted || letters(f.trim_end_matches(".pth")) == wanted);
    let folder = |p: &PublishedModel| p.file.is_none() && letters(p.repository) == wanted;
    PUBLISHED.iter().find(|p| p.names().any(|name| letters(name) == wanted) || file(p) || folder(p))
}

/// Returns the published model with the most similar name, or `None` if no name is similar enough.
fn nearest(text: &str) -> Option<&'static PublishedModel> {
    let wanted = letters(text);
    let likeness = |p: &PublishedModel| p.names().map(|name| strsim::jaro_winkler(&letters(name), &wanted)).fold(0.0, f64::max);
    let mut best: Option<(&PublishedModel, f64)> = None;
    for model in PUBLISHED {
        let found = likeness(model);
        if found > best.map_or(ALIKE, |(_, most)| most) {
            best = Some((model, found));
        }
    }
    best.map(|(model, _)| model)
}

impl PublishedModel {
    fn names(&self) -> impl Iterator<Item = &'static str> {
        std::iter::once(self.name).chain(self.aliases.iter().copied())
    }
}

#[cfg(test)]
mod tests;
