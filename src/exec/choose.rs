//! Chooses the device that a model runs on, and explains the choice.

use super::gpu::{Adapter, AdapterKind, Backend, adapters_async};
use super::wait::MAY_BLOCK;
use crate::error::{Error, Result};
use std::fmt;
use std::str::FromStr;

/// The device on which layers should run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum DeviceChoice {
    /// The first hardware adapter, or the CPU if no adapter is hardware. With a named backend, the first adapter of that backend. A browser does not
    /// report the kind of its adapter, so there every adapter except a fallback adapter counts as hardware.
    #[default]
    Auto,
    /// The CPU, without a GPU driver.
    Cpu,
    /// An adapter by its index in the list of adapters. `None` means the first adapter.
    Gpu(Option<usize>),
    /// The first adapter whose name contains this text. Upper and lower case are equal.
    Named(String),
    /// A device that the caller opened. Parsing a text never returns this variant.
    Own,
}

impl fmt::Display for DeviceChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeviceChoice::Auto => f.pad("auto"),
            DeviceChoice::Cpu => f.pad("cpu"),
            DeviceChoice::Gpu(None) => f.pad("gpu"),
            DeviceChoice::Gpu(Some(n)) => f.pad(&format!("gpu:{n}")),
            DeviceChoice::Named(name) => f.pad(name),
            DeviceChoice::Own => f.pad("own"),
        }
    }
}

impl FromStr for DeviceChoice {
    type Err = Error;

    /// Parses `auto`, `cpu`, `gpu`, `gpu:N`, or a part of an adapter's name. Upper and lower case are equal.
    ///
    /// # Errors
    /// A `Usage` error that names the option `device`, if the text is empty or `N` is not a number.
    fn from_str(text: &str) -> Result<DeviceChoice> {
        let text = text.trim();
        Ok(match text.to_lowercase().as_str() {
            "" => {
                let e = Error::usage("expected auto, cpu, gpu, gpu:N or a part of a GPU's name, found an empty text");
                return Err(e.field("device"));
            }
            "auto" => DeviceChoice::Auto,
            "cpu" => DeviceChoice::Cpu,
            "gpu" => DeviceChoice::Gpu(None),
            lower => match lower.strip_prefix("gpu:") {
                Some(n) => {
                    let wrong =
                        |_| Error::usage(format!("expected the number of a GPU after gpu:, such as gpu:0; found {n:?}")).field("device");
                    DeviceChoice::Gpu(Some(n.parse().map_err(wrong)?))
                }
                None => DeviceChoice::Named(text.to_owned()),
            },
        })
    }
}

/// The device that was chosen.
pub enum ChosenDevice {
    Cpu,
    Gpu(Box<Adapter>),
}

/// A choice of device, with an explanation.
pub struct DeviceDecision {
    pub chosen: ChosenDevice,
    /// `cpu` or `gpu:N`: a value of the option `device`.
    pub id: String,
    pub why: String,
}

/// The hint in the error for a machine without any GPU adapter.
const NO_ADAPTER: &str = "install a Vulkan driver (Debian and Ubuntu: mesa-vulkan-drivers), run `wingbeat doctor`, or use `device=cpu`";

/// Chooses a device among the CPU and the adapters of `backend`.
///
/// `Auto` takes a software adapter only if the caller names a backend, because [`CpuModel`](super::cpu::CpuModel) is faster than a software
/// adapter.
///
/// # Errors
/// A `Device` error that names the option `device`, if no adapter matches. A `Device` error that names the option `backend`, if the backend
/// has no adapter.
pub async fn choose_async(device: &DeviceChoice, backend: Backend) -> Result<DeviceDecision> {
    let cpu = |why| DeviceDecision { chosen: ChosenDevice::Cpu, id: "cpu".into(), why: format!("cpu, {why}") };
    if *device == DeviceChoice::Cpu {
        return Ok(cpu("as asked"));
    }
    let mut all = adapters_async(backend).await;
    if all.is_empty() && backend != Backend::Auto {
        return Err(no_adapter_through(backend).await);
    }
    let is_automatic = *device == DeviceChoice::Auto && backend == Backend::Auto;
    let at = match device {
        DeviceChoice::Auto if is_automatic => {
            let is_hardware = |a: &Adapter| a.kind < AdapterKind::Other || a.kind == AdapterKind::Other && !MAY_BLOCK;
            let Some(at) = all.iter().position(is_hardware) else {
                return Ok(cpu("because no GPU adapter was found; a software adapter is used only on request"));
            };
            Some(at)
        }
        DeviceChoice::Auto | DeviceChoice::Cpu | DeviceChoice::Gpu(None) => Some(0),
        DeviceChoice::Gpu(Some(n)) => Some(*n),
        DeviceChoice::Named(name) => all.iter().position(|a| a.name.to_lowercase().contains(&name.to_lowercase())),
        DeviceChoice::Own => {
            return Err(Error::device("the option asks for the caller's own device, but no device was passed").field("device"));
        }
    };
    if all.is_empty() {
        return Err(Error::device("no GPU adapter was found").field("device").hint(NO_ADAPTER));
    }
    let Some(at) = at.filter(|&at| at < all.len()) else {
        let names: Vec<_> = all.iter().enumerate().map(|(i, a)| format!("gpu:{i} {} ({})", a.name, a.backend)).collect();
        return Err(no_match(&device.to_string(), &names));
    };
    let a = all.swap_remove(at);
    let asked = if is_automatic { "" } else { ", as asked" };
    let why = format!("{} ({}, {}){asked}", a.name, a.backend, a.kind.name());
    Ok(DeviceDecision { chosen: ChosenDevice::Gpu(Box::new(a)), id: format!("gpu:{at}"), why })
}

/// Returns the error for a device that no adapter matches. `names` are the adapters. The name of a graphics interface gets a hint.
fn no_match(device: &str, names: &[String]) -> Error {
    let text = format!("no device matches {device:?}; available devices: cpu, {}", names.join(", "));
    let e = Error::device(text).field("device");
    let name = device.to_lowercase();
    let is_api = ["cuda", "rocm", "hip", "mps", "metal", "vulkan", "directml", "xpu", "sycl"].iter().any(|api| name.starts_with(api));
    if is_api { e.hint("write gpu, or gpu:0 for the first GPU: every GPU is used through Vulkan, Metal or DirectX 12") } else { e }
}

/// Returns the error for a backend without adapters. The message lists the backends that have adapters.
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
        format!("no GPU was found with the backend {}; GPUs were found with {found}", backend.name())
    } else {
        format!("this program does not support the backend {} on this system; it supports {}", backend.name(), names(&built_in))
    };
    Error::device(text).field("backend").hint("choose another backend, or use `device=cpu`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_choice_is_read_from_text_and_written_as_it() {
        let of = |text: &str| text.parse::<DeviceChoice>();
        for text in ["auto", "cpu", "gpu", "gpu:12", "GeForce RTX"] {
            assert_eq!(of(text).unwrap().to_string(), text);
        }
        assert_eq!(of(" GPU:1 ").unwrap(), DeviceChoice::Gpu(Some(1)));
        let hint = |device: &str| no_match(device, &["gpu:0 A".into()]).hint.unwrap_or_default();
        assert!(hint("cuda:0").starts_with("write gpu, or gpu:0") && hint("CUDA").starts_with("write gpu") && hint("B").is_empty());
        for (text, want) in [
            ("", "found an empty text"),
            (" ", "found an empty text"),
            ("gpu:x", "expected the number of a GPU after gpu:, such as gpu:0; found \"x\""),
        ] {
            let e = of(text).unwrap_err();
            assert!(e.message.contains(want) && e.field_name() == Some("device"), "{e}");
        }
    }
}
