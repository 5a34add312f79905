use super::super::footprint::{LayerBytes, by_device};
use super::*;
use crate::error::Kind;
use crate::exec::strategy::{PlacedLayers, Strategy};

const MB: u64 = 1_000_000;

/// Returns a model in three weight formats. In f16, the model has 24 layers of 100 MB and a head of 300 MB. Each layer has 1 MB of state, and
/// activations take 50 MB.
fn candidates() -> Vec<Candidate> {
    let candidate = |dtype: &str, percent: u64| {
        let layer = |mb: u64| LayerBytes { weights: mb * MB * percent / 100, slots: MB, ..LayerBytes::default() };
        let layers = (0..24).map(|_| layer(100)).chain([layer(300)]).collect();
        Candidate { dtype: dtype.into(), footprint: Footprint { layers, scratch: 50 * MB } }
    };
    vec![candidate("fp16", 100), candidate("fp16i8", 53), candidate("fp16i4", 29)]
}

/// Returns a machine whose adapters and host have these usable MB. Adds the margin that `usable` subtracts.
fn machine(adapters: &[u64], host: u64) -> Machine {
    let free = |mb: u64| Some((mb * MB + (256 << 20)) / 15 * 16 + 16);
    let adapters = adapters.iter().enumerate().map(|(i, mb)| (format!("gpu:{i}"), free(*mb))).collect();
    Machine { adapters, software: None, host: free(host), speeds: Speeds::default() }
}

fn chosen(adapters: &[u64], host: u64) -> String {
    let machine = machine(adapters, host);
    let fitted = fit(&candidates(), &machine).unwrap();
    holds(&candidates(), &fitted.strategy, &machine);
    fitted.strategy
}

/// Checks that `text` is a valid strategy for the model `all` and that every device has room for its layers and experts.
fn holds(all: &[Candidate], text: &str, machine: &Machine) {
    let strategy = text.parse::<Strategy>().unwrap();
    assert!(strategy.place_notes(24).is_empty() && strategy.notes().iter().all(|n| n.starts_with("i8 is")), "{text}");
    let placed = strategy.assign(24).unwrap();
    let of = |p: &PlacedLayers| {
        let dtype = format!("fp16{}", p.quant.unwrap_or(""));
        &all.iter().find(|c| c.dtype == dtype).unwrap().footprint
    };
    for (id, bytes) in by_device(&placed, &of) {
        let free = machine.adapters.iter().find(|(known, _)| *known == id).map_or(machine.host, |(_, free)| *free);
        assert!(bytes.total() <= usable(free), "{text}: {id} {bytes:?}");
    }
}

#[test]
fn a_format_is_narrowed_before_a_second_device_is_taken() {
    // In f16, the model has 2700 MB of weights, 25 MB of state and 50 MB of activations.
    assert_eq!(chosen(&[2775], 0), "gpu:0 fp16");
    assert_eq!(chosen(&[2774], 0), "gpu:0 fp16i8");
    assert_eq!(chosen(&[1506, 9000], 0), "gpu:0 fp16i8");
    assert_eq!(chosen(&[1505, 9000], 0), "gpu:0 fp16i4");
    assert_eq!(chosen(&[858], 0), "gpu:0 fp16i4");
}

#[test]
fn adapters_share_what_one_does_not_hold() {
    assert_eq!(chosen(&[800, 9000], 0), "gpu:0 fp16 *7 -> gpu:1 fp16");
    assert_eq!(chosen(&[800, 800], 9000), "gpu:0 fp16i4 *24 -> gpu:1 fp16i4");
    assert_eq!(chosen(&[90, 800, 9000], 0), "gpu:1 fp16 *7 -> gpu:2 fp16", "the first holds no layer in f16");
}

#[test]
fn layers_that_fit_on_no_adapter_are_streamed_or_run_on_the_cpu() {
    assert_eq!(chosen(&[500], 9000), "gpu:0 fp16i4 *8+");
    // Two adapters hold most layers. Running the few remaining layers on the CPU is faster than streaming with one adapter.
    assert_eq!(chosen(&[400, 400], 9000), "gpu:0 fp16i4 *11 -> gpu:1 fp16i4 *11 -> cpu fp16i4");
    let mut slow = machine(&[500], 9000);
    slow.speeds.bus = 1e9;
    let fitted = fit(&candidates(), &slow).unwrap();
    assert_eq!(fitted.strategy, "gpu:0 fp16i4 *15 -> cpu fp16i4");
    assert!(fitted.why.starts_with("331.88 MiB of the weights fit on no GPU"), "{}", fitted.why);
    // The host has room for the CPU's part, but not for the streamed layers.
    assert_eq!(chosen(&[500], 450), "gpu:0 fp16i4 *15 -> cpu fp16i4");
    assert!(fit(&candidates(), &machine(&[500], 450)).unwrap().why.ends_with("because there is no room to stream"));
    // If a small adapter comes before a large one, the large adapter streams.
    assert_eq!(chosen(&[90, 500], 9000), "gpu:1 fp16i4 *8+");
}

/// Returns a model with experts in three weight formats. In f16, the model has 24 layers of 100 MB and a head of 300 MB. The last 22 layers also have
/// 700 MB of experts each. A token uses 70 MB of a layer's experts. The sizes of states and activations are the same as in [`candidates`].
fn with_experts() -> Vec<Candidate> {
    let candidate = |dtype: &str, percent: u64| {
        let of = |mb: u64| mb * MB * percent / 100;
        let layer = |dense: u64, experts: u64| LayerBytes {
            weights: of(dense + experts),
            experts: of(experts),
            idle: of(experts / 10 * 9),
            slots: MB,
            ..LayerBytes::default()
        };
        let layers = (0..24).map(|i| layer(100, if i < 2 { 0 } else { 700 })).chain([layer(300, 0)]).collect();
        Candidate { dtype: dtype.into(), footprint: Footprint { layers, scratch: 50 * MB } }
    };
    vec![candidate("fp16", 100), candidate("fp16i8", 53), candidate("fp16i4", 29)]
}

#[test]
fn experts_that_fit_on_no_adapter_run_on_the_cpu() {
    let chosen = |adapters: &[u64], host| {
        let machine = machine(adapters, host);
        let fitted = fit(&with_experts(), &machine).unwrap();
        holds(&with_experts(), &fitted.strategy, &machine);
        fitted.strategy
    };
    // In i4, the model has 783 MB of weights outside of experts and 4466 MB of experts, 203 MB in each of 22 layers. States take 25 MB and
    // activations 50 MB.
    assert_eq!(chosen(&[5324], 9000), "gpu:0 fp16i4");
    assert_eq!(chosen(&[5323], 9000), "gpu:0 fp16i4, experts cpu *1");
    assert_eq!(chosen(&[5121], 9000), "gpu:0 fp16i4, experts cpu *1");
    assert_eq!(chosen(&[5120], 9000), "gpu:0 fp16i4, experts cpu *2");
    assert_eq!(chosen(&[1061], 9000), "gpu:0 fp16i4, experts cpu *21");
    assert_eq!(chosen(&[858], 9000), "gpu:0 fp16i4, experts cpu");
    // Without room for all weights outside of experts, whole layers run on the CPU.
    assert!(chosen(&[857], 9000).ends_with(" -> cpu fp16i4"), "{}", chosen(&[857], 9000));
    // The larger adapter has more of the experts.
    assert_eq!(chosen(&[1000, 1100], 9000), "gpu:1 fp16i4, experts cpu *21");
    // Together, two adapters hold all.
    assert_eq!(chosen(&[4000, 4000], 9000), "gpu:0 fp16i4 *18 -> gpu:1 fp16i4");
    let why = fit(&with_experts(), &machine(&[858], 9000)).unwrap().why;
    assert_eq!(why, "4.16 GiB of the experts' weights fit on no GPU and run on the CPU, which takes less time than streaming");
    // The host has no room for the experts.
    assert_eq!(fit(&with_experts(), &machine(&[858], 900)).unwrap_err().kind, Kind::Memory);
}

/// On the CPU, a token reads a tenth of the experts. Streaming copies them all.
#[test]
fn only_the_experts_of_a_token_count_as_read() {
    let mut machine = machine(&[857], 9000);
    // Streaming reads 4.96 GB at 12 GB/s, the CPU reads 1.02 GB.
    for (cpu, is_streamed) in [(5e9, false), (0.5e9, true)] {
        machine.speeds.cpu = cpu;
        assert_eq!(fit(&with_experts(), &machine).unwrap().strategy.ends_with('+'), is_streamed, "{cpu}");
    }
}

#[test]
fn without_an_adapter_the_cpu_has_all() {
    assert_eq!(chosen(&[], 9000), "cpu fp16");
    assert_eq!(chosen(&[], 2000), "cpu fp16i8");
    assert_eq!(chosen(&[10], 900), "cpu fp16i4");
}

#[test]
fn an_adapter_that_reports_no_memory_has_room() {
    let machine = Machine { adapters: vec![("gpu:0".into(), None)], software: None, host: None, speeds: Speeds::default() };
    assert_eq!(fit(&candidates(), &machine).unwrap().strategy, "gpu:0 fp16");
}

#[test]
fn the_reason_is_true_of_the_machine() {
    let why = |machine: &Machine| fit(&candidates(), machine).unwrap().why;
    let of = |adapters: &[u64], host| why(&machine(adapters, host));
    assert_eq!(of(&[9000], 0), "all layers fit on gpu:0: 2.58 GiB of 8.38 GiB to use");
    assert_eq!(of(&[2000], 0), "all layers fit on gpu:0: 1.40 GiB of 1.86 GiB to use; fp16 would need 2.58 GiB");
    assert_eq!(of(&[800, 800], 0), "gpu:0 has 762.94 MiB to use, and the model needs 818.25 MiB in fp16i4: the GPUs hold it together");
    assert_eq!(of(&[], 9000), "no GPU was found; all layers fit on the host: 2.58 GiB of 8.38 GiB to use");
    assert_eq!(of(&[10], 9000), "no GPU has room for a layer; all layers fit on the host: 2.58 GiB of 8.38 GiB to use");
    let software = Machine { software: Some("llvmpipe".into()), host: None, ..machine(&[], 0) };
    let want = "the only adapter is llvmpipe, a software adapter, which is slower than the CPU; all layers fit on the host: 2.58 GiB";
    assert_eq!(why(&software), want);
    let silent = Machine { adapters: vec![("gpu:0".into(), None)], ..machine(&[], 0) };
    assert_eq!(why(&silent), "gpu:0 does not report its free memory, so the model is expected to fit");
}

#[test]
fn a_model_that_fits_nowhere_is_an_error_with_the_free_memory() {
    let e = fit(&candidates(), &machine(&[100], 100)).unwrap_err();
    assert_eq!(e.kind, Kind::Memory);
    assert!(
        e.message
            .starts_with("the model needs 818.25 MiB of memory even with weights in fp16i4; free memory: gpu:0 374.79 MiB, cpu 374.79 MiB"),
        "{e}"
    );
    assert_eq!(fit(&[], &machine(&[100], 100)).unwrap_err().kind, Kind::Usage);
}

#[test]
fn every_choice_holds() {
    let sizes = [0, 60, 90, 150, 400, 500, 700, 850, 1200, 3000];
    for adapters in [1, 2, 3] {
        for n in 0..sizes.len().pow(adapters) {
            let of: Vec<u64> = (0..adapters).map(|i| sizes[n / sizes.len().pow(i) % sizes.len()]).collect();
            for host in [0, 300, 1000, 4000] {
                let machine = machine(&of, host);
                match fit(&candidates(), &machine) {
                    Ok(fitted) => holds(&candidates(), &fitted.strategy, &machine),
                    Err(e) => assert!(of.iter().sum::<u64>() + host < 2000 && e.kind == Kind::Memory, "{of:?} {host}: {e}"),
                }
            }
        }
    }
}
