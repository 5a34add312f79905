//! Which device a model runs on: the words of `--device`, and why.

use super::gpu::{Adapter, AdapterKind, Backend, adapters};
use crate::error::{Error, Result};

/// The host's own cores, or an adapter.
pub enum Chosen {
    Cpu,
    Gpu(Box<Adapter>),
}

/// What was chosen, in one line for people.
pub struct Choice {
    pub chosen: Chosen,
    /// `cpu` or `gpu:N`, as `--device` takes it.
    pub id: String,
    pub why: String,
}

/// What to do where there is no adapter at all.
const NO_ADAPTER: &str = "install a Vulkan driver (Debian and Ubuntu: mesa-vulkan-drivers), run `wingbeat doctor`, or use --device cpu";

/// `auto`, `cpu`, `gpu`, `gpu:N`, or a part of an adapter's name. `auto` never takes a software adapter: the host's own cores
/// are faster than a CPU that plays GPU.
pub fn choose(device: &str, backend: Backend) -> Result<Choice> {
    if device == "cpu" {
        return Ok(Choice { chosen: Chosen::Cpu, id: "cpu".into(), why: "cpu, as asked".into() });
    }
    let mut all = adapters(backend);
    if device == "auto" {
        let best = all
            .into_iter()
            .enumerate()
            .find(|(_, a)| matches!(a.kind, AdapterKind::Discrete | AdapterKind::Integrated | AdapterKind::Virtual));
        return Ok(match best {
            Some((at, a)) => Choice {
                why: format!("{} ({}, {})", a.name, a.backend, a.kind.name()),
                id: format!("gpu:{at}"),
                chosen: Chosen::Gpu(Box::new(a)),
            },
            None => Choice {
                chosen: Chosen::Cpu,
                id: "cpu".into(),
                why: "cpu, because there is no GPU adapter; a software one is used only when asked for".into(),
            },
        });
    }
    let at = if device == "gpu" {
        (!all.is_empty()).then_some(0)
    } else if let Some(n) = device.strip_prefix("gpu:") {
        let n: usize = n.parse().map_err(|_| Error::usage(format!("expected a number after gpu:, found {n:?}")).at("--device"))?;
        (n < all.len()).then_some(n)
    } else {
        all.iter().position(|a| a.name.to_lowercase().contains(&device.to_lowercase()))
    };
    match at {
        Some(at) => {
            let a = all.swap_remove(at);
            let why = format!("{} ({}, {}), as asked", a.name, a.backend, a.kind.name());
            Ok(Choice { why, id: format!("gpu:{at}"), chosen: Chosen::Gpu(Box::new(a)) })
        }
        None if all.is_empty() => Err(Error::device("no GPU adapter was found").hint(NO_ADAPTER)),
        None => {
            let names: Vec<_> = all.iter().enumerate().map(|(i, a)| format!("gpu:{i} {} ({})", a.name, a.backend)).collect();
            Err(Error::device(format!("no adapter is {device:?}; there are cpu, {}", names.join(", "))).at("--device"))
        }
    }
}
