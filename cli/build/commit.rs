//! Finds the commit of a source tree without running git. `build.rs` and a test include this file.

use std::fs;
use std::path::{Path, PathBuf};

/// The file with the commit, which `cargo package` adds to the sources.
const PACKAGED: &str = ".cargo_vcs_info.json";

/// A commit, and the files to watch. If a watched file changes, the commit has to be read again.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// The hash of the commit: 40 or 64 hexadecimal digits, then `-dirty` if the package has uncommitted changes. `None` if the commit is
    /// unknown.
    pub commit: Option<String>,
    pub watch: Vec<PathBuf>,
}

/// Finds the commit of the source tree at `root`, which is a package or a git checkout. Returns no commit and no files to watch if `root` is neither.
/// The folders above `root` are not searched, because a repository there belongs to another project.
pub fn of(root: &Path) -> Found {
    if let Ok(text) = fs::read_to_string(root.join(PACKAGED)) {
        return Found { commit: packaged(&text), watch: vec![root.join(PACKAGED)] };
    }
    checked_out(&root.join(".git")).unwrap_or_default()
}

/// Returns the commit in the text of cargo's file, `{"git":{"sha1":"…","dirty":true},…}`. Uses string functions, because the build script
/// has no JSON parser.
fn packaged(text: &str) -> Option<String> {
    let digits = text.split_once("\"sha1\"")?.1.split('"').nth(1)?;
    let dirty = text.split_once("\"dirty\"").is_some_and(|(_, rest)| rest.trim_start_matches([':', ' ']).starts_with("true"));
    hash(digits).map(|commit| if dirty { commit + "-dirty" } else { commit })
}

/// Returns the commit that `HEAD` refers to. `git` is the path of `.git`, which is a folder, or in a worktree a file that names the folder. Returns
/// `None` if the folder or its `HEAD` cannot be found.
fn checked_out(git: &Path) -> Option<Found> {
    let folder = match fs::read_to_string(git) {
        Ok(text) => git.parent()?.join(text.strip_prefix("gitdir:")?.trim()),
        Err(_) => git.to_path_buf(),
    };
    let shared = match fs::read_to_string(folder.join("commondir")) {
        Ok(text) => folder.join(text.trim()),
        Err(_) => folder.clone(),
    };
    let head = fs::read_to_string(folder.join("HEAD")).ok()?;
    let mut watch = vec![folder.join("HEAD")];
    let Some(name) = head.trim().strip_prefix("ref: ") else {
        return Some(Found { commit: hash(head.trim()), watch });
    };
    let (loose, packed) = (shared.join(name), shared.join("packed-refs"));
    let commit = match fs::read_to_string(&loose) {
        Ok(text) => {
            watch.push(loose);
            hash(text.trim())
        }
        Err(_) => {
            // The branch has no file of its own yet. The next commit creates that file, so watch the nearest folder that exists above its path.
            watch.extend(loose.ancestors().skip(1).find(|folder| folder.is_dir()).map(Path::to_path_buf));
            let all = fs::read_to_string(&packed).unwrap_or_default();
            watch.extend(packed.is_file().then_some(packed));
            all.lines().find_map(|line| line.split_once(' ').filter(|(_, found)| *found == name).and_then(|(digits, _)| hash(digits)))
        }
    };
    Some(Found { commit, watch })
}

fn hash(text: &str) -> Option<String> {
    let is_hash = [40, 64].contains(&text.len()) && text.bytes().all(|b| b.is_ascii_hexdigit());
    is_hash.then(|| text.to_lowercase())
}
