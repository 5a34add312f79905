//! The content of a state file: metadata and tensors, as text and bytes.

use super::*;

/// The content of a state file before it is written.
pub struct StateFile {
    metadata: BTreeMap<String, String>,
    tensors: Vec<(String, DType, Vec<usize>, Vec<u8>)>,
}

impl StateFile {
    pub fn new(architecture: &str, hash: &str) -> StateFile {
        let mut file = StateFile { metadata: BTreeMap::new(), tensors: Vec::new() };
        file.put("format_version", FORMAT_VERSION.into());
        file.put("architecture", architecture.into());
        file.put(WEIGHTS_HASH, hash.into());
        file.put("dtype", "f32".into());
        file.put("wingbeat", env!("CARGO_PKG_VERSION").into());
        file
    }

    pub fn put(&mut self, key: &str, value: String) {
        self.metadata.insert(key.into(), value);
    }

    pub fn floats(&mut self, name: &str, shape: &[usize], values: &[f32]) {
        let bytes = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        self.tensors.push((name.into(), DType::F32, shape.to_vec(), bytes));
    }

    pub fn integers<'a>(&mut self, name: &str, values: impl ExactSizeIterator<Item = &'a u32>) {
        let shape = vec![values.len()];
        self.tensors.push((name.into(), DType::I32, shape, values.flat_map(|v| v.to_le_bytes()).collect()));
    }

    /// Writes the file to `path`. Replaces an empty file or a state file there.
    pub fn write(self, path: &Path) -> Result<()> {
        check_replaceable(path)?;
        let (metadata, entries) = self.complete();
        // A state may contain a user's text, so only its owner may read the file.
        write_for(Readers::Owner, path, &metadata, entries, &mut |_, _| ())
    }

    /// Returns the bytes of the file.
    pub fn bytes(self) -> Result<Vec<u8>> {
        let (metadata, entries) = self.complete();
        safetensors_bytes(&metadata, entries)
    }

    /// Adds the checksum. Returns the metadata and the tensors.
    fn complete(mut self) -> (BTreeMap<String, String>, Vec<NewTensor<'static>>) {
        self.tensors.sort_by(|a, b| a.0.cmp(&b.0));
        let tensors = self.tensors.iter().map(|(name, dtype, shape, bytes)| (name.as_str(), *dtype, shape.as_slice(), bytes.as_slice()));
        let checksum = checksum::of(&self.metadata, tensors);
        self.put(checksum::CHECKSUM, checksum);
        let entry = |(name, dtype, shape, bytes): (String, DType, Vec<usize>, Vec<u8>)| NewTensor {
            name,
            dtype,
            shape,
            data: Box::new(move |out: &mut dyn Write| out.write_all(&bytes).map_err(|e| Error::io(e, Path::new("state")))),
        };
        (self.metadata, self.tensors.into_iter().map(entry).collect())
    }
}

pub fn floats(tensors: &Tensors<'_>, name: &str, shape: &[usize]) -> Result<Vec<f32>> {
    let at = |text: String| Error::file(text).at(format!("tensor {name}"));
    match tensors.get(name) {
        Some((dtype, found, bytes)) if found == shape => crate::tensor::View::dense(*dtype, shape, bytes)?.to_f32().map_err(|e| e.at(name)),
        Some((_, found, _)) => Err(at(format!("the model needs the shape {shape:?}, found the shape {found:?}"))),
        None => Err(at(format!("the tensor is missing; the model needs it with the shape {shape:?}"))),
    }
}

/// Reads the tensor `name` as a list of at most `most` integers. Returns `None` if the file has no tensor of this name.
pub fn integers(tensors: &Tensors<'_>, name: &str, most: usize) -> Result<Option<Vec<u32>>> {
    let at = |e: Error| e.at(name);
    let Some((dtype, _, bytes)) = tensors.get(name) else { return Ok(None) };
    let n = bytes.len() / 4;
    if *dtype != DType::I32 {
        return Err(at(Error::file(format!("expected numbers of type I32, found {dtype}"))));
    }
    if n > most {
        return Err(at(Error::file(format!("expected at most {most} numbers in this tensor, found {n} numbers"))));
    }
    let mut numbers = try_alloc(n, "a list of numbers").map_err(at)?;
    numbers.extend(bytes.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])));
    Ok(Some(numbers))
}

/// Parses bytes from pairs of hexadecimal digits.
pub fn from_hex(text: &str) -> Result<Vec<u8>> {
    let wrong = || Error::file(format!("expected pairs of hexadecimal digits as metadata value {PENDING}, found {:?}", short(text, 40)));
    let digits = text.as_bytes().chunks_exact(2);
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    let bytes: Option<Vec<u8>> = if digits.remainder().is_empty() { digits.map(byte).collect() } else { None };
    bytes.ok_or_else(wrong)
}

pub fn number<T: std::str::FromStr>(key: &str, text: &str) -> Result<T> {
    text.parse().map_err(|_| Error::file(format!("expected a number as metadata value {key}, found {:?}", short(text, 40))))
}

/// Clears bit 31, the flag [`sample::SEEN`], in each penalty count. A valid count does not have this bit, but a damaged file may.
pub fn penalty_counts(counts: Vec<u32>) -> Vec<u32> {
    counts.into_iter().map(|n| n & (sample::SEEN - 1)).collect()
}
