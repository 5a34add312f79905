//! The address of a repository or a file on the hub: `hf:OWNER/REPO[/FILE][@REVISION]`.

use super::shown::{is_plain, shown};
use std::fmt;
use wingbeat::error::{Error, Result};
use wingbeat::low_level::front_end::short;
use wingbeat::low_level::weights::EXTENSIONS;

/// The beginning of an address that a user types.
pub const PREFIX: &str = "hf:";

/// The revision if an address names no revision.
const MAIN: &str = "main";

/// The maximum length of an owner, a repository, a revision or a file's whole path, in bytes.
const LONGEST: usize = 200;

/// A repository on the hub, at a revision, and maybe one of its files. All parts are safe as paths below the cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    pub owner: String,
    pub repository: String,
    /// A branch, a tag or a commit.
    pub revision: String,
    /// The path of a file in the repository, with `/` between folders. `None` for the whole repository, or for its only model.
    pub file: Option<String>,
}

impl Address {
    /// Parses `hf:OWNER/REPO[/FILE][@REVISION]`.
    ///
    /// # Errors
    /// `Input` if a part is missing, or is not safe as a path below the cache.
    pub fn parse(text: &str) -> Result<Address> {
        let refused =
            |e: Error| e.at(shown(&short(text, LONGEST))).hint("write hf:OWNER/REPO, hf:OWNER/REPO/FILE or hf:OWNER/REPO/FILE@REVISION");
        let rest = text.strip_prefix(PREFIX).ok_or_else(|| refused(Error::input("the address does not begin with hf:")))?;
        let (path, revision) = rest.rsplit_once('@').unwrap_or((rest, MAIN));
        let mut parts = path.splitn(3, '/');
        let (owner, repository) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        Self::new(owner, repository, revision, parts.next()).map_err(refused)
    }

    /// Returns the address of `file` in the repository `OWNER/REPO`, at the revision `main`.
    ///
    /// # Errors
    /// `Input` if a part is missing, or is not safe as a path below the cache.
    pub fn in_repository(repository: &str, file: Option<&str>) -> Result<Address> {
        let (owner, repository) = repository.split_once('/').unwrap_or((repository, ""));
        Self::new(owner, repository, MAIN, file)
    }

    fn new(owner: &str, repository: &str, revision: &str, file: Option<&str>) -> Result<Address> {
        check_name("owner", owner)?;
        check_name("repository", repository)?;
        check_path("revision", revision)?;
        file.map_or(Ok(()), |file| check_path("file", file))?;
        let own = |text: &str| text.to_string();
        Ok(Address { owner: own(owner), repository: own(repository), revision: own(revision), file: file.map(own) })
    }

    /// Returns the address of another file in the same repository and revision.
    ///
    /// # Errors
    /// `Input` if the file's path is not safe below the cache.
    pub fn with_file(&self, file: &str) -> Result<Address> {
        check_path("file", file)?;
        Ok(Address { file: Some(file.into()), ..self.clone() })
    }

    /// Returns whether the revision is `main`, as in an address that names no revision. Any revision in the cache then matches.
    pub fn is_unpinned(&self) -> bool {
        self.revision == MAIN
    }

    /// Returns `OWNER/REPO`.
    pub fn name(&self) -> String {
        format!("{}/{}", self.owner, self.repository)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}/{}", self.owner, self.repository)?;
        self.file.as_ref().map_or(Ok(()), |file| write!(f, "/{file}"))?;
        if self.is_unpinned() { Ok(()) } else { write!(f, "@{}", self.revision) }
    }
}

/// Returns whether a file's name has a checkpoint's extension.
pub fn is_model(file: &str) -> bool {
    file.rsplit_once('.').is_some_and(|(stem, end)| !stem.is_empty() && EXTENSIONS.iter().any(|known| end.eq_ignore_ascii_case(known)))
}

/// Returns whether `text` is a commit: 40 hexadecimal digits.
pub fn is_commit(text: &str) -> bool {
    text.len() == 40 && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

/// Checks the name of an owner or a repository. `--` is refused, because it separates the two names in the cache. The hub allows it in neither
/// name.
///
/// # Errors
/// `Input` if the name is not valid.
pub fn check_name(what: &str, name: &str) -> Result<()> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let is_valid = !name.is_empty() && name.len() <= LONGEST && name.chars().all(is_plain);
    if is_valid && !name.starts_with('.') && !name.ends_with('.') && !name.contains("..") && !name.contains("--") {
        return Ok(());
    }
    let text = format!("expected the name of the {what} (letters, digits, `.`, `_`, `-`), found {:?}", short(name, 40));
    Err(Error::input(text))
}

/// Checks a revision or the path of a file in a repository. The path must be relative. On every operating system, it must stay below the folder to
/// which it is appended. It must not have characters that a terminal hides.
///
/// # Errors
/// `Input` if the path is not valid.
pub fn check_path(what: &str, path: &str) -> Result<()> {
    let is_wrong = |part: &str| {
        part.is_empty() || part == "." || part.ends_with(['.', ' ']) || !is_plain(part) || part.contains(|c| "\\:*?\"<>|%#@".contains(c))
    };
    if path.len() <= LONGEST && !path.split('/').any(is_wrong) {
        return Ok(());
    }
    Err(Error::input(format!("expected the path of a {what} inside the repository, found {:?}", short(path, 40))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_parsed_and_printed() {
        for (text, repository, file, revision) in [
            ("hf:BlinkDL/rwkv7-g1", "BlinkDL/rwkv7-g1", None, "main"),
            ("hf:BlinkDL/rwkv7-g1/a.pth", "BlinkDL/rwkv7-g1", Some("a.pth"), "main"),
            ("hf:a_b/c.d/sub/x-1.gguf@refs/pr/1", "a_b/c.d", Some("sub/x-1.gguf"), "refs/pr/1"),
            ("hf:a/b@v1.0", "a/b", None, "v1.0"),
        ] {
            let found = Address::parse(text).unwrap();
            assert_eq!((found.name().as_str(), found.file.as_deref(), found.revision.as_str()), (repository, file, revision));
            assert_eq!(found.to_string(), text);
        }
    }

    #[test]
    fn addresses_that_leave_the_cache_are_refused() {
        for text in [
            "BlinkDL/x",
            "hf:",
            "hf:a",
            "hf:a/",
            "hf:/b",
            "hf:../b",
            "hf:a/..",
            "hf:a--b/c",
            "hf:a/b/",
            "hf:a/b//c",
            "hf:a/b/../c",
            "hf:a/b/c/..",
            "hf:a/b/./c",
            "hf:a/b/c\\d",
            "hf:a/b/C:x",
            "hf:a/b/c\u{1}",
            "hf:a/b/c\n",
            "hf:a/b/c\u{202e}htp.x",
            "hf:a/b/\u{2066}c.pth",
            "hf:a/b/c\u{200b}.pth",
            "hf:a/b/c%2fd",
            "hf:a/b/c?x",
            "hf:a/b/c#x",
            "hf:a/b/c@",
            "hf:a/b/c@..",
            "hf:a/b/c@/etc",
            "hf:a b/c",
            "hf:ä/c",
        ] {
            let e = Address::parse(text).expect_err(text).to_string();
            assert!(e.contains("expected the") || e.contains("does not begin"), "{text}: {e}");
            assert!(is_plain(&e), "{e}");
        }
        assert!(Address::parse(&format!("hf:a/{}", "b".repeat(300))).unwrap_err().to_string().len() < 600);
        assert!(is_model("x.PTH") && is_model("a/b.gguf") && !is_model(".pth") && !is_model("pth") && !is_model("x.json"));
        assert!(is_commit(&"0a".repeat(20)) && !is_commit(&"0A".repeat(20)) && !is_commit("main"));
    }
}
