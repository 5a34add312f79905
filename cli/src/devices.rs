//! `devices`: lists the devices and marks the chosen device.

use super::ExitCode;
use super::Outcome;
use super::model_options::DeviceArgs;
use super::output::{Output, printable, say};
use super::values::OUTPUT;
use crate::report::{DeviceReport, devices};
use wingbeat::low_level::exec::choose;
use wingbeat::low_level::front_end::size;

const EXAMPLES: &str = "\
Examples:
  wingbeat devices
  wingbeat devices --json
  wingbeat devices --device nvidia      show which device --device nvidia chooses

Environment variables, for tests and for faulty drivers:
  WINGBEAT_KERNELS=groups|lanes  groups: use the kernels for GPUs; lanes: use the kernels for
                                 software drivers
  WINGBEAT_SUBGROUPS=0|1         0: use no subgroup operations; 1: fail if the device has none
  WINGBEAT_COOPERATIVE=0|1       0: use no cooperative matrices (tensor cores); 1: fail if the
                                 device has none
  WINGBEAT_SPANS=0|1             RWKV prompts: 0: compute the recurrence token by token; 1: compute
                                 the recurrence for 16 tokens at once
  WINGBEAT_CHECKED_SHADERS=1     keep bounds checks in the shaders
  WINGBEAT_MAX_BINDING=BYTES     split matrices that are larger than BYTES
  WINGBEAT_DRAWS=device|host     sample tokens on the GPU (device) or on the CPU (host)
  WINGBEAT_TUNE=0|1              0: never measure which kernels are fastest; 1: measure on software
                                 drivers, too, if WINGBEAT_KERNELS=groups is set
  WINGBEAT_VECTORS=avx2|plain    the CPU: avx2: use no AVX-512; plain: use plain loops
  WINGBEAT_CACHE=FOLDER          keep measured kernel times and compiled kernels in FOLDER";

/// List the devices that models can run on
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    on: DeviceArgs,
    /// Print the devices as a JSON array
    #[arg(help_heading = OUTPUT, long)]
    json: bool,
}

pub fn run(args: Args) -> Outcome {
    show(&args.on, args.json)
}

/// Prints the list of devices as a table or as JSON.
pub fn show(on: &DeviceArgs, json: bool) -> Outcome {
    let backend = on.backend()?;
    let choice = choose(&on.device()?, backend)?;
    let list = devices(backend, &choice.id);
    let mut out = Output::new(false);
    if json {
        out.json(&list)?;
    } else {
        for d in &list {
            out.line(line(d))?;
        }
        say(format_args!("chosen: {}", choice.why));
    }
    out.finish()?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the line of the table that describes a device.
pub fn line(d: &DeviceReport) -> String {
    let mark = if d.chosen { '*' } else { ' ' };
    let mut text = format!("{mark} {:<6} {} ({}, {})", d.id, d.name, d.backend, d.kind);
    if !d.driver.is_empty() {
        text.push_str(&format!(", {}", d.driver));
    }
    if let Some([min, max]) = d.features.subgroups {
        text.push_str(&format!(", subgroups {min}-{max}"));
    }
    if d.features.f16 {
        text.push_str(", f16");
    }
    if d.features.cooperative_matrix {
        text.push_str(", cooperative matrix");
    }
    match (d.memory_bytes, d.memory_free_bytes) {
        (Some(total), Some(free)) => text.push_str(&format!(", {} of {} free", size(free), size(total))),
        (Some(total), None) => text.push_str(&format!(", {}", size(total))),
        (None, _) => {}
    }
    // The device's name comes from the driver and may contain control characters.
    printable(&text).into_owned()
}
