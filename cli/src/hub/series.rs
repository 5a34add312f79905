//! Finds a newer file of the same series by its name: `rwkv7-g1k-1.5b-20260930-ctx25600.pth` follows `rwkv7-g1j-1.5b-20260801-ctx16384.pth`.

/// Returns the newest of `files` that belongs to the series of `file` and has a later date, or `None` if no file does.
pub fn newer<'a>(file: &str, files: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let (series, date) = series(file)?;
    let others = files.into_iter().filter_map(|other| Some((other, self::series(other)?)));
    let later = others.filter(|(_, (other, of))| *other == series && *of > date);
    later.max_by_key(|(_, (_, of))| *of).map(|(other, _)| other)
}

/// Splits a name into its series and its date. The letter after `g1` and the version count up in a series, so they are not part of its name. Returns
/// `None` if the name has no date.
fn series(file: &str) -> Option<(Vec<String>, u32)> {
    let lower = file.to_lowercase();
    let (stem, extension) = lower.rsplit_once('.')?;
    let mut words = stem.split('-').map(str::to_string).collect::<Vec<_>>();
    let at = words.iter().position(|word| word.len() == 8 && word.starts_with("20") && word.bytes().all(|b| b.is_ascii_digit()))?;
    let date = words[at].parse().ok()?;
    words.truncate(at);
    words.retain(|word| !word.strip_prefix('v').is_some_and(|n| n.starts_with(|c: char| c.is_ascii_digit())));
    for word in &mut words {
        if word.starts_with("g1") && word.len() <= 4 {
            word.truncate(2);
        }
    }
    words.push(extension.to_string());
    Some((words, date))
}

#[cfg(test)]
mod tests {
    #[test]
    fn only_a_later_file_of_the_same_size_and_kind_is_newer() {
        let files = [
            "rwkv7-g1d-1.5b-20260110-ctx8192.pth",
            "rwkv7-g1k-1.5b-20260930-ctx25600.pth",
            "rwkv7-g1k-2.9b-20261030-ctx25600.pth",
            "rwkv7-g1k-1.5b-20261130-ctx25600.gguf",
            "README.md",
        ];
        let newer = |file| super::newer(file, files);
        assert_eq!(newer("rwkv7-g1c-1.5b-20251231-ctx8192.pth"), Some(files[1]));
        assert_eq!(newer(files[1]), None);
        assert_eq!(newer("rwkv7-g1k-1.5b.pth"), None);
        let world = ["RWKV-x070-World-0.1B-v2.8-20241210-ctx4096.pth", "RWKV-x070-World-0.1B-v3-20250127-ctx4096.pth"];
        assert_eq!(super::newer(world[0], world), Some(world[1]));
    }
}
