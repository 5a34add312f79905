//! Downloads a file into the cache. A download that was cut continues where it stopped. The hash is checked before the file gets its name.

use super::address::Address;
use super::cache::Cache;
use super::client::{Client, Metadata, RETRIES, Watched};
use super::digest::Hasher;
use super::partial::INCOMPLETE;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;
use wingbeat::error::{Error, Result};
use wingbeat::low_level::weights::new_file::{Lock, try_lock};

/// The number of bytes that are read, hashed and written at once.
const BLOCK: usize = 1 << 17;
/// The number of times that a server without range requests may send a file from the beginning again.
const RESTARTS: u32 = 20;
/// The time between two attempts to take a lock that another process holds.
const LOOK: Duration = Duration::from_millis(200);

/// A function that is called with the number of bytes that the file has by now.
pub type OnBytes<'a> = dyn FnMut(u64) + 'a;

/// Returns how many bytes of a file must still be downloaded.
pub fn remaining(cache: &Cache, address: &Address, commit: &str, found: &Metadata) -> u64 {
    if cache.snapshot_file(address, commit, &found.etag, found.size_bytes).is_some() {
        return 0;
    }
    let blob = blob(cache, address, found);
    match (blob.is_file(), fs::metadata(partial(&blob))) {
        (true, _) => 0,
        (false, Ok(m)) => found.size_bytes.saturating_sub(m.len()),
        (false, Err(_)) => found.size_bytes,
    }
}

/// Downloads a file, unless the cache has it, and links it into the snapshot of `commit`. Returns the path of the link. Waits while another process
/// downloads the same file.
///
/// # Errors
/// `Input` if the address names no file. `File` if the hub cannot be reached, the disk is full, the content has a wrong hash, or a link leaves the
/// cache.
pub fn pull(
    client: &Client,
    cache: &Cache,
    address: &Address,
    commit: &str,
    found: &Metadata,
    progress: &mut OnBytes<'_>,
) -> Result<PathBuf> {
    let file = address.file.as_deref().ok_or_else(|| Error::input("expected the address of a file").at(address))?;
    if let Some(path) = cache.snapshot_file(address, commit, &found.etag, found.size_bytes) {
        return Ok(path);
    }
    let blob = blob(cache, address, found);
    let blobs = cache.folder(address).join("blobs");
    cache.create(&blobs)?;
    let lock_path = cache.lock(address, &found.etag);
    cache.create(lock_path.parent().unwrap_or(&blobs))?;
    let lock = locked(&lock_path, &blob)?;
    if cache.existing(&blob)?.is_none() {
        let path = partial(&blob);
        // `list` and `rm` read the name of the file from the lock, because the name of a blob is only its hash.
        let _ = lock.set_len(0).and_then(|()| (&lock).write_all(file.as_bytes()));
        cache.check_space(address, remaining(cache, address, commit, found))?;
        let download = Download { client, address, commit, found, path: &path };
        download.run(progress)?;
        fs::rename(&path, &blob).map_err(|e| Error::io(e, &blob))?;
    }
    cache.link(address, commit, file, &found.etag)
}

fn blob(cache: &Cache, address: &Address, found: &Metadata) -> PathBuf {
    cache.folder(address).join("blobs").join(found.etag.as_str())
}

/// Returns the path of a blob that is not complete. Hugging Face's programs used the same name before huggingface_hub 2.4. Incomplete files of newer
/// versions have other names and may have holes, so no download continues them.
fn partial(blob: &Path) -> PathBuf {
    blob.with_extension(INCOMPLETE)
}

/// Opens or creates a lock or a partial file for writing. Refuses a link, because it could lead out of the cache.
fn opened(path: &Path) -> Result<File> {
    if fs::symlink_metadata(path).is_ok_and(|m| !m.is_file()) {
        return Err(Error::file("expected a file, found a link, a folder or a device")
            .at(path.display())
            .hint("remove it, then run the command again"));
    }
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).map_err(|e| Error::io(e, path))
}

/// Locks a blob, as Hugging Face's programs do. Waits while another process holds the lock.
fn locked(path: &Path, blob: &Path) -> Result<File> {
    let file = opened(path)?;
    let mut is_told = false;
    while try_lock(&file) == Lock::Held {
        if !is_told {
            log::warn!("another process downloads {}; waiting for it", blob.display());
        }
        is_told = true;
        sleep(LOOK);
    }
    Ok(file)
}

/// A download of one file into `path`.
struct Download<'a> {
    client: &'a Client,
    address: &'a Address,
    commit: &'a str,
    found: &'a Metadata,
    path: &'a Path,
}

impl Download<'_> {
    fn run(&self, progress: &mut OnBytes<'_>) -> Result<()> {
        let total = self.found.size_bytes;
        let mut file = opened(self.path)?;
        let mut hasher = self.found.etag.hasher(total);
        let mut done = self.resume(&mut file, &mut hasher)?;
        progress(done);
        let mut tries = Tries { most: done, failed: 0, restarts: 0 };
        while done < total {
            let content = self.client.content(self.address, self.commit, self.found, done)?;
            tries.restarts += u32::from(content.start != done);
            // A server may send the file from byte 0 again. Skip the bytes that earlier tries brought, so that no try loses them.
            let skipped = done - content.start;
            let ended = self.receive(content.reader, skipped, &mut file, &mut hasher, &mut done, progress)?;
            if done == total {
                break;
            }
            if !tries.may_go_on(done, self.client.least_bytes()) {
                let text = format!("the connection ends after {done} of {total} bytes: {ended}");
                return Err(Error::file(text).at(self.address).hint("run the command again: the download goes on where it stopped"));
            }
            log::debug!("{}: cut after {done} of {total} bytes: {ended}", self.address);
            self.client.wait(tries.failed);
        }
        let hash = hasher.finish();
        if hash != self.found.etag.as_str() {
            drop(file);
            fs::remove_file(self.path).map_err(|e| Error::io(e, self.path))?;
            let text = format!("expected a file with the hash {}, found {hash}: the downloaded file is removed", self.found.etag);
            return Err(Error::file(text).at(self.address).hint("run the command again"));
        }
        file.sync_all().map_err(|e| Error::io(e, self.path))
    }

    /// Hashes the bytes that an earlier download left, and returns their number. Drops the bytes and returns 0 if they are more than the whole
    /// file.
    fn resume(&self, file: &mut File, hasher: &mut Hasher) -> Result<u64> {
        let io = |e| Error::io(e, self.path);
        let length = file.metadata().map_err(io)?.len();
        if length > self.found.size_bytes {
            self.cut(file, 0)?;
            return Ok(0);
        }
        let (mut block, mut done) = (vec![0; BLOCK], 0);
        while done < length {
            let n = file.read(&mut block).map_err(io)?;
            if n == 0 {
                break;
            }
            hasher.update(&block[..n]);
            done += n as u64;
        }
        Ok(done)
    }

    fn cut(&self, file: &mut File, length: u64) -> Result<()> {
        let cut = file.set_len(length).and_then(|()| file.seek(SeekFrom::Start(length)));
        cut.map(drop).map_err(|e| Error::io(e, self.path))
    }

    /// Skips `skipped` bytes, then writes further bytes until the server stops or the file is complete. Returns why the server stopped, or an empty
    /// text for a complete file. Does not wait for bytes after a complete file.
    fn receive(
        &self,
        mut reader: Watched,
        mut skipped: u64,
        file: &mut File,
        hasher: &mut Hasher,
        done: &mut u64,
        progress: &mut OnBytes<'_>,
    ) -> Result<String> {
        let mut block = vec![0; BLOCK];
        while *done < self.found.size_bytes {
            let n = match reader.read(&mut block) {
                Ok(n) if n > 0 => n,
                Ok(_) => return Ok(reader.too_slow().unwrap_or_else(|| "the server closed the connection".into())),
                Err(e) => return Ok(reader.too_slow().unwrap_or_else(|| Error::of_io(e.kind().into()).message)),
            };
            let skip = skipped.min(n as u64);
            skipped -= skip;
            let new = &block[skip as usize..n];
            if *done + new.len() as u64 > self.found.size_bytes {
                self.cut(file, 0)?;
                let text = format!("expected {} bytes, found more: the download is dropped", self.found.size_bytes);
                return Err(Error::file(text).at(self.address).hint("run the command again"));
            }
            file.write_all(new).map_err(|e| Error::io(e, self.path))?;
            hasher.update(new);
            *done += new.len() as u64;
            progress(*done);
        }
        Ok(String::new())
    }
}

/// Counts the tries of a download, to end a download without progress. Otherwise, a server could send one byte in each of a billion tries.
struct Tries {
    /// The number of bytes of the file after the last progress.
    most: u64,
    /// The number of tries since the last progress.
    failed: u32,
    /// The number of times that the server sent the file from the beginning again.
    restarts: u32,
}

impl Tries {
    /// Counts a try after which the file has `done` bytes. Returns whether another try may follow. Small gains add up: the tries since the last
    /// progress count as new progress once they have brought at least `least` bytes together.
    fn may_go_on(&mut self, done: u64, least: u64) -> bool {
        if done - self.most >= least {
            (self.most, self.failed) = (done, 0);
        } else {
            self.failed += 1;
        }
        self.failed <= RETRIES && self.restarts <= RESTARTS
    }
}

#[cfg(all(test, unix))]
mod hostile;
#[cfg(all(test, unix))]
mod tests;
