//! Checks output files before a model is loaded, so that no work is lost because a folder is missing or a file exists.

use super::values::OUTPUT;
use std::ffi::OsString;
use std::fs::Metadata;
use std::path::{Path, PathBuf};
use wingbeat::error::{Error, Kind, Result};
use wingbeat::low_level::session::check_replaceable;
use wingbeat::low_level::weights::new_file::folder_of;
use wingbeat::low_level::weights::{NewFile, Readers};

/// The maximum number of numbered file names that are tried, from `NAME.1` on.
const NAMES: u32 = 99;

/// The flag `--force` of the subcommands that write files. With this flag, an existing output file can be replaced.
#[derive(clap::Args, Clone, Copy, Debug)]
pub struct ForceArgs {
    /// Replace an output file that exists
    #[arg(long, help_heading = OUTPUT, hide_short_help = true)]
    force: bool,
}

impl ForceArgs {
    /// Checks that a file can be written at `path`, and that no existing file would be replaced by mistake.
    ///
    /// # Errors
    /// `File` if a file that is not empty exists and `--force` is not given, or if a folder or a device has this path. `File` if the folder
    /// of `path` does not exist or is not writable.
    pub fn check(self, path: &Path) -> Result<()> {
        match found(path)? {
            Some(_) if !self.force => Err(exists(path)),
            _ => check_writable(path),
        }
    }

    /// Checks that a state can be written to `path`. `continued`, the state file that the subcommand loads, may be replaced without `--force`. A
    /// file that is not a state is never replaced.
    pub fn check_state(self, path: &Path, continued: Option<&Path>) -> Result<StateTarget> {
        let found = found(path)?;
        if found.is_some() {
            check_replaceable(path)?;
        }
        let may_replace = self.force || continued.is_some_and(|other| is_same(path, other));
        if found.is_some() && !may_replace {
            return Err(exists(path));
        }
        check_writable(path)?;
        Ok(StateTarget { path: path.to_path_buf(), may_replace })
    }
}

fn exists(path: &Path) -> Error {
    Error::file("the output file exists already").at(path.display()).hint("choose another name, or replace the file with --force")
}

/// Returns the metadata of the file at `path`. Returns `None` if the file does not exist or is empty. Returns an error if no file can be written
/// at `path`: `-`, a folder, a device, a pipe or a write-protected file.
fn found(path: &Path) -> Result<Option<Metadata>> {
    let refused = |text: &str, hint: &str| Err(Error::file(text).at(path.display()).hint(hint));
    if path.as_os_str() == "-" {
        return refused("expected the name of a file to write, found -", "for a file of the name -, write ./-");
    }
    if path.file_name().is_none() || path.to_string_lossy().ends_with(std::path::is_separator) {
        return refused("expected the name of a file to write, found the name of a folder", "add a file name");
    }
    match std::fs::metadata(path) {
        Ok(m) if m.is_dir() => refused("expected the name of a file to write, found a folder", "add a file name"),
        Ok(m) if !m.is_file() => refused("expected the name of a file to write, found a device or a pipe", "choose another name"),
        Ok(m) if m.permissions().readonly() => refused("the file is write-protected", "choose another name"),
        Ok(m) => Ok(Some(m).filter(|m| m.len() > 0)),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(Error::io(e, path)),
    }
}

/// Returns an error if the folder of `path` does not exist.
pub fn check_folder(path: &Path) -> Result<()> {
    let folder = folder_of(path);
    let refused = |text: &str, hint: &str| Err(Error::file(text).at(path.display()).hint(hint));
    match std::fs::metadata(folder) {
        Ok(m) if m.is_dir() => Ok(()),
        Ok(_) => refused("the folder of this path is a file", "check the path"),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            refused("expected a file in a folder that exists, found no such folder", "create the folder, or check the path")
        }
        Err(e) => Err(Error::io(e, path)),
    }
}

/// Checks that the folder of `path` is writable by creating a temporary file there.
fn check_writable(path: &Path) -> Result<()> {
    check_folder(path)?;
    NewFile::create(path, Readers::Owner).map(drop)
}

fn is_same(a: &Path, b: &Path) -> bool {
    a.canonicalize().is_ok_and(|a| b.canonicalize().is_ok_and(|b| a == b))
}

/// The path to which a state will be saved at the end. If saving fails, another path is tried, because only this process has the state.
pub struct StateTarget {
    path: PathBuf,
    may_replace: bool,
}

impl StateTarget {
    /// Records that this process has written a state to `path`. If `path` is the target, the target may then be replaced.
    pub fn wrote(&mut self, path: &Path) {
        self.may_replace |= is_same(&self.path, path);
    }

    /// Calls `save` with the target's path. If the file cannot be written, tries the first free name among `NAME.1`, `NAME.2` and so on, then a name
    /// in the folder for temporary files.
    ///
    /// # Errors
    /// The error of the first attempt. Its hint names the file to which the state was saved instead, or says that nothing is saved.
    pub fn save(&self, save: &mut dyn FnMut(&Path) -> Result<()>) -> Result<()> {
        let appeared = !self.may_replace && std::fs::metadata(&self.path).is_ok_and(|m| m.len() > 0);
        let saved = if appeared { Err(exists(&self.path)) } else { save(&self.path) };
        let Err(mut error) = saved else { return Ok(()) };
        // After an error of the device, the session has no state to save.
        if matches!(error.kind, Kind::File | Kind::Input) {
            let temporary = std::env::temp_dir().join(self.path.file_name().unwrap_or_default());
            let beside = (1..=NAMES).map(|n| numbered(&self.path, n));
            let elsewhere = (0..=NAMES).map(|n| numbered(&temporary, n));
            let place = first_free(beside, save).or_else(|| first_free(elsewhere, save));
            error.hint = Some(match place {
                Some(place) => format!("saved as {} instead", place.display()),
                None => "the state could not be saved elsewhere either: nothing is saved".into(),
            });
        }
        Err(error)
    }
}

/// Calls `save` with the first of `names` that is not the name of a file. Returns this name, or `None` if all names are taken or `save`
/// fails.
fn first_free(names: impl Iterator<Item = PathBuf>, save: &mut dyn FnMut(&Path) -> Result<()>) -> Option<PathBuf> {
    let free = names.into_iter().find(|name| name.symlink_metadata().is_err())?;
    save(&free).is_ok().then_some(free)
}

/// Returns `path` with `.n` appended, or `path` itself if `n` is 0.
fn numbered(path: &Path, n: u32) -> PathBuf {
    let mut name = OsString::from(path);
    if n > 0 {
        name.push(format!(".{n}"));
    }
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEEP: ForceArgs = ForceArgs { force: false };
    const FORCE: ForceArgs = ForceArgs { force: true };

    #[test]
    fn an_obstacle_is_reported_before_work_begins() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("full"), "x").unwrap();
        std::fs::write(path("empty"), "").unwrap();
        let said = |existing: ForceArgs, name: &str| existing.check(&path(name)).unwrap_err().to_string();
        assert!(
            said(KEEP, "full").contains("full: the output file exists already (choose another name, or replace the file with --force)")
        );
        assert!(said(FORCE, "").contains("folder") && said(FORCE, "new/").contains("folder"));
        assert!(said(FORCE, "no/such").contains("no/such: ") && said(FORCE, "full/x").contains("full/x: "), "{}", said(FORCE, "full/x"));
        assert!(FORCE.check(Path::new("-")).unwrap_err().to_string().contains("./-"));
        for (existing, name) in [(FORCE, "full"), (KEEP, "empty"), (KEEP, "new")] {
            existing.check(&path(name)).unwrap();
        }
        assert_eq!(std::fs::read(path("full")).unwrap(), b"x");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2, "a check leaves nothing");
    }

    #[test]
    fn a_state_that_cannot_be_saved_is_saved_elsewhere() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.st");
        let target = KEEP.check_state(&path, None).unwrap();
        std::fs::write(&path, "appeared").unwrap();
        std::fs::write(folder.path().join("x.st.1"), "there already").unwrap();
        let mut write = |path: &Path| std::fs::write(path, "saved").map_err(|e| Error::io(e, path));
        let e = target.save(&mut write).unwrap_err();
        assert_eq!(e.hint.unwrap(), format!("saved as {} instead", folder.path().join("x.st.2").display()));
        assert_eq!(std::fs::read_to_string(folder.path().join("x.st.2")).unwrap(), "saved");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "appeared");
        // The target's folder is gone, so only the folder for temporary files can be written.
        let gone = folder.path().join("gone");
        std::fs::create_dir(&gone).unwrap();
        let name = format!("wingbeat-test-{}.st", std::process::id());
        let target = KEEP.check_state(&gone.join(&name), None).unwrap();
        std::fs::remove_dir(&gone).unwrap();
        let hint = target.save(&mut write).unwrap_err().hint.unwrap();
        let elsewhere = std::env::temp_dir().join(&name);
        assert_eq!(hint, format!("saved as {} instead", elsewhere.display()));
        std::fs::remove_file(elsewhere).unwrap();
        let lost = target.save(&mut |path| Err(Error::file("full").at(path.display()))).unwrap_err().hint.unwrap();
        assert!(lost.contains("nothing is saved"), "{lost}");
    }

    #[test]
    fn a_state_of_this_run_is_replaced_without_force() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.st");
        let mut target = KEEP.check_state(&path, None).unwrap();
        std::fs::write(&path, "from /save").unwrap();
        target.wrote(&folder.path().join(".").join("x.st"));
        target.save(&mut |path| std::fs::write(path, "end").map_err(|e| Error::io(e, path))).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "end");
        let said = FORCE.check_state(&path, Some(&path)).err().unwrap().to_string();
        assert!(said.contains("the file exists and is not a state file, so it is not replaced"), "{said}");
    }
}
