//! Computes the address after a redirect, and compares origins: only the hub's own origin may receive the token.

use url::Url;
use wingbeat::error::{Error, Result};
use wingbeat::low_level::front_end::short;

/// Returns the address to which `location` leads from `from`.
///
/// # Errors
/// `File` if the location is no web address, leads from https to http, or has a user name or a password.
pub fn next(from: &Url, location: &str) -> Result<Url> {
    let refused = |text: String| Err(Error::file(text).at(host(from)));
    let Ok(to) = from.join(location) else {
        return refused(format!("expected an address after a redirect, found {:?}", short(location, 80)));
    };
    if !matches!(to.scheme(), "http" | "https") || to.host_str().is_none() {
        return refused(format!("expected an address of http or https after a redirect, found {}", short(to.scheme(), 20)));
    }
    if from.scheme() == "https" && to.scheme() != "https" {
        return refused(format!("refused a redirect from {} to {}: it is not encrypted", from.scheme(), short(to.scheme(), 20)));
    }
    if !to.username().is_empty() || to.password().is_some() {
        return refused("refused a redirect to an address with a user name".into());
    }
    Ok(to)
}

/// Returns whether two addresses have the same scheme, host and port. Only then may a token for one address be sent to the other.
pub fn is_same_origin(a: &Url, b: &Url) -> bool {
    a.origin().is_tuple() && a.origin() == b.origin()
}

/// Returns the host of an address, for errors. The rest of an address may have a signature, which is a secret.
pub fn host(url: &Url) -> String {
    match (url.host_str().unwrap_or_default(), url.port()) {
        (host, Some(port)) => format!("{host}:{port}"),
        (host, None) => host.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn led(from: &str, location: &str) -> Result<Url> {
        next(&Url::parse(from).unwrap(), location)
    }

    #[test]
    fn a_redirect_never_loses_encryption() {
        assert_eq!(led("https://a/x/y", "/z").unwrap().as_str(), "https://a/z");
        assert_eq!(led("https://a/x", "https://b/y?s=1").unwrap().as_str(), "https://b/y?s=1");
        assert_eq!(led("http://a/x", "https://b/y").unwrap().as_str(), "https://b/y");
        for location in ["http://a/x", "http://b/x", "file:///etc/passwd", "ftp://a/x", "https://me@b/x", "data:,x", "https://"] {
            assert!(led("https://a/x", location).is_err(), "{location}");
        }
        assert!(led("https://a/x", "data:,x").unwrap_err().to_string().ends_with("found data"));
        let e = led("https://a/x", "http://b/secret?signature=1").unwrap_err().to_string();
        assert!(!e.contains("secret") && !e.contains("signature"), "{e}");
    }

    #[test]
    fn another_host_port_or_scheme_is_another_origin() {
        let same = |b: &str| is_same_origin(&Url::parse("https://hub.example/a").unwrap(), &Url::parse(b).unwrap());
        assert!(same("https://hub.example/b") && same("https://HUB.example:443/"));
        for other in ["https://hub.example.evil/", "https://hub.example:444/", "http://hub.example/", "https://evil/hub.example"] {
            assert!(!same(other), "{other}");
        }
    }
}
