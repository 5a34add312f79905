//! Sets options by name, for language bindings and files of settings.

use super::Options;
use crate::error::{Error, Result, short};
use std::str::FromStr;

impl Options {
    /// The names that [`set`](Self::set) takes.
    pub const NAMES: [&'static str; 16] = [
        "device",
        "backend",
        "dtype",
        "quant",
        "activations",
        "strategy",
        "vocab",
        "chunk",
        "context",
        "cache_dtype",
        "state_dtype",
        "rope_theta",
        "deterministic",
        "sparse",
        "state_orientation",
        "group_norm_eps",
    ];

    /// Sets the option with the name of a field, such as `quant`, to the value of a text, such as `i8`. Numbers and booleans are passed as text, too.
    ///
    /// # Errors
    /// `Usage` if the name is unknown or the value is wrong. The error names the option.
    pub fn set(&mut self, name: &str, value: &str) -> Result<()> {
        let named = |e: Error| e.field(name);
        match name {
            "device" => self.device = value.parse().map_err(named)?,
            "backend" => self.backend = value.parse().map_err(named)?,
            "dtype" => self.dtype = value.parse().map_err(named)?,
            "quant" => self.quant = Some(value.parse().map_err(named)?),
            "activations" => self.activations = value.parse().map_err(named)?,
            "strategy" => self.strategy = Some(value.parse().map_err(named)?),
            "vocab" => self.vocab = Some(value.into()),
            "chunk" => self.chunk = Some(count(name, value)?),
            "context" => self.context = Some(count(name, value)?),
            "cache_dtype" => self.cache_dtype = value.parse().map_err(named)?,
            "state_dtype" => self.state_dtype = value.parse().map_err(named)?,
            "rope_theta" => self.rope_theta = Some(positive(name, value)?),
            "deterministic" => self.deterministic = of(name, value, "true or false")?,
            "sparse" => self.sparse = of(name, value, "true or false")?,
            "state_orientation" => self.state_orientation = value.parse().map_err(named)?,
            "group_norm_eps" => self.group_norm_eps = Some(positive(name, value)?),
            _ => return Err(Error::usage("unknown option").field(name).hint(format!("options: {}", Self::NAMES.join(", ")))),
        }
        Ok(())
    }
}

fn of<T: FromStr>(name: &str, value: &str, expected: &str) -> Result<T> {
    value.parse().map_err(|_| Error::usage(format!("expected {expected}, found {:?}", short(value, 40))).field(name))
}

fn count(name: &str, value: &str) -> Result<usize> {
    const EXPECTED: &str = "a whole number of at least 1";
    match of(name, value, EXPECTED)? {
        0 => Err(Error::usage(format!("expected {EXPECTED}, found 0")).field(name)),
        n => Ok(n),
    }
}

fn positive<T: FromStr + Into<f64> + Copy>(name: &str, value: &str) -> Result<T> {
    const EXPECTED: &str = "a positive number";
    let number: T = of(name, value, EXPECTED)?;
    let is_positive = number.into() > 0.0 && number.into().is_finite();
    if is_positive { Ok(number) } else { Err(Error::usage(format!("expected {EXPECTED}, found {value}")).field(name)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_sets_an_option() {
        let values = [
            "cpu",
            "vulkan",
            "f32",
            "i8",
            "float",
            "cpu fp32",
            "v.txt",
            "64",
            "128",
            "f32",
            "f16",
            "1e6",
            "true",
            "false",
            "key-value",
            "1e-5",
        ];
        for (name, value) in Options::NAMES.into_iter().zip(values) {
            Options::default().set(name, value).unwrap_or_else(|e| panic!("{e}"));
            // Only `vocab` (a path) and `device` (perhaps the name of a GPU) take any text.
            if name != "vocab" && name != "device" {
                let e = Options::default().set(name, "-1").unwrap_err();
                assert!(e.field_name().is_some_and(|field| field.starts_with(name)), "{name}: {e}");
            }
        }
        let mut options = Options::default();
        options.set("context", "128").unwrap();
        assert_eq!(options.context, Some(128));
        let refused = |name: &str, value: &str| Options::default().set(name, value).unwrap_err().to_string();
        assert_eq!(refused("chunk", "0"), "chunk: expected a whole number of at least 1, found 0");
        assert_eq!(refused("rope_theta", "inf"), "rope_theta: expected a positive number, found inf");
        assert!(refused("colour", "1").starts_with("colour: unknown option (options: device, backend"));
    }
}
