//! Reads the environment variables of Hugging Face's own programs, which say where the hub and the cache are.

use super::expand::expanded;
use std::env::VarError;
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use url::Url;
use wingbeat::error::{Error, Result};
use wingbeat::low_level::front_end::short;

const ENDPOINT: &str = "https://huggingface.co";

/// The values of `HF_ENDPOINT`, `HF_TOKEN`, `HF_HUB_CACHE` (formerly `HUGGINGFACE_HUB_CACHE`), `HF_HOME` and `HF_HUB_OFFLINE`.
#[derive(Clone)]
pub struct HubSettings {
    /// The address of the hub. A path in the address has no `/` at its end.
    pub endpoint: Url,
    /// The folder of the cache, by default `~/.cache/huggingface/hub`.
    pub cache: PathBuf,
    pub token: Option<HubToken>,
    /// True if no connection may be opened.
    pub is_offline: bool,
}

/// A secret for the hub. Its text appears in no log and in no error.
#[derive(Clone)]
pub struct HubToken(String);

impl HubToken {
    /// Returns the value of the header `authorization`.
    pub fn header(&self) -> String {
        format!("Bearer {}", self.0)
    }
}

impl fmt::Debug for HubToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

impl HubSettings {
    /// Reads the environment. `home` is the user's home folder, or `None` if unknown.
    ///
    /// # Errors
    /// `Usage` if a variable has a wrong value. The error names the variable, and never the token.
    pub fn from_environment(home: Option<PathBuf>) -> Result<HubSettings> {
        Self::read(&|name| std::env::var_os(name), home)
    }

    /// Returns the settings of these variables.
    #[cfg(test)]
    pub fn for_test(given: &[(&str, &str)]) -> HubSettings {
        let find = |name: &str| given.iter().find(|(known, _)| *known == name).map(|(_, value)| OsString::from(value));
        Self::read(&find, None).unwrap()
    }

    /// Reads the settings. `variable` returns the value of an environment variable by its name.
    fn read(variable: &dyn Fn(&str) -> Option<OsString>, home: Option<PathBuf>) -> Result<HubSettings> {
        let value = |name: &str| variable(name).filter(|value| !value.is_empty());
        let folder = |name: &str| value(name).map(PathBuf::from);
        let text = |name: &str| match value(name).map(OsString::into_string) {
            None => Ok(None),
            Some(Ok(text)) => Ok(Some(text)),
            Some(Err(_)) => Err(Error::usage(VarError::NotUnicode(OsString::new()).to_string()).at(name)),
        };
        let user = home.clone();
        let default = || Some(folder("XDG_CACHE_HOME").or_else(|| Some(home.as_ref()?.join(".cache")))?.join("huggingface"));
        let cache = folder("HF_HUB_CACHE").or_else(|| folder("HUGGINGFACE_HUB_CACHE"));
        let cache = cache.or_else(|| Some(folder("HF_HOME").or_else(default)?.join("hub")));
        let cache =
            cache.ok_or_else(|| Error::usage("no folder for models is known").hint("set HF_HOME to a folder for downloaded models"))?;
        let cache = expanded(&cache, user.as_deref(), variable);
        let token = text("HF_TOKEN")?.map(|token| token.trim().to_string()).filter(|token| !token.is_empty());
        if token.as_ref().is_some_and(|token| !token.bytes().all(|b| b.is_ascii_graphic())) {
            return Err(Error::usage("the token has characters other than printable ASCII").at("HF_TOKEN").hint("check the variable"));
        }
        let given = text("HF_ENDPOINT")?.unwrap_or_else(|| ENDPOINT.into());
        let offline = text("HF_HUB_OFFLINE")?.unwrap_or_default().to_lowercase();
        let is_offline = matches!(offline.trim(), "1" | "true" | "yes" | "on");
        Ok(HubSettings { endpoint: endpoint(&given)?, cache, token: token.map(HubToken), is_offline })
    }
}

/// Parses the address of the hub.
fn endpoint(text: &str) -> Result<Url> {
    let wrong = |found: &str| {
        let e = Error::usage(format!("expected an address such as {ENDPOINT}, found {found:?}"));
        e.at("HF_ENDPOINT").hint("check the variable, or remove it")
    };
    let url = Url::parse(text.trim_end_matches('/')).map_err(|_| wrong(&short(text, 80)))?;
    let is_web = matches!(url.scheme(), "http" | "https") && url.host_str().is_some();
    // An address with a password is not repeated in an error.
    if !is_web || !url.username().is_empty() || url.password().is_some() || url.query().is_some() || url.fragment().is_some() {
        return Err(wrong(if url.password().is_some() { "an address with a password" } else { text }));
    }
    Ok(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(given: &[(&str, &str)]) -> Result<HubSettings> {
        let find = |name: &str| given.iter().find(|(known, _)| *known == name).map(|(_, value)| OsString::from(value));
        HubSettings::read(&find, Some("/home/me".into()))
    }

    #[test]
    fn the_cache_is_where_python_has_it() {
        for (given, cache) in [
            (&[][..], "/home/me/.cache/huggingface/hub"),
            (&[("XDG_CACHE_HOME", "/x")], "/x/huggingface/hub"),
            (&[("HF_HOME", "/h"), ("XDG_CACHE_HOME", "/x")], "/h/hub"),
            (&[("HF_HUB_CACHE", "/c"), ("HF_HOME", "/h")], "/c"),
            (&[("HUGGINGFACE_HUB_CACHE", "/old"), ("HF_HOME", "/h")], "/old"),
            (&[("HUGGINGFACE_HUB_CACHE", "/old"), ("HF_HUB_CACHE", "~/c")], "/home/me/c"),
            (&[("HF_HOME", "~")], "/home/me/hub"),
            (&[("HF_HOME", "~/x"), ("HF_HUB_CACHE", "")], "/home/me/x/hub"),
            (&[("XDG_CACHE_HOME", "~/x")], "/home/me/x/huggingface/hub"),
            (&[("HF_HOME", "/a/~/b")], "/a/~/b/hub"),
            (&[("HF_HOME", "$A/${B}c/$D/${D}/$"), ("A", "/a"), ("B", "b")], "/a/bc/$D/${D}/$/hub"),
            (&[("HF_HOME", "~root/x")], "/root/x/hub"),
            (&[("HF_HOME", "~nobody-has-this-name/x")], "~nobody-has-this-name/x/hub"),
        ] {
            assert_eq!(read(given).unwrap().cache, PathBuf::from(cache));
        }
        assert!(HubSettings::read(&|_| None, None).err().unwrap().to_string().contains("HF_HOME"));
    }

    #[test]
    fn wrong_variables_are_named_and_secrets_are_not_shown() {
        let plain = read(&[]).unwrap();
        assert_eq!((plain.endpoint.as_str(), plain.is_offline, plain.token.is_none()), ("https://huggingface.co/", false, true));
        let set = read(&[("HF_ENDPOINT", "http://127.0.0.1:9/hf/"), ("HF_TOKEN", " hf_secret\n"), ("HF_HUB_OFFLINE", "1")]).unwrap();
        assert_eq!((set.endpoint.as_str(), set.is_offline), ("http://127.0.0.1:9/hf", true));
        assert_eq!(set.token.as_ref().unwrap().header(), "Bearer hf_secret");
        assert!(!format!("{:?}", set.token).contains("secret"));
        let wrong =
            [("HF_ENDPOINT", "ftp://x"), ("HF_ENDPOINT", "x"), ("HF_ENDPOINT", "http://me:hf_secret@x"), ("HF_TOKEN", "hf_secret\u{1}x")];
        for (name, value) in wrong {
            let e = read(&[(name, value)]).err().unwrap().to_string();
            assert!(e.starts_with(name) && !e.contains("secret"), "{e}");
        }
    }
}
