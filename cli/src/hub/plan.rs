//! Chooses the files of a model, and downloads them.

use super::address::{Address, is_model};
use super::cache::{CONFIG, Cache};
use super::client::{Client, Metadata};
use super::download;
use super::series::newer;
use std::path::PathBuf;
use wingbeat::error::{Error, Result};

/// The extensions of the files of a folder model: weights, configuration, tokenizer and templates.
const BESIDE: [&str; 6] = ["json", "model", "tiktoken", "jinja", "txt", "safetensors"];

/// The maximum number of files of a folder model. Each file costs a request.
const MOST_FILES: usize = 1000;

/// The maximum number of files that an error names.
const NAMED: usize = 5;

/// A model that can be downloaded, with all its files at one commit.
#[derive(Debug)]
pub struct Plan {
    address: Address,
    commit: String,
    files: Vec<(Address, Metadata)>,
    /// True if the model is a folder of files.
    is_folder: bool,
    /// A newer file of the same series in the repository. `None` if the repository has no newer file, or if the address names no file.
    pub newer: Option<Address>,
}

impl Plan {
    /// Asks the hub for the files of the model at `address`.
    ///
    /// # Errors
    /// `File` if the hub cannot be reached, or if the repository does not have the file. `Input` if the address names no file, and the repository has
    /// several models.
    pub fn make(client: &Client, address: &Address) -> Result<Plan> {
        let listing = client.list(address)?;
        let names: Vec<&str> = listing.files.iter().map(String::as_str).collect();
        let chosen = chosen(&names, address)?;
        let mut files = Vec::new();
        for name in &chosen {
            let file = address.with_file(name)?;
            let found = client.metadata(&file, &listing.commit)?;
            files.push((file, found));
        }
        let newer =
            address.file.as_ref().and_then(|file| newer(file, names.iter().copied())).map(|file| address.with_file(file)).transpose()?;
        Ok(Plan { address: address.clone(), commit: listing.commit, files, is_folder: chosen.len() > 1, newer })
    }

    /// Returns the size of all files.
    pub fn size_bytes(&self) -> u64 {
        self.files.iter().map(|(_, found)| found.size_bytes).fold(0, u64::saturating_add)
    }

    /// Returns the number of bytes that are not in the cache yet.
    pub fn remaining_bytes(&self, cache: &Cache) -> u64 {
        self.files.iter().map(|(file, found)| download::remaining(cache, file, &self.commit, found)).fold(0, u64::saturating_add)
    }

    /// Returns why the cache cannot be written, or `None` if it can be.
    pub fn refused_by(&self, cache: &Cache) -> Option<Error> {
        cache.refuses_writing(&self.address, &self.commit)
    }

    /// Downloads the files that the cache does not have, and returns the model's path. `progress` is called with the bytes done and the bytes of all
    /// files.
    ///
    /// # Errors
    /// The errors of `download::pull`. `File` if the disk has too little space for all files together.
    pub fn run(&self, client: &Client, cache: &Cache, progress: &mut dyn FnMut(u64, u64)) -> Result<PathBuf> {
        let (mut before, total) = (0, self.size_bytes());
        let mut path = PathBuf::new();
        cache.check_space(&self.address, self.remaining_bytes(cache))?;
        for (file, found) in &self.files {
            path = download::pull(client, cache, file, &self.commit, found, &mut |done| progress(before + done, total))?;
            before += found.size_bytes;
            progress(before, total);
        }
        // An error is only a warning: the model is in the cache, and a later command without a revision finds it there.
        if let Err(e) = cache.remember(&self.address, &self.commit) {
            log::warn!("{e}");
        }
        if self.is_folder {
            path.pop();
        }
        Ok(path)
    }
}

/// Returns the files of the model at `address`. The configuration of a folder model is the last, because it marks a complete folder in the cache.
fn chosen<'a>(files: &[&'a str], address: &Address) -> Result<Vec<&'a str>> {
    let models: Vec<&str> = files.iter().copied().filter(|file| is_model(file)).collect();
    if let Some(wanted) = &address.file {
        return match files.iter().find(|file| **file == wanted) {
            Some(file) => Ok(vec![file]),
            None => Err(Error::file("the repository has no such file").at(address).hint(in_repository(&models))),
        };
    }
    let is_beside = |file: &&str| !file.contains('/') && file.rsplit_once('.').is_some_and(|(_, end)| BESIDE.contains(&end));
    if files.contains(&CONFIG) && models.iter().any(is_beside) {
        let mut folder: Vec<&str> = files.iter().copied().filter(is_beside).filter(|file| *file != CONFIG).collect();
        folder.push(CONFIG);
        if folder.len() > MOST_FILES {
            let text = format!("expected a model of at most {MOST_FILES} files, found {} files", folder.len());
            return Err(Error::file(text).at(address).hint("add the name of a file, as in hf:OWNER/REPO/FILE"));
        }
        return Ok(folder);
    }
    match models.as_slice() {
        [] => Err(Error::file("the repository has no checkpoint that wingbeat reads").at(address).hint(in_repository(&models))),
        [file] => Ok(vec![file]),
        _ => {
            let e = Error::input(format!("expected a repository with one model, found {} models", models.len())).at(address);
            Err(e.hint(format!("add the name of a file, as in hf:OWNER/REPO/FILE; {}", in_repository(&models))))
        }
    }
}

/// Names the last models of a repository, whose dates are often the newest.
fn in_repository(models: &[&str]) -> String {
    if models.is_empty() {
        return "wingbeat reads .pth, .safetensors and .gguf files".into();
    }
    let last = models.iter().rev().take(NAMED).copied().collect::<Vec<_>>().join(", ");
    let more = models.len().saturating_sub(NAMED);
    if more > 0 { format!("the repository has {last} and {more} more") } else { format!("the repository has {last}") }
}

#[cfg(all(test, unix))]
mod tests {
    use super::super::testing::{Answer, Hub, hub_answer, model_and_cache, sha256};
    use super::*;

    fn chosen(address: &str, files: &[&str]) -> String {
        let address = Address::parse(address).unwrap();
        super::chosen(files, &address).map_or_else(|e| e.to_string(), |files| files.join(" "))
    }

    #[test]
    fn the_files_of_a_model_are_chosen() {
        for (address, files, want) in [
            ("hf:a/b", &["README.md", "x.pth"][..], "x.pth"),
            ("hf:a/b/y.pth", &["x.pth", "y.pth"], "y.pth"),
            (
                "hf:a/b",
                &["config.json", "model-1.safetensors", "LICENSE", "tokenizer.json", "sub/x.safetensors"],
                "model-1.safetensors tokenizer.json config.json",
            ),
            ("hf:a/b", &["config.json", "x.pth"], "x.pth"),
        ] {
            assert_eq!(chosen(address, files), want);
        }
        for (address, files, want) in [
            ("hf:a/b", &["README.md"][..], "no checkpoint"),
            ("hf:a/b", &["x.pth", "y.pth"], "found 2 models"),
            ("hf:a/b/z.pth", &["x.pth", "y.pth"], "has no such file (the repository has y.pth, x.pth)"),
        ] {
            assert!(chosen(address, files).contains(want), "{}", chosen(address, files));
        }
    }

    #[test]
    fn a_model_is_downloaded_once_and_then_found() {
        let files: [(&str, &[u8]); 4] =
            [("config.json", b"{}"), ("model.safetensors", b"weights"), ("tokenizer.json", b"tokens"), ("README.md", b"no")];
        let hub = Hub::with_files(&files);
        let (file, cache, _folder) = model_and_cache("x");
        let address = Address { file: None, ..file };
        let plan = Plan::make(&hub.client(), &address).unwrap();
        assert_eq!((plan.size_bytes(), plan.remaining_bytes(&cache)), (15, 15));
        let mut last = (0, 0);
        let path = plan.run(&hub.client(), &cache, &mut |done, total| last = (done, total)).unwrap();
        assert_eq!((last, plan.remaining_bytes(&cache)), ((15, 15), 0));
        assert_eq!(cache.find(&address).unwrap(), Some(path.clone()));
        assert_eq!(std::fs::read(path.join("model.safetensors")).unwrap(), b"weights");
        assert!(!path.join("README.md").exists());
        assert_eq!(cache.list().unwrap().models[0].path, path);
    }

    #[test]
    fn the_sum_of_a_folder_is_compared_with_the_disk() {
        let (file, cache, folder) = model_and_cache("x");
        let free = wingbeat::low_level::weights::new_file::free_bytes(folder.path()).unwrap();
        // Each file alone fits on the disk, but both together do not.
        let hub = Hub::start(move |request, _| match request.method.as_str() {
            "HEAD" => Answer::new(200, "").with("x-linked-size", free / 10 * 6).with("x-linked-etag", sha256(b"x")),
            "GET" if request.path.contains("/resolve/") => Answer::new(200, "x"),
            _ => hub_answer(request, &[("config.json".into(), vec![]), ("m.safetensors".into(), vec![])]),
        });
        let address = Address { file: None, ..file };
        let plan = Plan::make(&hub.client(), &address).unwrap();
        let e = plan.run(&hub.client(), &cache, &mut |_, _| ()).unwrap_err().to_string();
        assert!(e.contains("the download needs") && e.contains("but the disk has only"), "{e}");
        assert!(hub.requests().iter().all(|request| !request.path.contains("/resolve/") || request.method == "HEAD"));
    }

    #[test]
    fn a_newer_file_is_mentioned_and_not_downloaded() {
        let (old, new) = ("rwkv7-g1j-1.5b-20260801-ctx8192.pth", "rwkv7-g1k-1.5b-20260930-ctx25600.pth");
        let hub = Hub::with_files(&[(old, b"old"), (new, b"new")]);
        let (address, cache, _folder) = model_and_cache(old);
        let plan = Plan::make(&hub.client(), &address).unwrap();
        assert_eq!(plan.newer.as_ref().unwrap().file.as_deref(), Some(new));
        assert!(plan.run(&hub.client(), &cache, &mut |_, _| ()).unwrap().ends_with(old));
        assert!(hub.requests().iter().all(|request| !request.path.ends_with(new)));
    }
}
