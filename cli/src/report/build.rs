//! Describes the build of this program, for its version text, bug reports and benchmarks.

use serde::Serialize;
use std::fmt;
use wingbeat::low_level::exec::gpu::compiled_backends;

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BuildReport {
    pub version: &'static str,
    /// The full hash of the commit. `-dirty` follows if the sources were packaged with uncommitted changes. `None` if the build script
    /// recorded no commit, as in most dev builds.
    pub commit: Option<&'static str>,
    /// The target triple, such as `x86_64-unknown-linux-gnu`.
    pub target: Option<&'static str>,
    /// Cargo's profile and optimisation level, such as `release, opt-level 3`.
    pub profile: Option<&'static str>,
    /// The cargo features of this crate that are on.
    pub features: Vec<&'static str>,
    /// The version of the crate wgpu in `Cargo.lock`. `None` if unknown.
    pub wgpu: Option<&'static str>,
    /// The graphics APIs that are compiled in.
    pub backends: Vec<&'static str>,
}

/// The number of digits of an abbreviated commit hash.
const SHORT: usize = 7;

impl BuildReport {
    pub fn new() -> BuildReport {
        let features = [("cloud", cfg!(feature = "cloud")), ("download", cfg!(feature = "download")), ("serve", cfg!(feature = "serve"))];
        BuildReport {
            version: env!("CARGO_PKG_VERSION"),
            commit: option_env!("WINGBEAT_BUILD_COMMIT"),
            target: option_env!("WINGBEAT_BUILD_TARGET"),
            profile: option_env!("WINGBEAT_BUILD_PROFILE"),
            features: features.into_iter().filter(|(_, on)| *on).map(|(name, _)| name).collect(),
            wgpu: option_env!("WINGBEAT_BUILD_WGPU"),
            backends: compiled_backends(),
        }
    }

    /// Returns the version and the first digits of the commit hash, such as `0.1.0 (commit abc1234)`.
    pub fn short(&self) -> String {
        let BuildReport { version, commit, profile, .. } = self;
        match commit {
            Some(commit) => format!("{version} (commit {})", short(commit)),
            None if profile.is_some_and(|p| p.starts_with("debug")) => format!("{version} (dev build)"),
            None => version.to_string(),
        }
    }
}

impl Default for BuildReport {
    fn default() -> Self {
        Self::new()
    }
}

/// Writes the line of `BuildReport::short`, then one line per fact of the build.
impl fmt::Display for BuildReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.short())?;
        let known = |value: Option<&str>| value.unwrap_or("unknown").to_string();
        let rows = [
            ("commit", known(self.commit)),
            ("target", known(self.target)),
            ("profile", known(self.profile)),
            ("features", self.features.join(", ")),
            ("wgpu", known(self.wgpu)),
            ("backends", self.backends.join(", ")),
        ];
        rows.iter().try_for_each(|(name, value)| write!(f, "\n{name:<9} {value}"))
    }
}

/// Returns the first seven digits of a commit hash, and the text after the hash, such as `-dirty`.
fn short(commit: &str) -> String {
    let (digits, rest) = commit.split_at(commit.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(commit.len()));
    format!("{}{rest}", &digits[..digits.len().min(SHORT)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_names_the_commit_if_it_is_known() {
        let build = |commit, profile| BuildReport { version: "1.2.3", commit, profile: Some(profile), ..BuildReport::new() };
        let hash = "0123456789abcdef0123456789abcdef01234567";
        assert_eq!(build(Some(hash), "release, opt-level 3").short(), "1.2.3 (commit 0123456)");
        assert_eq!(build(Some("0123456789abcdef-dirty"), "release, opt-level 3").short(), "1.2.3 (commit 0123456-dirty)");
        assert_eq!(build(None, "release, opt-level 3").short(), "1.2.3");
        assert_eq!(build(None, "debug, opt-level 2").short(), "1.2.3 (dev build)");
        let page = build(Some(hash), "release, opt-level 3").to_string();
        assert!(page.starts_with("1.2.3 (commit 0123456)\ncommit    0123456789abcdef"), "{page}");
    }
}
