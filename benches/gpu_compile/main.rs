//! Compiles every kernel for GPUs with a real GPU's compiler, and compares registers, occupancy, workgroup memory and code size with a table.
//! Needs no GPU: Mesa's drivers compile for GPUs that the machine does not have. `tools/gpu-compile.sh` chooses driver and GPU, and calls
//!
//! ```sh
//! gpu_compile --gpu navi21 --tables benches/compiled            # compares
//! gpu_compile --gpu navi21 --tables benches/compiled --bless    # writes the table anew
//! gpu_compile --gpu navi21 --only linear/matvec --assembly /tmp/isa
//! gpu_compile --hlsl /tmp/hlsl                                  # for a compiler of HLSL
//! ```
//!
//! Exits with 1 if a kernel is refused, spills registers or is worse than in the table, and with 3 if the driver or the GPU is missing.

#[cfg(target_os = "linux")]
mod driver;
#[cfg(target_os = "linux")]
mod hlsl;
#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "linux")]
mod recipes;
#[cfg(target_os = "linux")]
mod spirv;
#[cfg(target_os = "linux")]
mod statistics;
#[cfg(target_os = "linux")]
mod table;

fn main() {
    #[cfg(target_os = "linux")]
    std::process::exit(linux::main());
    #[cfg(not(target_os = "linux"))]
    eprintln!("SKIPPED: only Linux has drivers that compile for absent GPUs");
}
