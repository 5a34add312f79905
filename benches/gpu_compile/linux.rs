//! The command line of the program: compiles the kernels and prints the faults.

use super::driver::{Compiled, Driver};
use super::statistics::Statistics;
use super::{hlsl, recipes, spirv, table};
use clap::Parser;
use rayon::prelude::*;
use std::path::{Path, PathBuf};
use std::time::Instant;
use wingbeat::low_level::tape::Tuning;

/// Compiles every kernel for GPUs with a GPU's compiler
#[derive(Parser)]
struct Arguments {
    /// The GPU: the name of its table
    #[arg(long, required_unless_present = "hlsl")]
    gpu: Option<String>,
    /// Write each kernel as HLSL to this folder, and compile nothing
    #[arg(long, conflicts_with = "gpu")]
    hlsl: Option<PathBuf>,
    /// A part of the adapter's name [default: the value of --gpu]
    #[arg(long)]
    adapter: Option<String>,
    /// The folder of the tables
    #[arg(long, default_value = "benches/compiled")]
    tables: PathBuf,
    /// Write the table anew
    #[arg(long)]
    bless: bool,
    /// Compile only kernels whose line in the table contains this text. Print their lines and all statistics, and compare nothing
    #[arg(long)]
    only: Option<String>,
    /// Write the machine code of each kernel to this folder
    #[arg(long)]
    assembly: Option<PathBuf>,
    /// `cargo bench` passes this flag to every bench
    #[arg(long, hide = true)]
    bench: bool,
}

type Outcome = Result<Compiled, String>;

/// Runs the program. Returns the exit status: 0 without faults, 1 with faults, 3 without a driver or GPU.
pub fn main() -> i32 {
    let arguments = Arguments::parse();
    let Some(gpu) = &arguments.gpu else {
        let wrong = hlsl::write_all(&recipes::all(None, &Tuning::default()), &arguments.hlsl.expect("clap asks for a GPU or a folder"));
        return report("hlsl", &wrong);
    };
    let started = Instant::now();
    let driver = match Driver::open(arguments.adapter.as_ref().unwrap_or(gpu)) {
        Ok(driver) => driver,
        Err(why) => {
            println!("SKIPPED {gpu}: {why}");
            return 3;
        }
    };
    let mut kernels = recipes::all(driver.cooperative, &Tuning::unmeasured("vulkan", &driver.version));
    kernels.retain(|kernel| arguments.only.as_ref().is_none_or(|text| kernel.name.contains(text)));
    let compile = |kernel: &recipes::Kernel| spirv::write(&kernel.recipe).and_then(|shader| driver.compile(&shader));
    let outcomes: Vec<Outcome> = kernels.par_iter().map(compile).collect();
    println!("{gpu}: {} kernels in {:.1} s, {}, {}", kernels.len(), started.elapsed().as_secs_f64(), driver.name, driver.version);

    let mut wrong = Vec::new();
    let mut rows = Vec::new();
    for (i, (kernel, outcome)) in kernels.iter().zip(&outcomes).enumerate() {
        match outcome {
            Err(why) => wrong.push(format!("{}: {why}", kernel.name)),
            Ok(compiled) => {
                let statistics = Statistics::new(compiled);
                if statistics.spilled > 0 {
                    wrong.push(format!("{}: spills {} (registers and bytes of scratch memory)", kernel.name, statistics.spilled));
                }
                if arguments.only.is_some() {
                    println!("{} {:?}", kernel.name, compiled.statistics);
                }
                if let Some(folder) = &arguments.assembly {
                    save(&folder.join(format!("{i:03} {}.s", kernel.name.replace('/', "_"))), &compiled.assembly);
                }
                rows.push((kernel.name.clone(), statistics));
            }
        }
    }
    let path = arguments.tables.join(format!("{gpu}.txt"));
    match (&arguments.only, arguments.bless) {
        (Some(_), _) => print!("{}", table::text(&driver.version, &rows)),
        (None, true) => save(&path, &table::text(&driver.version, &rows)),
        (None, false) => wrong.extend(table::compare(&path, &driver.version, &rows)),
    }
    report(gpu, &wrong)
}

/// Prints each fault in `wrong` as one line. Returns the exit status: 0 without faults, else 1.
fn report(gpu: &str, wrong: &[String]) -> i32 {
    wrong.iter().for_each(|line| println!("FAILED {gpu}: {line}"));
    i32::from(!wrong.is_empty())
}

fn save(path: &Path, text: &str) {
    let folder = path.parent().expect("the path has a folder");
    std::fs::create_dir_all(folder).and_then(|()| std::fs::write(path, text)).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
}
