//! Small files for tests: builders of pickles, zip archives and GGUF files, which can also build contradictory files.

mod gguf;

#[cfg(feature = "embedded-model")]
pub use gguf::{Change, as_stored, rounded, scale_places, tiny_gguf};
pub use gguf::{Gguf, gguf, q8_0};

use crate::tensor::{DType, dense_strides, n_elements};
use std::path::PathBuf;

/// Writes a file into a test's folder.
pub fn put(dir: &tempfile::TempDir, name: &str, bytes: &[u8]) -> PathBuf {
    let path = dir.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    path
}

pub fn singles(numbers: &[f32]) -> Vec<u8> {
    numbers.iter().flat_map(|x| x.to_le_bytes()).collect()
}

pub fn halves(numbers: &[f32]) -> Vec<u8> {
    numbers.iter().flat_map(|x| half::f16::from_f32(*x).to_le_bytes()).collect()
}

/// The offset, the shape and the strides of a tensor in its storage. Offset and strides are in elements.
pub type Place<'a> = (usize, &'a [usize], &'a [usize]);

/// A pickle under construction.
pub struct Pickle(Vec<u8>);

impl Pickle {
    /// Starts a pickle with an empty dictionary on the stack. `tensor` adds an entry to it, and so do a key, a value and `raw(b"s")`.
    pub fn dict() -> Self {
        Pickle(b"\x80\x02}".to_vec())
    }

    pub fn raw(&mut self, opcodes: &[u8]) -> &mut Self {
        self.0.extend(opcodes);
        self
    }

    pub fn text(&mut self, text: &str) -> &mut Self {
        self.raw(b"X").raw(&(text.len() as u32).to_le_bytes()).raw(text.as_bytes())
    }

    pub fn int(&mut self, n: usize) -> &mut Self {
        self.raw(b"\x8a\x08").raw(&(n as u64).to_le_bytes())
    }

    pub fn global(&mut self, module: &str, name: &str) -> &mut Self {
        self.raw(format!("c{module}\n{name}\n").as_bytes())
    }

    fn ints(&mut self, ns: &[usize]) -> &mut Self {
        self.raw(b"(");
        for &n in ns {
            self.int(n);
        }
        self.raw(b"t")
    }

    pub fn tensor(&mut self, name: &str, key: &str, dtype: DType, n_elements: usize, (offset, shape, strides): Place) -> &mut Self {
        let storage = match dtype {
            DType::F64 => "DoubleStorage",
            DType::F32 => "FloatStorage",
            DType::F16 => "HalfStorage",
            DType::BF16 => "BFloat16Storage",
            DType::I64 => "LongStorage",
            _ => "ByteStorage",
        };
        self.text(name).global("torch._utils", "_rebuild_tensor_v2").raw(b"((").text("storage").global("torch", storage);
        self.text(key).text("cuda:0").int(n_elements).raw(b"tQ").int(offset).ints(shape).ints(strides);
        self.raw(b"\x89").global("collections", "OrderedDict").raw(b")RtRs")
    }

    pub fn stop(&mut self) -> Vec<u8> {
        self.raw(b".").0.clone()
    }
}

/// Returns a `.pth` of dense tensors, each with its own storage.
pub fn pth(tensors: &[(&str, DType, &[usize], &[u8])]) -> Vec<u8> {
    let mut p = Pickle::dict();
    let mut z = Zip::default();
    for (i, (name, dtype, shape, _)) in tensors.iter().enumerate() {
        p.tensor(name, &i.to_string(), *dtype, n_elements(shape).unwrap(), (0, shape, &dense_strides(shape)));
    }
    z.add("archive/data.pkl", &p.stop());
    z.add("archive/byteorder", b"little");
    for (i, (_, _, _, bytes)) in tensors.iter().enumerate() {
        z.add(&format!("archive/data/{i}"), bytes);
    }
    z.add("archive/version", b"3\n");
    z.finish()
}

pub fn zip(members: &[(&str, &[u8])]) -> Vec<u8> {
    let mut z = Zip::default();
    members.iter().for_each(|(name, bytes)| z.add(name, bytes));
    z.finish()
}

/// A zip archive under construction. The central directory can be changed before `finish`.
#[derive(Default)]
pub struct Zip {
    bytes: Vec<u8>,
    pub directory: Vec<Line>,
    /// The number of members that the end record claims, or 0 for the true number.
    pub claimed_members: u16,
}

/// The entry of a member in the central directory.
pub struct Line {
    pub name: String,
    pub flags: u16,
    pub method: u16,
    pub packed: u32,
    pub size: u32,
    pub offset: u32,
    crc: u32,
}

impl Zip {
    pub fn add(&mut self, name: &str, data: &[u8]) {
        let (size, offset) = (data.len() as u32, self.bytes.len() as u32);
        let line = Line { name: name.to_string(), flags: 0, method: 0, packed: size, size, offset, crc: crc32(data) };
        self.bytes.extend(b"PK\x03\x04");
        line.write(&mut self.bytes);
        self.bytes.extend(0u16.to_le_bytes()); // extra field
        self.bytes.extend(name.as_bytes());
        self.bytes.extend(data);
        self.directory.push(line);
    }

    pub fn finish(mut self) -> Vec<u8> {
        let (start, n) = (self.bytes.len() as u32, self.directory.len() as u16);
        for line in &self.directory {
            self.bytes.extend(b"PK\x01\x02\x14\0");
            line.write(&mut self.bytes);
            self.bytes.extend([0; 12]); // extra field, comment, disk, attributes
            self.bytes.extend(line.offset.to_le_bytes());
            self.bytes.extend(line.name.as_bytes());
        }
        let n = if self.claimed_members == 0 { n } else { self.claimed_members };
        let length = self.bytes.len() as u32 - start;
        self.bytes.extend(b"PK\x05\x06\0\0\0\0");
        self.bytes.extend([n.to_le_bytes(), n.to_le_bytes()].concat());
        self.bytes.extend([length.to_le_bytes(), start.to_le_bytes()].concat());
        self.bytes.extend([0, 0]);
        self.bytes
    }
}

impl Line {
    /// Writes the fields that the local header and the directory share: from "version needed" to the length of the name.
    fn write(&self, out: &mut Vec<u8>) {
        out.extend([20u16, self.flags, self.method, 0, 0x21].iter().flat_map(|n| n.to_le_bytes()));
        out.extend([self.crc, self.packed, self.size].iter().flat_map(|n| n.to_le_bytes()));
        out.extend((self.name.len() as u16).to_le_bytes());
    }
}

fn crc32(data: &[u8]) -> u32 {
    !data.iter().fold(!0u32, |crc, &byte| (0..8).fold(crc ^ u32::from(byte), |c, _| (c >> 1) ^ (0xedb8_8320 & (c & 1).wrapping_neg())))
}

/// A repeatable sequence of random numbers (xorshift). The field is the seed, and later the current state. The seed must not be 0.
pub struct Dice(pub u64);

impl Dice {
    pub fn roll(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % below as u64) as usize
    }
}
