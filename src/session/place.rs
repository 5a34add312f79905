//! Where a model's layers lie: all on one device, or in parts on several.

use super::{Device, Options};
use crate::error::Result;
use crate::exec::gpu::GpuModel;
use crate::exec::{Chain, Chosen, Link, Loaded, Progress, choose, cpu::CpuModel, tune};
use crate::tape::{MatrixSpec, Section, Source, Tape};
use std::ops::Range;
use std::sync::Arc;

/// Consecutive layers of a model, and the device that has them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartOn {
    /// As [`Options::device`] takes it; each part opens the device anew. `own`: the caller's.
    pub device: String,
    /// The norm and the head behind the last layer count as one more; the embedding belongs to layer 0.
    pub layers: Range<usize>,
    /// So many of these, the first ones, stay on the device, at most all. The others stay in host memory and come to the device in every
    /// step, one after another. On the CPU there is nothing to stream.
    pub resident: usize,
}

/// The caller's device.
const OWN: &str = "own";

/// Loads a tape as the options say.
pub fn place(tape: &Arc<Tape>, source: &dyn Source, options: &Options, progress: Progress<'_>) -> Result<(Arc<dyn Loaded>, Device)> {
    if options.parts.is_empty() {
        let device = if options.gpu.is_some() { OWN } else { &options.device };
        return load(device, tape.clone().into(), source, options, progress);
    }
    let layers: Vec<Range<usize>> = options.parts.iter().map(|p| p.layers.clone()).collect();
    let bytes = |matrices: &[MatrixSpec]| matrices.iter().map(|m| m.size_bytes() as u64).sum::<u64>();
    let (mut links, mut devices, mut done) = (Vec::new(), Vec::new(), 0);
    for (part, section) in options.parts.iter().zip(Section::cut(tape, &layers)?) {
        let own = bytes(&tape.matrices[section.own.matrices.clone()]);
        let progress = &mut |n: u64, _: u64| progress(done + n, bytes(&tape.matrices));
        let (loaded, device) =
            load(&part.device, section.resident(part.resident), source, options, progress).map_err(|e| e.at(&part.device))?;
        done += own;
        links.push(Link { device: device.id.clone(), part: loaded });
        devices.push(device);
    }
    Ok(if links.len() == 1 { (links.remove(0).part, devices.remove(0)) } else { (Chain::new(links)?, together(&devices)) })
}

fn load(
    device: &str,
    section: Section,
    source: &dyn Source,
    options: &Options,
    progress: Progress<'_>,
) -> Result<(Arc<dyn Loaded>, Device)> {
    let text = |s: &str| s.to_string();
    if let Some(opened) = options.gpu.as_ref().filter(|_| device == OWN) {
        let own = Device {
            id: text(OWN),
            name: text("caller's device"),
            backend: text("wgpu"),
            kind: text("other"),
            driver: String::new(),
            why: text("given by the caller"),
        };
        return Ok((GpuModel::load(opened.clone(), section, source, progress)?, own));
    }
    let choice = choose(device, options.backend)?;
    Ok(match choice.chosen {
        Chosen::Cpu => {
            let device = Device {
                id: choice.id,
                name: format!("{} threads", rayon::current_num_threads()),
                backend: text("cpu"),
                kind: text("builtin"),
                driver: String::new(),
                why: choice.why,
            };
            (CpuModel::load(section, source, options.deterministic, progress)?, device)
        }
        Chosen::Gpu(adapter) => {
            let device = Device {
                id: choice.id,
                name: adapter.name.clone(),
                backend: adapter.backend.clone(),
                kind: adapter.kind.name().into(),
                driver: adapter.driver.clone(),
                why: choice.why,
            };
            let mut opened = tune::open(&adapter, options.deterministic, options.cache.as_deref())?;
            opened.caps.sparse = options.sparse;
            (GpuModel::load(Arc::new(opened), section, source, progress)?, device)
        }
    })
}

/// Several devices as one; what all of them have in common stands there once.
fn together(devices: &[Device]) -> Device {
    let joined = |field: fn(&Device) -> &str| devices.iter().map(field).collect::<Vec<_>>().join(" -> ");
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
