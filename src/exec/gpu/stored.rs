//! Keeps a file with the driver's compiled kernels, so that the next start of the program need not compile the kernels again. Only the Vulkan backend
//! supports such a file. Most drivers also keep files of their own.

use crate::error::{Error, Result};
use crate::weights::{NewFile, Readers};
use sha2::{Digest, Sha256};
use std::io::Write;
use std::path::{Path, PathBuf};

/// The number of bytes of a SHA-256 hash.
const HASH: usize = 32;

/// The driver's compiled kernels, and their file: the SHA-256 of the driver's data, then the data.
pub struct StoredKernels {
    cache: wgpu::PipelineCache,
    path: PathBuf,
    /// The SHA-256 of the data that the file had when it was opened. `None` if the file was missing or damaged.
    hash: Option<[u8; HASH]>,
}

impl StoredKernels {
    /// Reads the file at `path`, and gives its data to the driver. A file that is missing or damaged counts as empty. Returns `None` if the backend
    /// has no pipeline caches.
    pub fn open(device: &wgpu::Device, path: PathBuf) -> Option<StoredKernels> {
        if !device.features().contains(wgpu::Features::PIPELINE_CACHE) {
            return None;
        }
        let file = std::fs::read(&path).ok();
        let data = file.as_deref().and_then(checked);
        let descriptor = wgpu::PipelineCacheDescriptor { label: None, data, fallback: true };
        // SAFETY: the data must have been returned by `get_data`. `drop` writes only such data, and the hash shows that the file has not changed
        // since then.
        let cache = unsafe { device.create_pipeline_cache(&descriptor) };
        Some(StoredKernels { cache, path, hash: data.map(hash) })
    }

    /// Returns the cache that pipelines are created with.
    pub fn cache(&self) -> &wgpu::PipelineCache {
        &self.cache
    }

    fn write(&self, data: &[u8]) -> Result<()> {
        let io = |e: std::io::Error| Error::io(e, &self.path);
        std::fs::create_dir_all(self.path.parent().unwrap_or(Path::new("."))).map_err(io)?;
        let new = NewFile::create(&self.path, Readers::Umask)?;
        new.file().write_all(&hash(data)).and_then(|()| new.file().write_all(data)).map_err(io)?;
        new.finish()
    }
}

impl Drop for StoredKernels {
    /// Writes the file, if the driver has compiled more since the file was read.
    fn drop(&mut self) {
        let Some(data) = self.cache.get_data() else { return };
        if self.hash == Some(hash(&data)) {
            return;
        }
        match self.write(&data) {
            Ok(()) => log::debug!("{}: {} bytes of compiled kernels", self.path.display(), data.len()),
            Err(e) => log::debug!("the driver's compiled kernels were not kept: {e}"),
        }
    }
}

fn hash(data: &[u8]) -> [u8; HASH] {
    Sha256::digest(data).into()
}

/// Returns the data of a file, or `None` if the file is damaged.
fn checked(file: &[u8]) -> Option<&[u8]> {
    let (expected, data) = file.split_at_checked(HASH)?;
    (hash(data) == expected).then_some(data)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_file_counts_as_empty() {
        let file = [hash(b"data").as_slice(), b"data"].concat();
        assert_eq!(checked(&file), Some(b"data".as_slice()));
        assert_eq!(checked(&file[..file.len() - 1]), None);
        assert_eq!(checked(&file[..HASH - 1]), None);
        assert_eq!(checked(&[]), None);
    }
}
