//! Loads the layers of a model: all to one device, or in parts to several devices.

use super::footprint::{DeviceBytes, check};
use super::options::{Device, ExpertsOn, Options, PartOn};
use crate::error::{Error, Result};
use crate::exec::gpu::{self, AdapterKind, GpuModel};
use crate::exec::strategy::{PlacedExperts, PlacedLayers};
use crate::exec::{
    Chain, ChosenDevice, DeviceChoice, DeviceDecision, FloatChoice, Link, Loaded, Progress, choose_async, cpu::CpuModel, host_memory, tune,
};
use crate::quant::Activations;
use crate::tape::{Caps, Class, Held, Section, Source, Tape};
use std::ops::Range;
use std::sync::{Arc, PoisonError};

impl PartOn {
    /// Returns the placement of the part on `device`, for a model of `n_layers` layers. `experts` is the device of the experts that are not on
    /// `device`. Ignores layers that the model lacks, which [`Section::cut`] reports as an error. Ignores the place of experts if layers are
    /// streamed, which [`Section::split_experts`] reports.
    pub fn placed(&self, device: String, experts: Option<String>, n_layers: usize) -> PlacedLayers {
        let start = self.layers.start.min(n_layers);
        let layers = start..self.layers.end.min(n_layers).max(start);
        let resident = self.resident.min(layers.len());
        let experts = experts.zip(self.experts.as_ref()).filter(|_| resident == layers.len());
        let place = |(device, of): (String, &ExpertsOn)| PlacedExperts { device, dtype: FloatChoice::Auto, quant: None, layers: of.layers };
        PlacedLayers { device, dtype: FloatChoice::Auto, quant: None, resident, layers, experts: experts.map(place) }
    }
}

/// A chosen device. `None` means the GPU that the caller opened ([`Options::gpu`]).
type Choice = Option<DeviceDecision>;

/// Consecutive layers, and the devices that were chosen for them.
pub struct ChosenPart {
    part: PartOn,
    choice: Choice,
    /// The device of the experts, if the part names one.
    experts: Option<Choice>,
}

impl ChosenPart {
    /// Returns the chosen devices.
    fn choices(&self) -> impl Iterator<Item = &Choice> {
        std::iter::once(&self.choice).chain(&self.experts)
    }
}

/// Chooses a device for each part. If there are no parts, chooses one device for all layers.
pub async fn choose_devices(parts: &[PartOn], options: &Options) -> Result<Vec<ChosenPart>> {
    let device = if options.gpu.is_some() { DeviceChoice::Own } else { options.device.clone() };
    let whole = [PartOn { device, layers: 0..usize::MAX, resident: usize::MAX, experts: None }];
    let parts = if parts.is_empty() { &whole } else { parts };
    let mut chosen = Vec::new();
    for part in parts {
        let experts = match &part.experts {
            Some(experts) => Some(choose(&experts.device, options).await?),
            None => None,
        };
        chosen.push(ChosenPart { part: part.clone(), choice: choose(&part.device, options).await?, experts });
    }
    Ok(chosen)
}

async fn choose(device: &DeviceChoice, options: &Options) -> Result<Choice> {
    let is_own = *device == DeviceChoice::Own && options.gpu.is_some();
    if is_own { Ok(None) } else { choose_async(device, options.backend).await.map(Some) }
}

/// Returns the id of a chosen device.
fn id(choice: &Choice) -> String {
    choice.as_ref().map_or_else(|| DeviceChoice::Own.to_string(), |choice| choice.id.clone())
}

/// Returns the placements of all parts, for the check of free memory.
pub fn placed(chosen: &[ChosenPart], n_layers: usize) -> Vec<PlacedLayers> {
    chosen.iter().map(|c| c.part.placed(id(&c.choice), c.experts.as_ref().map(id), n_layers)).collect()
}

/// Returns whether a part runs on a GPU.
pub fn has_gpu(chosen: &[ChosenPart]) -> bool {
    let is_cpu = |choice: &Choice| matches!(choice, Some(DeviceDecision { chosen: ChosenDevice::Cpu, .. }));
    !chosen.iter().flat_map(ChosenPart::choices).all(is_cpu)
}

/// Returns whether all devices are discrete GPUs. A GPU that the caller opened counts as not discrete, because its kind is unknown.
pub fn are_discrete(chosen: &[ChosenPart]) -> bool {
    let is_discrete =
        |choice: &DeviceDecision| matches!(&choice.chosen, ChosenDevice::Gpu(adapter) if adapter.kind == AdapterKind::Discrete);
    chosen.iter().flat_map(ChosenPart::choices).all(|choice| choice.as_ref().is_some_and(is_discrete))
}

/// Checks that each device has enough free memory. `devices` lists the id of each device and the bytes that the model needs there. A device that does
/// not report its free memory passes, and so does a GPU that the caller opened.
///
/// # Errors
/// `Memory` if a device has too little free memory.
pub fn check_memory(chosen: &[ChosenPart], devices: &[(String, DeviceBytes)]) -> Result<()> {
    let find = |device: &str| chosen.iter().flat_map(ChosenPart::choices).find(|choice| id(choice) == device);
    let memory = |device: &str| match find(device) {
        Some(None) => None,
        Some(Some(DeviceDecision { chosen: ChosenDevice::Gpu(adapter), .. })) => adapter.memory(),
        _ => host_memory(),
    };
    check(devices, &memory)
}

/// Loads a model's tape (its recorded program) and weights to the chosen devices. Returns the loaded model and a description of the devices.
pub async fn place(
    tape: &Arc<Tape>,
    source: &dyn Source,
    options: &Options,
    mut chosen: Vec<ChosenPart>,
    progress: Progress<'_>,
) -> Result<(Arc<dyn Loaded>, Device)> {
    if let [ChosenPart { part, experts: None, .. }] = chosen.as_slice()
        && part.layers == (0..usize::MAX)
    {
        return load(chosen.remove(0).choice, tape.clone().into(), source, options, progress).await;
    }
    let layers: Vec<Range<usize>> = chosen.iter().map(|c| c.part.layers.clone()).collect();
    let mut sections = Vec::new();
    for (ChosenPart { part, choice, experts }, section) in chosen.into_iter().zip(Section::cut(tape, &layers)?) {
        let section = section.resident(part.resident);
        match experts.zip(part.experts) {
            None => sections.push((part.device, choice, section)),
            Some((choice_of_experts, on)) => {
                let (rest, away) = section.split_experts(on.layers)?;
                sections.extend([(part.device, choice, rest), (on.device, choice_of_experts, away)]);
            }
        }
    }
    let all = tape.matrices.iter().map(|m| m.size_bytes() as u64).sum();
    let (mut links, mut devices, mut done) = (Vec::new(), Vec::<Device>::new(), 0);
    for (name, choice, section) in sections {
        let (own, held) = (section.size_bytes(), section.held);
        let progress = &mut |n: u64, _: u64| progress(done + n, all);
        let (loaded, device) = load(choice, section, source, options, progress).await.map_err(|e| e.at(&name))?;
        done += own;
        links.push(Link { device: device.id.clone(), part: loaded });
        match (held, devices.last_mut()) {
            (Held::ExpertsFrom(_), Some(last)) => *last = joined(", experts ", &[last.clone(), device]),
            _ => devices.push(device),
        }
    }
    Ok(if links.len() == 1 { (links.remove(0).part, devices.remove(0)) } else { (Chain::new(links)?, joined(" -> ", &devices)) })
}

/// Loads a section (consecutive layers) to the chosen device. If `choice` is `None`, loads the section to the GPU that the caller opened.
async fn load(
    choice: Option<DeviceDecision>,
    section: Section,
    source: &dyn Source,
    options: &Options,
    progress: Progress<'_>,
) -> Result<(Arc<dyn Loaded>, Device)> {
    let text = |s: &str| s.to_string();
    let Some(choice) = choice else {
        let own = Device {
            id: DeviceChoice::Own.to_string(),
            name: text("caller's device"),
            backend: text("wgpu"),
            kind: text("other"),
            driver: String::new(),
            why: text("given by the caller"),
        };
        let opened = options.gpu.clone().expect("chosen because it is there");
        return Ok((on_gpu(opened, section, source, options, progress).await?, own));
    };
    Ok(match choice.chosen {
        ChosenDevice::Cpu => {
            let device = Device {
                id: choice.id,
                name: format!("{} threads", rayon::current_num_threads()),
                backend: text("cpu"),
                kind: text("builtin"),
                driver: String::new(),
                why: choice.why,
            };
            (CpuModel::load_async(section, source, progress).await?, device)
        }
        ChosenDevice::Gpu(adapter) => {
            let device = Device {
                id: choice.id,
                name: adapter.name.clone(),
                backend: adapter.backend.clone(),
                kind: adapter.kind.name().into(),
                driver: adapter.driver.clone(),
                why: choice.why,
            };
            let mut opened = tune::open_async(&adapter, options.deterministic, options.cache.as_deref()).await?;
            opened.caps.sparse = options.sparse;
            (on_gpu(Arc::new(opened), section, source, options, progress).await?, device)
        }
    })
}

async fn on_gpu(
    device: Arc<gpu::Device>,
    section: Section,
    source: &dyn Source,
    options: &Options,
    progress: Progress<'_>,
) -> Result<Arc<GpuModel>> {
    if section.tape.activations == Activations::I8 {
        check_rounding(&device.caps)?;
    }
    let model = GpuModel::load_async(device, section, source, progress).await?;
    let mut tell = |done: usize, all: usize| {
        if let Some(on_kernel) = &options.kernel_progress {
            (on_kernel.lock().unwrap_or_else(PoisonError::into_inner))(done as u64, all as u64);
        }
    };
    model.build_kernels(&mut tell).await?;
    Ok(model)
}

/// Checks that products on a GPU can round their inputs.
///
/// # Errors
/// `Usage` on a software adapter, and on a GPU that is opened as `deterministic`.
fn check_rounding(caps: &Caps) -> Result<()> {
    let refused = |what: &str, hint: &str| Err(Error::usage(format!("{what} do not round activations")).field("activations").hint(hint));
    if caps.class == Class::Lanes {
        return refused("software adapters", "use `device=cpu` or `activations=auto`");
    }
    if caps.batch_invariant {
        return refused("GPUs with `deterministic`", "use `activations=float`, or leave out `deterministic`");
    }
    Ok(())
}

/// Describes several devices as one: joins the texts of each field by `sign`. A text that all devices share appears once, except in `id`.
fn joined(sign: &str, devices: &[Device]) -> Device {
    let joined = |field: fn(&Device) -> &str| devices.iter().map(field).collect::<Vec<_>>().join(sign);
    let joint = |field: fn(&Device) -> &str| {
        let first = field(&devices[0]);
        if devices.iter().all(|d| field(d) == first) { first.to_string() } else { joined(field) }
    };
    Device {
        id: joined(|d| &d.id),
        name: joint(|d| &d.name),
        backend: joint(|d| &d.backend),
        kind: joint(|d| &d.kind),
        driver: joint(|d| &d.driver),
        why: joint(|d| &d.why),
    }
}
