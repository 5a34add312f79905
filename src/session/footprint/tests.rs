use super::*;
use crate::arch;
use crate::error::Kind;
use crate::exec::strategy::Strategy;
use crate::quant;
use crate::tape::TOKENS_PER_BLOCK;
use std::cell::Cell;

fn recorded(name: &str) -> (Tape, usize) {
    let blueprint = arch::synthetic::named(name).unwrap();
    let mut tape = Tape::new();
    blueprint.record(&mut tape);
    (tape, blueprint.facts().n_layer)
}

fn sizes(n_slots: usize, context: usize) -> Sizes {
    let blocks = n_slots * context.div_ceil(TOKENS_PER_BLOCK);
    Sizes { room: Capacity { pages: n_slots + 1, blocks, listed: blocks, context }, tokens: 256, outputs: n_slots }
}

fn footprint(name: &str, sizes: &Sizes) -> Footprint {
    let (tape, _) = recorded(name);
    Footprint::of(&tape, sizes, &as_assigned)
}

#[test]
fn every_byte_belongs_to_a_layer() {
    for name in ["rwkv4-0.1b", "rwkv5-0.4b", "rwkv6-1.5b", "rwkv7-0.1b", "glm4-0.5b"] {
        let (tape, n_layer) = recorded(name);
        let (sizes, f32) = (sizes(3, 1000), quant::find("f32").unwrap());
        let (f16s, f32s) = (Footprint::of(&tape, &sizes, &as_assigned), Footprint::of(&tape, &sizes, &in_format(f32)));
        let vectors: usize = tape.vectors.iter().map(|v| v.parts.len() * v.stride() * 4).sum();
        let matrices: usize = tape.matrices.iter().map(MatrixSpec::size_bytes).sum();
        let all = 0..n_layer + 1;
        assert_eq!(f16s.weights(all.clone()), (matrices + vectors) as u64, "{name}");
        assert_eq!(f32s.weights(all.clone()), (2 * matrices + vectors) as u64, "{name}");
        let states: usize = tape.states.iter().map(|s| s.total(4) * 4).sum();
        assert_eq!(f16s.slots(all), (states + 3 * 16 * tape.block_bytes()) as u64, "{name}");
        // All layers between the first layer and the head are equal. The first layer has the embedding and lacks some matrices of the later
        // layers. The head has no state.
        let middle = &f16s.layers[1..n_layer];
        assert!(middle.iter().all(|l| l.weights == middle[0].weights && l.slots == middle[0].slots && l.slots > 0), "{name}");
        assert!(f16s.layers[n_layer].slots == 0 && f16s.layers[n_layer].weights > 0, "{name}");
        let embedding = tape.matrices.iter().find(|m| m.is_table()).unwrap().size_bytes() as u64;
        assert!(f16s.layers[0].weights.abs_diff(middle[0].weights + embedding) < embedding / 20, "{name}: {:?}", f16s.layers[0]);
    }
}

#[test]
fn only_states_and_activations_grow_with_slots() {
    let (one, eight) = (footprint("rwkv7-0.1b", &sizes(1, 0)), footprint("rwkv7-0.1b", &sizes(8, 0)));
    let all = 0..one.layers.len();
    assert_eq!(one.weights(all.clone()), eight.weights(all.clone()));
    // `sizes` has one page (memory of recurrent states) more than slots: two pages for one slot, nine pages for eight slots.
    assert_eq!(one.slots(all.clone()) * 9, eight.slots(all) * 2);
    assert!(one.scratch < eight.scratch, "more rows of logits");
}

#[test]
fn devices_add_up_their_segments() {
    let footprint = footprint("rwkv7-0.1b", &sizes(1, 0));
    let total = footprint.layers.len();
    let of = |text: &str| by_device(&text.parse::<Strategy>().unwrap().assign(total - 1).unwrap(), &|_| &footprint);
    let whole = of("gpu fp16");
    assert_eq!(whole, [("gpu:0".to_string(), footprint.on_device(0..total, total))]);
    // `gpu` and `gpu:0` are the same adapter. Two groups of layers on one adapter each have their own activations.
    let twice = of("gpu fp16 *3 -> gpu:0 fp16");
    assert_eq!((twice.len(), twice[0].1.total()), (1, whole[0].1.total() + footprint.scratch));
    let split = of("gpu:1 fp16 *3 -> cpu fp16");
    assert_eq!((split[0].0.as_str(), split[1].0.as_str()), ("gpu:1", "cpu"));
    assert_eq!(split[0].1.weights + split[1].1.weights, whole[0].1.weights);
    // Streamed layers are in host memory. The device has buffers for two of these layers.
    let streamed = of("gpu fp16 *2+");
    let largest = footprint.layers[2..].iter().map(|l| l.weights).max().unwrap();
    assert_eq!(streamed[0].1.weights, footprint.weights(0..2) + 2 * largest);
    assert_eq!((streamed[0].1.slots, streamed[1].0.as_str()), (whole[0].1.slots, "cpu"));
    assert_eq!((streamed[1].1.total(), streamed[1].1.weights), (footprint.weights(2..total), footprint.weights(2..total)));
}

#[test]
fn experts_count_on_their_own_device() {
    let (tape, n_layer) = recorded("glm4_moe_lite-4b");
    let footprint = Footprint::of(&tape, &sizes(1, 1000), &as_assigned);
    let total = n_layer + 1;
    // Layer 0 and the head have no experts. A token uses 4 of 64 experts per layer.
    let sparse = &footprint.layers[1..n_layer];
    assert!(footprint.layers[0].experts == 0 && footprint.layers[n_layer].experts == 0);
    assert!(sparse.iter().all(|l| l.experts > l.weights / 2 && l.idle == l.experts / 64 * 60 && *l == sparse[0]), "{:?}", sparse[0]);
    assert_eq!(footprint.experts(0..total, 2).weights, 2 * sparse[0].experts);
    assert_eq!(footprint.experts(0..total, usize::MAX).weights, (n_layer as u64 - 1) * sparse[0].experts);
    let of = |text: &str, footprint: &Footprint| by_device(&text.parse::<Strategy>().unwrap().assign(n_layer).unwrap(), &|_| footprint);
    let whole = footprint.on_device(0..total, total);
    for (text, n) in [("gpu fp16, experts cpu", n_layer as u64 - 1), ("gpu fp16, experts cpu fp16i8 *3", 3)] {
        let [(gpu, rest), (cpu, experts)] = of(text, &footprint).try_into().unwrap();
        assert_eq!((gpu.as_str(), cpu.as_str()), ("gpu:0", "cpu"));
        assert_eq!((experts.weights, experts.slots, experts.scratch), (n * sparse[0].experts, 0, footprint.scratch), "{text}");
        assert_eq!((rest.weights + experts.weights, rest.slots, rest.scratch), (whole.weights, whole.slots, whole.scratch), "{text}");
    }
    // Only matrices on the CPU have mapped bytes, which count for the device of the matrix.
    let experts_of = |n: usize| n as u64 * sparse[0].experts;
    for (text, mapped) in [
        ("gpu fp16, experts cpu", experts_of(n_layer - 1)),
        ("gpu fp16, experts cpu *2", experts_of(2)),
        ("gpu fp16", 0),
        ("gpu:0 fp16, experts gpu:1", 0),
    ] {
        let placed = text.parse::<Strategy>().unwrap().assign(n_layer).unwrap();
        let footprint = footprint.clone().with_mapped(&tape, &placed, &|m| Ok(as_assigned(m))).unwrap();
        let devices = by_device(&placed, &|_| &footprint);
        assert_eq!(devices.iter().map(|(_, bytes)| bytes.mapped).sum::<u64>(), mapped, "{text}");
        assert!(devices.iter().all(|(device, bytes)| bytes.mapped == 0 || device == "cpu" && bytes.weights == 0), "{text}: {devices:?}");
    }
    // With the experts on a GPU, the rest of the layers is mapped.
    let placed = "cpu fp16, experts gpu".parse::<Strategy>().unwrap().assign(n_layer).unwrap();
    let footprint = footprint.clone().with_mapped(&tape, &placed, &|m| Ok(as_assigned(m))).unwrap();
    let [(_, rest), (_, experts)] = by_device(&placed, &|_| &footprint).try_into().unwrap();
    assert_eq!((rest.mapped + rest.weights, experts.mapped), (whole.weights - experts.weights, 0));
    assert!(rest.mapped > rest.weights, "{rest:?}");
}

#[test]
fn mapped_bytes_are_computed_for_layers_on_the_cpu_only() {
    let (tape, n_layer) = recorded("rwkv7-0.1b");
    let asked = Cell::new(0);
    let mapped = |m: &MatrixSpec| {
        asked.set(asked.get() + 1);
        Ok(as_assigned(m))
    };
    for (text, layers) in [("gpu fp16", 0..0), ("cpu fp16", 0..n_layer + 1), ("gpu fp16 *3 -> cpu fp16", 3..n_layer + 1)] {
        let placed = text.parse::<Strategy>().unwrap().assign(n_layer).unwrap();
        asked.set(0);
        let footprint = Footprint::of(&tape, &sizes(1, 0), &as_assigned).with_mapped(&tape, &placed, &mapped).unwrap();
        let own = if layers.is_empty() { &[] } else { &tape.matrices[tape.extent(&layers).matrices] };
        assert_eq!(asked.get(), own.len(), "{text}");
        for (i, layer) in footprint.layers.iter().enumerate() {
            assert_eq!(layer.mapped > 0, layers.contains(&i), "{text}: layer {i}");
        }
        let of = |footprint: &Footprint| by_device(&placed, &|_| footprint).iter().map(|(_, bytes)| bytes.weights).sum::<u64>();
        let all = of(&Footprint::of(&tape, &sizes(1, 0), &as_assigned));
        assert_eq!(all - of(&footprint), own.iter().map(as_assigned).sum::<u64>(), "{text}");
    }
}

#[test]
fn a_device_without_room_is_named_with_its_bytes() {
    const FULL: u64 = (7 << 30) + (250 << 20);
    let bytes = |weights| DeviceBytes { weights, slots: 200 << 20, scratch: 50 << 20, mapped: 0 };
    let devices = [("cpu".to_string(), bytes(1 << 30)), ("gpu:1".to_string(), bytes(7 << 30))];
    let memory = |id: &str| (id == "gpu:1").then_some(Memory { total: 8 << 30, free: Some(FULL - 1) });
    let e = check(&devices, &memory).unwrap_err();
    assert_eq!((e.kind, e.kind.exit_code(), e.place.as_deref()), (Kind::Memory, 4, Some("gpu:1")));
    let text = "the model needs 7.24 GiB (7.00 GiB weights, 200.00 MiB state and caches, 50.00 MiB activations), but this device has 7.24 GiB free";
    assert_eq!(e.message, text);
    let enough = |_: &str| Some(Memory { total: 8 << 30, free: Some(FULL) });
    check(&devices, &enough).unwrap();
    check(&devices, &|_| Some(Memory { total: 1, free: None })).unwrap();
}
