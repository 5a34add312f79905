//! `doctor --kernel`: prints the text of a kernel as a device gets it.

use super::choose_or_software;
use crate::model_options::{DeviceArgs, cache_folder};
use crate::output::{Output, say};
use crate::{ExitCode, Outcome};
use wingbeat::error::{Error, Result};
use wingbeat::low_level::arch::synthetic;
use wingbeat::low_level::exec::gpu::{Adapter, Variant, find_kernels, kernel_files, variants};
use wingbeat::low_level::exec::{ChosenDevice, tune};
use wingbeat::low_level::quant::{self, Format};
use wingbeat::low_level::tape::{Caps, Class, Tape};

/// The value of `--kernel` that lists all kernels.
const LIST: &str = "list";

/// Models whose kernels come first in the numbering of variants. Kernels that only test cases use follow.
const MODELS: [&str; 3] = ["rwkv7-0.1b", "rwkv6-1.5b", "glm4-0.5b"];

/// The least similarity, from 0 to 1, at which the error for an unknown kernel suggests another name.
const NEAR: f64 = 0.8;

#[derive(clap::Args)]
pub struct ShowArgs {
    /// Print the WGSL text of a kernel as the device gets it, and check nothing. NAME is a path below shaders/, such as linear/matvec, or its last part; `list` lists all kernels
    #[arg(long, value_name = "NAME", conflicts_with_all = ["full", "json", "out"])]
    pub kernel: Option<String>,
    /// Weight format of the printed kernel: f32, f16, i8, …
    #[arg(long, value_name = "KIND", default_value = "f16", requires = "kernel")]
    quant: String,
    /// Number of the variant to print, from 1: variants of a kernel differ in modules or sizes
    #[arg(long, value_name = "N", default_value_t = 1, requires = "kernel", value_parser = clap::value_parser!(u32).range(1..))]
    variant: u32,
}

/// Prints the kernel `name`, or the list of all kernels.
pub fn run(name: &str, args: &ShowArgs, on: &DeviceArgs) -> Outcome {
    let mut out = Output::new(false);
    if name == LIST {
        kernel_files().iter().try_for_each(|file| out.line(format_args!("{:<26} {}", file.name, file.about)))?;
        out.finish()?;
        return Ok(ExitCode::SUCCESS);
    }
    let kernel = found(name)?;
    let format = quant::find(&args.quant).map_err(|e| e.at("--quant"))?;
    let backend = on.backend()?;
    let choice = choose_or_software(on, backend)?;
    let ChosenDevice::Gpu(adapter) = &choice.chosen else {
        let found = if on.named().is_some() { "the device cpu has no kernels" } else { "no GPU and no software driver was found" };
        let hint = "choose another device with --device; `wingbeat devices` lists all devices";
        return Err(Error::device(found).hint(hint).into());
    };
    // Print the kernel as a model gets it: with the sizes that were measured on this device, and without cooperative matrices that compute wrong
    // results.
    let caps = tune::open(adapter, false, cache_folder().as_deref())?.caps;
    let all: Vec<Variant> = variants(tapes()?, format, &caps).into_iter().filter(|variant| variant.recipe.shader == kernel).collect();
    let Some(variant) = all.get(args.variant as usize - 1) else {
        let text = match all.len() {
            0 => format!("this device does not use the kernel {kernel} for weights in {}", format.name()),
            n => format!("expected a variant from 1 to {n}, found {}", args.variant),
        };
        let e = Error::input(text);
        let other = if caps.class == Class::Lanes { "groups" } else { "lanes" };
        let hint = format!("choose another kernel or format, or set WINGBEAT_KERNELS={other} for the device's other kernels");
        return Err(if all.is_empty() { e.hint(hint).into() } else { e.at("--variant").into() });
    };
    out.text(&variant.text(&title(kernel, adapter, &caps, format, &choice.id))?)?;
    out.finish()?;
    if all.len() > 1 {
        say(format_args!("note: variant {} of {}; --variant N prints another one", args.variant, all.len()));
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the path of the kernel that `name` means.
///
/// # Errors
/// `Input` if no kernel, or more than one, has the name.
fn found(name: &str) -> Result<&'static str> {
    match find_kernels(name).as_slice() {
        [kernel] => Ok(kernel),
        [] => {
            let last = |path: &'static str| path.rsplit('/').next().unwrap_or(path);
            let near = |path: &'static str| strsim::jaro_winkler(path, name).max(strsim::jaro_winkler(last(path), name));
            let near: Vec<&str> = kernel_files().iter().map(|file| file.name).filter(|path| near(path) >= NEAR).collect();
            let hint = match near.is_empty() {
                true => "--kernel list lists all kernels".to_string(),
                false => format!("did you mean {}? --kernel list lists all kernels", near.join(", ")),
            };
            Err(Error::input(format!("unknown kernel {name:?}")).at("--kernel").hint(hint))
        }
        several => Err(Error::input(format!("{name:?} is the name of several kernels"))
            .at("--kernel")
            .hint(format!("choose one of {}", several.join(", ")))),
    }
}

fn tapes() -> Result<Vec<Tape>> {
    let tape = |name: &&str| {
        let mut tape = Tape::new();
        synthetic::named(name)?.record(&mut tape);
        Ok(tape)
    };
    MODELS.iter().map(tape).collect()
}

/// Returns the first lines of the printed text.
fn title(kernel: &str, adapter: &Adapter, caps: &Caps, format: &dyn Format, id: &str) -> String {
    let class = match caps.class {
        Class::Groups => "kernels for GPUs",
        Class::Lanes => "kernels for software drivers",
    };
    let marks = [(caps.subgroups, ", subgroups"), (caps.cooperative.is_some(), ", cooperative matrices")];
    let marks: String = marks.iter().filter(|(on, _)| *on).map(|(_, mark)| *mark).collect();
    format!("The kernel {kernel} for weights in {}.\nDevice {id}, {}: {class}{marks}.", format.name(), adapter.name)
}
