//! Parses the value of `-n`, the maximum number of tokens to generate. -1 means no limit.

use wingbeat::engine::UNLIMITED;

/// Parses the value of `-n`, for clap's `value_parser`. Returns `UNLIMITED` for -1.
pub fn max_tokens(text: &str) -> std::result::Result<usize, String> {
    match text.trim() {
        "-1" => Ok(UNLIMITED),
        text => text.parse().map_err(|_| "expected a whole number of at least 0, or -1 for no limit".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::max_tokens;

    #[test]
    fn minus_one_is_no_limit() {
        assert_eq!([max_tokens("-1"), max_tokens("0"), max_tokens("7")], [Ok(usize::MAX), Ok(0), Ok(7)]);
        assert!(["-2", "x", "", "1.5"].into_iter().all(|text| max_tokens(text).is_err()));
    }
}
