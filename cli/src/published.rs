//! Finds a model by its path, by the name of a published model, or by an address on Hugging Face. If the model is missing, the
//! error explains how to get it.

mod table;

#[cfg(feature = "download")]
use crate::hub::{self, Address};
use std::path::{Path, PathBuf};
use table::{PUBLISHED, PublishedModel};
use wingbeat::error::{Error, Result};
use wingbeat::low_level::weights::EXTENSIONS;

/// The minimum similarity of two names for a suggestion, from 0 (different) to 1 (equal).
const ALIKE: f64 = 0.85;

/// The page of the documentation that lists all published models.
const PAGE: &str = "docs/models.md";

/// The kind of model that `-m` names.
#[derive(Debug)]
enum Target {
    /// A path on this disk. The file may be missing.
    Path,
    /// A model on Hugging Face.
    #[cfg(feature = "download")]
    Hub(Published),
}

/// A model on Hugging Face, as a user typed it.
#[cfg(feature = "download")]
#[derive(Debug)]
pub struct Published {
    /// The name or address that the user typed.
    pub typed: String,
    pub address: Address,
    /// The model's entry in [`PUBLISHED`], or `None` if the list does not have the model.
    model: Option<&'static PublishedModel>,
}

/// Returns the path of the model that `path` names. A published model, or a model at an `hf:` address, is taken from the cache, or
/// downloaded if the user agrees. All other paths are returned unchanged.
///
/// # Errors
/// `File` for a web address, and for a missing file whose path has neither a folder nor a checkpoint's extension. `File` for a model that is not on
/// this disk, if it may not be downloaded; the hint has the command that downloads it.
pub fn resolved(path: &Path) -> Result<PathBuf> {
    match target(path)? {
        Target::Path => Ok(path.to_path_buf()),
        #[cfg(feature = "download")]
        Target::Hub(found) => super::fetch::path(&found.typed, &found.address, found.newer(), found.missing()),
    }
}

/// Returns the path of the model that `path` names, as `-m` does, but asks no questions. A missing model is downloaded if `download` is given.
/// `download` reports the progress: its arguments are the downloaded bytes and all bytes.
///
/// # Errors
/// `File` for a web address, and for a missing file whose path has neither a folder nor a checkpoint's extension. `File` for a model that is not on
/// this disk, if it may not be downloaded; the hint says how.
#[cfg(feature = "download")]
pub fn located(path: &Path, download: Option<&mut dyn FnMut(u64, u64)>) -> Result<PathBuf> {
    let found = match target(path)? {
        Target::Path => return Ok(path.to_path_buf()),
        Target::Hub(found) => found,
    };
    let (settings, cache) = super::fetch::cache()?;
    match (cache.find(&found.address)?, download) {
        (Some(path), _) => Ok(path),
        (None, Some(progress)) => {
            let client = hub::Client::new(settings);
            hub::Plan::make(&client, &found.address)?.run(&client, &cache, progress)
        }
        (None, None) => {
            let mut e = found.missing();
            e.hint = e.hint.map(|hint| hint.replace("add --yes to this command", "set `download`"));
            Err(e)
        }
    }
}

/// Returns the kind of model that `path` names. Does not look into the cache.
fn target(path: &Path) -> Result<Target> {
    let text = path.to_string_lossy();
    if let Some(address) = address(&text) {
        return Err(web_address(&text, &address));
    }
    if exists(path) {
        return Ok(Target::Path);
    }
    #[cfg(feature = "download")]
    if text.starts_with(hub::PREFIX) {
        return Ok(Target::Hub(named_model(&text)?));
    }
    #[cfg(not(feature = "download"))]
    if text.starts_with("hf:") {
        let e = Error::file("this build of wingbeat does not download models").at(&text);
        return Err(e.hint("build it with the feature download, or download the file and give its path"));
    }
    if let Some(model) = named(&text) {
        #[cfg(feature = "download")]
        return Ok(Target::Hub(Published::of(model, &text)?));
        #[cfg(not(feature = "download"))]
        return Err(model.missing(&text));
    }
    if is_bare(&text) { Err(unknown(&text)) } else { Ok(Target::Path) }
}

/// Returns the model on Hugging Face that has this name or address.
///
/// # Errors
/// `Input` if the address is wrong. `File` if no published model has this name.
#[cfg(feature = "download")]
pub fn named_model(text: &str) -> Result<Published> {
    if text.starts_with(hub::PREFIX) {
        return Ok(Published { typed: text.into(), address: Address::parse(text)?, model: None });
    }
    if let Some(address) = address(text) {
        return Err(web_address(text, &address));
    }
    match named(text) {
        Some(model) => Published::of(model, text),
        None => {
            let similar = nearest(text).map(|model| format!("a similar name is {}; ", model.name)).unwrap_or_default();
            let all = format!("{PAGE} lists published models; a repository of Hugging Face is written hf:OWNER/REPO[/FILE]");
            Err(Error::file("no published model has this name").at(text).hint(similar + &all))
        }
    }
}

/// Returns the name of the published model at `address`. Returns `None` for other addresses, and for an address that names a revision.
#[cfg(feature = "download")]
pub fn name_of(address: &Address) -> Option<&'static str> {
    let repository = address.name();
    let found = PUBLISHED.iter().find(|p| p.repository.eq_ignore_ascii_case(&repository) && p.file == address.file.as_deref());
    found.filter(|_| address.is_unpinned()).map(|p| p.name)
}

/// Returns the error for the web address `address`, which the user typed as `text`.
fn web_address(text: &str, address: &str) -> Error {
    Error::file("expected a file or a model's name, found a web address").at(text).hint(for_address(address))
}

/// Returns the error for a name that no published model has. Suggests a similar name.
fn unknown(text: &str) -> Error {
    let e = Error::file("no such file or folder").at(text);
    match nearest(text) {
        Some(model) => {
            e.hint(format!("a published model is called {}; {}; {PAGE} lists all published models", model.name, model.how_to_get()))
        }
        None => e.hint(format!("wingbeat runs RWKV-4 to RWKV-7 and GLM-4, such as {}; {PAGE} lists published models", PUBLISHED[0].name)),
    }
}

#[cfg(feature = "download")]
impl Published {
    fn of(model: &'static PublishedModel, typed: &str) -> Result<Published> {
        let address = Address::in_repository(model.repository, model.file)?;
        Ok(Published { typed: typed.into(), address, model: Some(model) })
    }

    /// Returns the error of a model that is not on this disk.
    pub fn missing(&self) -> Error {
        match self.model {
            Some(model) => model.missing(&self.typed),
            None => Error::file("this model is not on this disk")
                .at(&self.typed)
                .hint(format!("download it with: wingbeat pull {}; or add --yes to this command", self.typed)),
        }
    }

    /// Returns a published model of the same series and repository with a later date, or `None` if there is no such model.
    pub fn newer(&self) -> Option<&'static str> {
        let repository = self.address.name();
        let files = PUBLISHED.iter().filter(|p| p.repository.eq_ignore_ascii_case(&repository)).filter_map(|p| p.file);
        let newer = hub::newer(self.address.file.as_deref()?, files)?;
        PUBLISHED.iter().find(|p| p.file == Some(newer)).map(|p| p.name)
    }
}

impl PublishedModel {
    /// Returns the command that downloads the model.
    pub fn command(&self) -> String {
        match self.file {
            Some(file) => format!("curl -LO https://huggingface.co/{}/resolve/main/{file}", self.repository),
            None => format!("hf download {} --local-dir {}", self.repository, self.name),
        }
    }

    /// Returns the error for a model that is not on this disk. `text` is the name that the user typed.
    fn missing(&self, text: &str) -> Error {
        let size = self.size.map(|size| format!(", {size}")).unwrap_or_default();
        let found = format!("no such file or folder, but this is a published model: {}, {}{size}", self.architecture, self.parameters);
        let or = if cfg!(feature = "download") { "; or add --yes to this command" } else { "" };
        Error::file(found).at(text).hint(self.how_to_get() + or)
    }

    fn how_to_get(&self) -> String {
        if cfg!(feature = "download") {
            return format!("download the model with: wingbeat pull {}", self.name);
        }
        format!("download the model with: {}; then give -m {}", self.command(), self.file.unwrap_or(self.name))
    }
}

/// Returns whether `path`, as it is or with a checkpoint's extension, is a file or a folder.
pub fn exists(path: &Path) -> bool {
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

/// Returns the hint for a web address: the address with `hf:` for a page of Hugging Face, else how to download the file with curl. A build without
/// downloads names curl, or Hugging Face's `hf`, for all addresses.
fn for_address(address: &str) -> String {
    let plain = address.split(['?', '#']).next().unwrap_or(address).trim_end_matches('/');
    let parts: Vec<&str> = plain.split('/').skip(2).collect();
    let is_hub = parts.first().is_some_and(|host| host.ends_with("huggingface.co") || *host == "hf.co");
    #[cfg(feature = "download")]
    if let Some(found) = on_hub(&parts).filter(|_| is_hub) {
        let repository = found.name();
        let has_many = |p: &&PublishedModel| found.file.is_none() && p.file.is_some() && p.repository.eq_ignore_ascii_case(&repository);
        return match PUBLISHED.iter().find(has_many) {
            Some(model) => format!("this repository has several models; {PAGE} lists them; one is -m {}", model.name),
            None => format!("write -m {found}"),
        };
    }
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

/// Returns the repository or file that a page of Hugging Face shows. `parts` is the page's address after `https://`, split at slashes:
/// `HOST/OWNER/REPO`, and maybe a revision and a file. Returns `None` for other pages.
#[cfg(feature = "download")]
fn on_hub(parts: &[&str]) -> Option<Address> {
    let (owner, repository, rest) = match parts {
        [_, owner, repository, rest @ ..] => (owner, repository, rest),
        _ => return None,
    };
    let mut text = format!("{}{owner}/{repository}", hub::PREFIX);
    match rest {
        [] => (),
        ["tree", revision] => text += &format!("@{revision}"),
        ["blob" | "resolve" | "raw", revision, file @ ..] if !file.is_empty() => text += &format!("/{}@{revision}", file.join("/")),
        _ => return None,
    }
    Address::parse(&text).ok()
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

/// Returns the published model with this name, alias, file or repository, or `None` if no published model matches. The name may have a checkpoint's
/// extension.
fn named(text: &str) -> Option<&'static PublishedModel> {
    let end = text.rsplit_once('.').map(|(_, end)| end).filter(|end| EXTENSIONS.iter().any(|known| end.eq_ignore_ascii_case(known)));
    let wanted = letters(end.map_or(text, |end| &text[..text.len() - end.len() - 1]));
    let is_kind = |p: &PublishedModel| end.is_none_or(|end| p.file.is_some_and(|f| f.ends_with(&end.to_lowercase())));
    let file = |p: &PublishedModel| p.file.is_some_and(|f| letters(f.trim_end_matches(".pth")) == wanted);
    let folder = |p: &PublishedModel| p.file.is_none() && letters(p.repository) == wanted;
    PUBLISHED.iter().filter(|p| is_kind(p)).find(|p| p.names().any(|name| letters(name) == wanted) || file(p) || folder(p))
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
