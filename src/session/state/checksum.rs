//! The checksum of a state file. Disks and copies change files silently, and a state with one flipped bit continues with another text. So the
//! checksum is compared before anything in the file is used.

use super::*;
use crc32fast::Hasher;

/// The metadata key of the checksum.
pub const CHECKSUM: &str = "checksum";
/// The format version of files without a checksum.
const WITHOUT_CHECKSUM: &str = "1";
const RESTORE: &str = "restore the file from a copy, or make the state again";

/// The cause of an error about a format version that this version of wingbeat does not read. The file may be sound.
#[derive(Debug)]
struct OtherVersion;

impl std::fmt::Display for OtherVersion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the format version is unsupported")
    }
}

impl std::error::Error for OtherVersion {}

/// Computes the checksum of a state file: CRC-32 of the metadata, except for the checksum itself, and of the tensors. Both must be sorted by name, so
/// that the order in the file does not matter.
pub fn of<'a>(metadata: &BTreeMap<String, String>, tensors: impl Iterator<Item = (&'a str, DType, &'a [usize], &'a [u8])>) -> String {
    let mut hash = Hasher::new();
    let text = |hash: &mut Hasher, text: &str| {
        hash.update(text.as_bytes());
        hash.update(&[0]);
    };
    for (key, value) in metadata.iter().filter(|(key, _)| *key != CHECKSUM) {
        text(&mut hash, key);
        text(&mut hash, value);
    }
    for (name, dtype, shape, bytes) in tensors {
        text(&mut hash, name);
        text(&mut hash, dtype.name());
        text(&mut hash, &format!("{shape:?}"));
        hash.update(bytes);
    }
    format!("crc32:{:08x}", hash.finalize())
}

/// Checks the format version and the checksum of a state file. Files of format version 1 have no checksum, so only their numbers are checked: a
/// number that is not finite shows damage.
///
/// # Errors
/// `File` if the file is damaged, or its format version is unsupported.
pub fn check(tensors: &Tensors<'_>, metadata: &BTreeMap<String, String>) -> Result<()> {
    let version = metadata.get("format_version").map(String::as_str);
    // The checksum comes first: a damaged digit of the version must not look like a file of a newer wingbeat. A newer version may have another kind
    // of checksum.
    let is_known = matches!(version, Some(WITHOUT_CHECKSUM | FORMAT_VERSION));
    if let Some(expected) = metadata.get(CHECKSUM).filter(|checksum| is_known || checksum.starts_with("crc32:")) {
        let found = of(metadata, tensors.iter().map(|(name, (dtype, shape, bytes))| (name.as_str(), *dtype, shape.as_slice(), *bytes)));
        if found != *expected {
            let text = format!("the state is damaged: expected the checksum {}, found {found}", short(expected, 40));
            return Err(Error::file(text).hint(RESTORE));
        }
    }
    match (version, metadata.contains_key(CHECKSUM)) {
        (Some(FORMAT_VERSION), true) => Ok(()),
        (Some(FORMAT_VERSION), false) => Err(Error::file("the state is damaged: it has no checksum").hint(RESTORE)),
        (Some(WITHOUT_CHECKSUM), _) => check_finite(tensors),
        (other, _) => {
            let found = other.map_or_else(|| "no value".into(), |text| short(text, 40));
            let text = format!("expected a wingbeat state of format version {WITHOUT_CHECKSUM} or {FORMAT_VERSION}, found {found}");
            Err(Error::file(text).hint(HOW_TO_SAVE).caused_by(OtherVersion))
        }
    }
}

fn check_finite(tensors: &Tensors<'_>) -> Result<()> {
    let is_finite = |bytes: &[u8]| bytes.chunks_exact(4).all(|x| f32::from_le_bytes([x[0], x[1], x[2], x[3]]).is_finite());
    match tensors.iter().find(|(_, (dtype, _, bytes))| *dtype == DType::F32 && !is_finite(bytes)) {
        Some((name, _)) => {
            let e = Error::file("the state is damaged: expected finite numbers, found infinity or NaN");
            Err(e.at(format!("tensor {name}")).hint(RESTORE))
        }
        None => Ok(()),
    }
}

/// Checks the bytes of a state file, without a model.
///
/// # Errors
/// `File` if the bytes are not a saved state, if the file is damaged, or if its format version is unsupported.
pub fn check_state_file(bytes: &[u8]) -> Result<()> {
    let (tensors, metadata) = read_safetensors(bytes)?;
    check(&tensors, &metadata)
}

/// Returns whether an error of reading a state file means that the file is damaged or is no state file. Returns false if the file could not be read,
/// if its format version is unsupported, or if it does not suit the model.
pub fn is_damaged(e: &Error) -> bool {
    let is_other = |cause: &(dyn std::error::Error + 'static)| cause.is::<std::io::Error>() || cause.is::<OtherVersion>();
    e.kind == Kind::File && !std::error::Error::source(e).is_some_and(is_other)
}
