//! Reads the pickle in a `.pth`: the input is `data.pkl` of an archive with two storages.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wingbeat::low_level::weights::Checkpoint;
use wingbeat_fuzz::{count, with_file};

/// Returns a zip archive with uncompressed members. Checksums are zero, because readers of checkpoints ignore them.
fn archive(members: &[(&str, &[u8])]) -> Vec<u8> {
    let (mut bytes, mut directory) = (Vec::new(), Vec::new());
    for (name, data) in members {
        let offset = bytes.len() as u32;
        let mut entry = Vec::new();
        // version, flags, method, time, date, checksum
        entry.extend([20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        entry.extend((data.len() as u32).to_le_bytes());
        entry.extend((data.len() as u32).to_le_bytes());
        entry.extend((name.len() as u16).to_le_bytes());
        entry.extend([0, 0]);
        bytes.extend(b"PK\x03\x04");
        bytes.extend(&entry);
        bytes.extend(name.as_bytes());
        bytes.extend(*data);
        directory.extend(b"PK\x01\x02\x14\0");
        directory.extend(&entry);
        directory.extend([0; 10]);
        directory.extend(offset.to_le_bytes());
        directory.extend(name.as_bytes());
    }
    let (start, n) = (bytes.len() as u32, (members.len() as u16).to_le_bytes());
    bytes.extend(&directory);
    bytes.extend(b"PK\x05\x06\0\0\0\0");
    bytes.extend(n);
    bytes.extend(n);
    bytes.extend((directory.len() as u32).to_le_bytes());
    bytes.extend(start.to_le_bytes());
    bytes.extend([0, 0]);
    bytes
}

fuzz_target!(|pickle: &[u8]| {
    let bytes = archive(&[("a/data.pkl", pickle), ("a/data/0", &[0; 64]), ("a/data/1", &[0; 16]), ("a/version", b"3\n")]);
    count(with_file(&bytes, Checkpoint::open));
});
