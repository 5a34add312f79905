//! The choice of the device that a model runs on, and why.

use super::gpu::{Adapter, AdapterKind, Backend, adapters_async};
use crate::error::{Error, Result};

/// The host's own cores, or an adapter.
pub enum Chosen {
    Cpu,
    Gpu(Box<Adapter>),
}

/// What was chosen, in one line for people.
pub struct Choice {
    pub chosen: Chosen,
    /// `cpu` or `gpu:N`, as the option `device` takes it.
    pub id: String,
    pub why: String,
}

/// What to do where there is no adapter at all.
const NO_ADAPTER: &str = "install a Vulkan driver (Debian and Ubuntu: mesa-vulkan-drivers), run `wingbeat doctor`, or use `device=cpu`";

/// Chooses a device: `auto`, `cpu`, `gpu`, `gpu:N`, or a part of an adapter's name, in upper or lower case.
///
/// `auto` takes a software adapter only if the caller asks for a backend: the host's own cores are faster than a CPU that plays GPU.
///
/// # Errors
/// `Device` if no adapter matches, or if the backend that was asked for has no adapter. `Usage` if the words are wrong. Both are at
/// `device` or `backend`.
pub async fn choose_async(device: &str, backend: Backend) -> Result<Choice> {
    let wanted = device.trim().to_lowercase();
    if wanted.is_empty() {
        return Err(Error::usage("expected auto, cpu, gpu, gpu:N or a part of an adapter's name, found nothing").field("device"));
    }
    if wanted == "cpu" {
        return Ok(Choice { chosen: Chosen::Cpu, id: "cpu".into(), why: "cpu, as asked".into() });
    }
    let mut all = adapters_async(backend).await;
    if all.is_empty() && backend != Backend::Auto {
        return Err(no_adapter_through(backend).await);
    }
    if wanted == "auto" && backend == Backend::Auto {
        let is_hardware = |a: &Adapter| matches!(a.kind, AdapterKind::Discrete | AdapterKind::Integrated | AdapterKind::Virtual);
        return Ok(match all.into_iter().enumerate().find(|(_, a)| is_hardware(a)) {
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
    let at = if wanted == "gpu" || wanted == "auto" {
        (!all.is_empty()).then_some(0)
    } else if let Some(n) = wanted.strip_prefix("gpu:") {
        let n: usize = n.parse().map_err(|_| Error::usage(format!("expected a number after gpu:, found {n:?}")).field("device"))?;
        (n < all.len()).then_some(n)
    } else {
        all.iter().position(|a| a.name.to_lowercase().contains(&wanted))
    };
    match at {
        Some(at) => {
            let a = all.swap_remove(at);
            let why = format!("{} ({}, {}), as asked", a.name, a.backend, a.kind.name());
            Ok(Choice { why, id: format!("gpu:{at}"), chosen: Chosen::Gpu(Box::new(a)) })
        }
        None if all.is_empty() => Err(Error::device("no GPU adapter was found").field("device").hint(NO_ADAPTER)),
        None => {
            let names: Vec<_> = all.iter().enumerate().map(|(i, a)| format!("gpu:{i} {} ({})", a.name, a.backend)).collect();
            Err(Error::device(format!("no adapter is {device:?}; there are cpu, {}", names.join(", "))).field("device"))
        }
    }
}

/// Says which backends there are in place of this one.
async fn no_adapter_through(backend: Backend) -> Error {
    let names = |all: &[Backend]| all.iter().map(|b| b.name()).collect::<Vec<_>>().join(", ");
    let built_in: Vec<Backend> = Backend::ALL.into_iter().filter(|b| b.is_built_in()).collect();
    let text = if built_in.contains(&backend) {
        let mut others = Vec::new();
        for other in built_in.into_iter().filter(|b| *b != backend) {
            if !adapters_async(other).await.is_empty() {
                others.push(other);
            }
        }
        let found = if others.is_empty() { "no other backend".into() } else { names(&others) };
        format!("no adapter was found through {}; adapters were found through {found}", backend.name())
    } else {
        format!("this program has no {} on this system; it has {}", backend.name(), names(&built_in))
    };
    Error::device(text).field("backend").hint("choose another backend, or use `device=cpu`")
}
