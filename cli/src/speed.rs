//! Keeps the measured rates of devices in the folder of measurements, so that `inspect` can estimate a speed without opening a device.

use super::ceiling;
use super::output::say;
use crate::report::DeviceRates;
use std::collections::BTreeMap;
use std::path::Path;
use wingbeat::error::Result;
use wingbeat::low_level::exec::{ChosenDevice, DeviceDecision};

/// The name of the file in the folder of measurements.
const FILE: &str = "rates.json";

/// Measures the rates of a device, and keeps them in `folder`. A file that cannot be written is not an error: a later run measures again.
pub fn measure(choice: &DeviceDecision, folder: Option<&Path>) -> Result<DeviceRates> {
    let rates = ceiling::rates(choice)?;
    if let Some(folder) = folder {
        let mut all = kept(folder);
        all.insert(rates.id.clone(), rates.clone());
        let text = serde_json::to_string(&all).unwrap_or_default();
        let written = std::fs::create_dir_all(folder).and_then(|()| std::fs::write(folder.join(FILE), text));
        written.unwrap_or_else(|e| log::debug!("{}: {e}", folder.join(FILE).display()));
    }
    Ok(rates)
}

/// Returns the rates that `folder` keeps for `device`. Without `device`, returns the rates of the device that models run on. Returns `None` if they
/// were not measured.
pub fn known(folder: &Path, device: Option<&str>) -> Option<DeviceRates> {
    let all = kept(folder);
    let wanted = device.map(|device| if device == "gpu" { "gpu:0" } else { device }).filter(|device| *device != "auto");
    match wanted {
        Some(id) => all.get(id).cloned(),
        // Prefers `gpu:0`. Without its rates, `max_by_key` returns the last entry, which is another GPU, or else the CPU.
        None => all.into_values().filter(|rates| !rates.is_software).max_by_key(|rates| rates.id == "gpu:0"),
    }
}

fn kept(folder: &Path) -> BTreeMap<String, DeviceRates> {
    let text = std::fs::read_to_string(folder.join(FILE)).unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_default()
}

/// Prints which device is measured.
pub fn announce(choice: &DeviceDecision) {
    let name = match &choice.chosen {
        ChosenDevice::Gpu(adapter) => adapter.name.as_str(),
        ChosenDevice::Cpu => "cpu",
    };
    say(format_args!("measuring {name}"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_gpu_is_preferred() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(known(folder.path(), None), None);
        let rates = |id: &str| DeviceRates {
            id: id.into(),
            name: id.into(),
            is_software: false,
            memory_bytes: None,
            read_gb_s: [("f16".to_string(), 10.0)].into(),
            word_us: 1.0,
        };
        let write = |ids: &[&str]| {
            let all: BTreeMap<_, _> = ids.iter().map(|id| (id.to_string(), rates(id))).collect();
            std::fs::write(folder.path().join(FILE), serde_json::to_string(&all).unwrap()).unwrap();
        };
        let found = |device: Option<&str>| known(folder.path(), device).map(|rates| rates.id);
        write(&["cpu"]);
        assert_eq!((found(None).as_deref(), found(Some("gpu"))), (Some("cpu"), None));
        write(&["cpu", "gpu:0", "gpu:1"]);
        assert_eq!((found(None).as_deref(), found(Some("cpu")).as_deref()), (Some("gpu:0"), Some("cpu")));
        assert_eq!((found(Some("gpu")).as_deref(), found(Some("auto")).as_deref()), (Some("gpu:0"), Some("gpu:0")));
        let mut all: BTreeMap<_, _> = ["cpu", "gpu:0"].map(|id| (id.to_string(), rates(id))).into();
        all.get_mut("gpu:0").unwrap().is_software = true;
        std::fs::write(folder.path().join(FILE), serde_json::to_string(&all).unwrap()).unwrap();
        assert_eq!((found(None).as_deref(), found(Some("gpu")).as_deref()), (Some("cpu"), Some("gpu:0")));
        std::fs::write(folder.path().join(FILE), "damaged").unwrap();
        assert_eq!(found(None), None);
    }
}
