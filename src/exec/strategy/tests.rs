use super::*;
use crate::error::Kind;

fn parse(text: &str) -> Strategy {
    text.parse::<Strategy>().unwrap_or_else(|e| panic!("{text:?}: {e}"))
}

/// Formats each placement as `gpu f16+i8 0..10 5 stay`: the format follows the dtype; `5 stay` is present only if layers are streamed.
fn placed(text: &str, n_layer: usize) -> Vec<String> {
    let show = |p: PlacedLayers| {
        let quant = p.quant.map_or(String::new(), |q| format!("+{q}"));
        let resident = if p.resident == p.layers.len() { String::new() } else { format!(" {} stay", p.resident) };
        let experts = p.experts.map_or(String::new(), |e| {
            let layers = if e.layers == usize::MAX { "all".into() } else { e.layers.to_string() };
            format!(", experts {} {}{} {layers}", e.device, e.dtype, e.quant.map_or(String::new(), |q| format!("+{q}")))
        });
        format!("{} {}{quant} {}..{}{resident}{experts}", p.device, p.dtype, p.layers.start, p.layers.end)
    };
    parse(text).assign(n_layer).unwrap().into_iter().map(show).collect()
}

/// A model of 24 blocks has 25 layers. The package `rwkv` 0.8.32 places the layers in the same way, except where a comment says otherwise.
#[test]
fn layers_are_placed_as_the_package_does() {
    for (text, expected) in [
        ("cuda fp16", &["gpu f16 0..25"][..]),
        ("cpu fp32", &["cpu f32 0..25"]),
        ("cuda:1 fp16i8", &["gpu:1 f16+i8 0..25"]),
        ("cuda fp16 *10 -> cpu fp32", &["gpu f16 0..10", "cpu f32 10..25"]),
        ("cuda:0 fp16 *12 -> cuda:1 fp16i8 -> cpu fp32", &["gpu:0 f16 0..12", "gpu:1 f16+i8 12..18", "cpu f32 18..25"]),
        ("cpu fp32 -> cuda fp16 *10", &["cpu f32 0..15", "gpu f16 15..25"]),
        // Shares are rounded down; the remainder goes to later segments.
        ("cuda fp16 -> cpu fp32", &["gpu f16 0..12", "cpu f32 12..25"]),
        ("cuda:0 fp16 -> cuda:1 fp16 -> cpu fp32", &["gpu:0 f16 0..8", "gpu:1 f16 8..16", "cpu f32 16..25"]),
        // More layers are requested than exist.
        ("cuda fp16 *30", &["gpu f16 0..25"]),
        ("cuda fp16 *30 -> cpu fp32", &["gpu f16 0..25"]),
        ("cuda fp16 *20 -> cpu fp32 *10 -> cuda:1 fp16 *3", &["gpu f16 0..20", "cpu f32 20..25"]),
        ("cuda fp16 -> cpu fp32 *25", &["cpu f32 0..25"]),
        // Fewer layers are requested than exist: the last segment takes the rest.
        ("cuda fp16 *10", &["gpu f16 0..25"]),
        ("cuda fp16 *10 -> cpu fp32 *3", &["gpu f16 0..10", "cpu f32 10..25"]),
        ("cuda fp16 *10 -> cpu fp32 *0", &["gpu f16 0..10", "cpu f32 10..25"]),
        ("cuda fp16 *0", &["gpu f16 0..25"]),
        // One segment streams layers.
        ("cuda fp16 *20+", &["gpu f16 0..25 20 stay"]),
        ("cuda fp16 *0+", &["gpu f16 0..25 0 stay"]),
        ("cuda fp16 *0+ -> cpu fp32 *1", &["gpu f16 0..24 0 stay", "cpu f32 24..25"]),
        ("cuda fp16i8 *10 -> cuda fp16 *0+ -> cpu fp32 *1", &["gpu f16+i8 0..10", "gpu f16 10..24 0 stay", "cpu f32 24..25"]),
        ("cuda fp16 *10+ -> cpu fp32 *5", &["gpu f16 0..20 10 stay", "cpu f32 20..25"]),
        ("cuda fp16 *25+", &["gpu f16 0..25"]),
        ("cuda fp16 *20 -> cuda:1 fp16 *9+", &["gpu f16 0..20", "gpu:1 f16 20..25"]),
        ("cuda fp16 *25 -> cuda:1 fp16 *0+", &["gpu f16 0..25"]),
        ("cuda fp16 *10+ -> cpu fp32", &["gpu f16 0..25 10 stay"]),
        ("cpu fp32 -> cuda fp16 *0+", &["gpu f16 0..25 0 stay"]),
        // The package fails with a division by zero here.
        ("cuda fp16 *0 -> cpu fp32", &["cpu f32 0..25"]),
        ("cuda fp16 -> cpu fp32 *0", &["gpu f16 0..25"]),
        ("cuda fp16 *0 -> cuda:1 fp16 -> cpu fp32", &["gpu:1 f16 0..12", "cpu f32 12..25"]),
    ] {
        assert_eq!(placed(text, 24), expected, "{text}");
    }
}

#[test]
fn experts_have_a_place_of_their_own() {
    for (text, expected) in [
        ("gpu fp16, experts cpu", &["gpu f16 0..25, experts cpu f16 all"][..]),
        ("gpu fp16q4_k,experts cpu fp16i8", &["gpu f16+q4_k 0..25, experts cpu f16+i8 all"]),
        ("gpu fp16i4 , EXPERTS gpu:1 *20", &["gpu f16+i4 0..25, experts gpu:1 f16+i4 20"]),
        ("gpu fp16 *10, experts cpu fp32 *3 -> cpu fp32", &["gpu f16 0..10, experts cpu f32 3", "cpu f32 10..25"]),
        (
            "gpu:0 fp16, experts cpu->gpu:1 fp16, experts cpu",
            &["gpu:0 f16 0..12, experts cpu f16 all", "gpu:1 f16 12..25, experts cpu f16 all"],
        ),
        ("gpu fp16 *30, experts cpu -> gpu:1 fp16, experts cpu", &["gpu f16 0..25, experts cpu f16 all"]),
    ] {
        assert_eq!(placed(text, 24), expected, "{text}");
    }
    assert_eq!(parse("gpu fp16, experts cpu -> gpu fp16").devices(), ["cpu", "gpu"]);
    let notes = parse("gpu fp16, experts cpu bf16i8").notes().to_vec();
    assert!(notes.len() == 2 && notes[0].starts_with("i8 is symmetric") && notes[1].starts_with("bf16: "), "{notes:?}");
}

#[test]
fn fewer_layers_than_segments() {
    let text = "gpu:0 fp16 -> gpu:1 fp16 -> gpu:2 fp16 -> cpu fp32";
    assert_eq!(placed(text, 1), ["gpu:2 f16 0..1", "cpu f32 1..2"]);
    assert_eq!(placed(text, 3), ["gpu:0 f16 0..1", "gpu:1 f16 1..2", "gpu:2 f16 2..3", "cpu f32 3..4"]);
    assert_eq!(placed("gpu:0 fp16 *3 -> gpu:0 fp16", 2), ["gpu:0 f16 0..3"]);
    assert_eq!(parse(text).assign(0).unwrap_err().kind, Kind::Model);
}

#[test]
fn dtypes_and_formats_are_those_of_the_options() {
    for (name, option) in [("fp32", "f32"), ("fp16", "f16"), ("bf16", "auto")] {
        for quant in ["", "i8", "i4", "nf4", "i8rc"] {
            let placed = parse(&format!("cpu {name}{quant}")).assign(1).unwrap();
            assert_eq!((placed[0].dtype.to_string().as_str(), placed[0].quant.unwrap_or("")), (option, quant));
        }
    }
}

#[test]
fn the_normal_form_is_lower_case_with_one_space() {
    for (text, normal) in [
        ("CUDA:01 FP16I8 *010->Cpu fp32", "gpu:1 fp16i8 *10 -> cpu fp32"),
        ("\t mps  fp16   *0+\n->dml bf16nf4  ", "gpu fp16 *0+ -> gpu bf16nf4"),
        ("cuda fp16 *4 ,Experts CPU FP16 *03->cpu fp32,experts  cpu fp16i4", "gpu fp16 *4, experts cpu *3 -> cpu fp32, experts cpu fp16i4"),
    ] {
        assert_eq!(parse(text).to_string(), normal);
    }
}

#[test]
fn a_word_with_another_meaning_is_noted_once() {
    let notes = |text: &str| parse(text).notes().to_vec();
    assert!(notes("gpu fp16i8rc *3 -> cpu fp32i4").is_empty());
    let said = notes("cuda fp16i8 *3 -> cuda:1 fp32i8 -> mps bf16 *1 -> cpu bf16");
    assert_eq!(said.len(), 3, "{said:?}");
    for (note, begin) in said.iter().zip(["cuda and mps mean gpu", "i8 is symmetric", "bf16: weights are stored as f16"]) {
        assert!(note.starts_with(begin), "{note}");
    }
}

#[test]
fn an_unexpected_share_is_noted() {
    for (text, expected) in [
        ("gpu fp16 *10 -> cpu fp32", &[][..]),
        ("gpu fp16 *0 -> cpu fp32", &[]),
        ("gpu fp16 *0+ -> cpu fp32 *1", &[]),
        (
            "gpu fp16 *30 -> cpu fp32",
            &["\"gpu fp16 *30\" gets 25 layers: no layers remain", "\"cpu fp32\" gets 0 layers: no layers remain"],
        ),
        ("gpu fp16 *24 -> cpu fp32 *2", &["\"cpu fp32 *2\" gets 1 layer: no layers remain"]),
        ("gpu fp16 *9 -> cpu fp32 *9", &["\"cpu fp32 *9\" gets 16 layers: as the last segment it takes the rest"]),
        ("gpu fp16 *20 -> gpu:1 fp16 -> cpu fp32 *5", &["\"gpu:1 fp16\" gets 0 layers: no layers remain"]),
        (
            "gpu fp16 *5+ -> cpu fp32",
            &["\"cpu fp32\" gets 0 layers: \"gpu fp16 *5+\" streams all remaining layers; write *N to reserve some"],
        ),
        ("gpu fp16 *25+", &["\"gpu fp16 *25+\" gets 25 layers: none of them is streamed"]),
        ("gpu fp16 *26+", &["\"gpu fp16 *26+\" gets 25 layers: no layers remain"]),
    ] {
        assert_eq!(parse(text).place_notes(24), expected, "{text}");
    }
}

#[test]
fn errors_point_into_the_text() {
    for (text, message, marked) in [
        ("gpu fp16 -> ", "expected a device", "gpu fp16 -> \n            ^"),
        ("-> gpu fp16", "expected a device: gpu, gpu:N or cpu (cuda, mps and dml mean gpu); found \"->\"", "-> gpu fp16\n^^"),
        ("tpu fp16", "expected a device", "tpu fp16\n^^^"),
        ("gpu:x fp16", "expected the number of a GPU after gpu:; found \"x\"", "gpu:x fp16\n    ^"),
        ("cuda: fp16", "expected the number of a GPU after cuda:; found nothing", "cuda: fp16\n     ^"),
        ("gpu:99999999999 fp16", "expected the number", "gpu:99999999999 fp16\n    ^^^^^^^^^^^"),
        ("gpu:+1 fp16", "expected the number", "gpu:+1 fp16\n    ^^"),
        ("cpu:0 fp32", "cpu takes no number, because a machine has only one", "cpu:0 fp32\n   ^^"),
        ("mps:0 fp16", "mps takes no number: only gpu and cuda do", "mps:0 fp16\n   ^^"),
        ("gpu", "expected a number type: fp32, fp16 or bf16; found the end of the strategy", "gpu\n   ^"),
        ("gpu -> cpu fp32", "expected a number type", "gpu -> cpu fp32\n    ^^"),
        ("gpu fp17 *3", "expected a number type", "gpu fp17 *3\n    ^^^^"),
        ("gpu *3", "expected a number type", "gpu *3\n    ^^"),
        (
            "cpu fp32i3",
            "expected one of fp32, fp32i8, fp32i4, fp32nf4, fp32i8rc, fp32q8_0, fp32q6_k, fp32q5_k, fp32q5_0, fp32q5_1, fp32q4_k, fp32q4_0, fp32q4_1, fp32iq4_nl, fp32iq4_xs, fp32q3_k, fp32q2_k; found \"i3\"",
            "cpu fp32i3\n        ^^",
        ),
        ("gpu fp16é", "expected one of fp16,", "gpu fp16é\n        ^"),
        ("gpu fp16*3", "expected a space before *", "gpu fp16*3\n        ^"),
        ("gpu fp16 *", "expected a number of layers after *, as in *10 or *10+; found the end", "gpu fp16 *\n          ^"),
        ("gpu fp16 * 3", "expected a number of layers after *, as in *10 or *10+; found nothing", "gpu fp16 * 3\n          ^"),
        ("gpu fp16 *-3", "expected a number of layers", "gpu fp16 *-3\n          ^^"),
        ("gpu fp16 *3++", "expected a number of layers", "gpu fp16 *3++\n          ^^^"),
        (
            "gpu fp16 *3 + -> cpu fp32",
            "expected -> or the end after the number of layers; found \"+\"",
            "gpu fp16 *3 + -> cpu fp32\n            ^",
        ),
        ("gpu fp16 *3 *4", "expected -> or the end after the number of layers; found \"*4\"", "gpu fp16 *3 *4\n            ^^"),
        (
            "gpu fp16, cpu fp32",
            "expected experts and their device after the comma, as in gpu fp16, experts cpu; found \"cpu\"",
            "gpu fp16, cpu fp32\n          ^^^",
        ),
        (
            "gpu fp16,",
            "expected experts and their device after the comma, as in gpu fp16, experts cpu; found the end",
            "gpu fp16,\n         ^",
        ),
        ("gpu fp16, experts", "expected a device", "gpu fp16, experts\n                 ^"),
        ("gpu fp16, experts fp16", "expected a device", "gpu fp16, experts fp16\n                  ^^^^"),
        ("gpu fp16, experts cpu i8", "expected a number type", "gpu fp16, experts cpu i8\n                      ^^"),
        ("gpu fp16, experts cpu *0", "expected the experts of at least 1 layer", "gpu fp16, experts cpu *0\n                       ^"),
        ("gpu fp16, experts cpu *", "expected a number of layers after *", "gpu fp16, experts cpu *\n                       ^"),
        (
            "gpu fp16, experts gpu *3+",
            "experts on a device of their own cannot be streamed",
            "gpu fp16, experts gpu *3+\n                        ^",
        ),
        (
            "gpu fp16 *3+, experts cpu",
            "a segment that streams layers has their experts on its own device",
            "gpu fp16 *3+, experts cpu\n            ^",
        ),
        (
            "gpu fp16, experts cpu, experts cpu",
            "expected -> or the end after the experts; found \",\"",
            "gpu fp16, experts cpu, experts cpu\n                     ^",
        ),
        (
            "gpu fp16, experts cpu fp32 x",
            "expected -> or the end after the experts; found \"x\"",
            "gpu fp16, experts cpu fp32 x\n                           ^",
        ),
        ("gpu fp16 → cpu fp32", "expected a number of layers (*N or *N+), -> or the end; found \"→\"", "gpu fp16 → cpu fp32\n         ^"),
        ("cpu fp32 *3+", "cpu segments cannot stream layers: all layers of the CPU are in memory", "cpu fp32 *3+\n           ^"),
        (
            "gpu fp16 *3+ -> gpu:1 fp16 *2+",
            "only one segment can have a +, which streams",
            "gpu fp16 *3+ -> gpu:1 fp16 *2+\n                             ^",
        ),
    ] {
        let e = text.parse::<Strategy>().expect_err(text);
        assert!(e.message.starts_with(message), "{text}: {}", e.message);
        assert_eq!(e.excerpt.as_deref(), Some(marked), "{text}");
        let column = marked.lines().nth(1).unwrap().find('^').unwrap() + 1;
        assert_eq!((e.kind, e.field), (Kind::Usage, Some(format!("strategy, column {column}").into())), "{text}");
    }
}

#[test]
fn an_empty_strategy_is_refused_as_a_whole() {
    for text in ["", " ", "\t\n"] {
        let e = text.parse::<Strategy>().expect_err(text);
        assert!(e.message.ends_with("found an empty text") && e.excerpt.is_none(), "{e}");
        assert_eq!((e.kind, e.field_name()), (Kind::Usage, Some("strategy")), "{text:?}");
    }
}

/// A generator of pseudo-random numbers, which are the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.0 >> 33) as usize) % n
    }
}

#[test]
fn random_text_never_panics_and_what_parses_comes_back() {
    const BITS: [&str; 28] = [
        " ", " ", " ", "->", " -> ", "gpu", "gpu:1", "cuda:0", "CPU", "cpu", "mps", "fp16", "fp32", "bf16", "fp16i8", "nf4", "i8rc", "*",
        "*3", "*0+", "*12", "+", "9", ":", "é", "\u{1b}\t", ",", "experts",
    ];
    let mut random = Random(7);
    let mut parsed = 0;
    for round in 0..60_000 {
        // Two of three texts are strategies, some with one wrong piece.
        let text: String = if round % 3 == 0 {
            (0..random.below(9)).map(|_| BITS[random.below(BITS.len())]).collect()
        } else {
            let segments: Vec<String> = (0..1 + random.below(4))
                .map(|_| {
                    let (device, dtype) = (BITS[5 + random.below(6)], BITS[11 + random.below(4)]);
                    let layers = ["", " *3", " *0+", " *30"][random.below(4)];
                    let wrong = if random.below(8) == 0 { BITS[random.below(BITS.len())] } else { "" };
                    let experts = ["", "", ", experts cpu", ",experts gpu:1 fp16nf4 *2"][random.below(4)];
                    format!("{device} {dtype}{layers}{experts}{wrong}")
                })
                .collect();
            segments.join(["->", " -> "][random.below(2)])
        };
        let Ok(strategy) = text.parse::<Strategy>() else { continue };
        parsed += 1;
        let back = parse(&strategy.to_string());
        assert_eq!((&back.segments, back.to_string()), (&strategy.segments, strategy.to_string()), "{text:?}");
        let n_layer = 1 + random.below(40);
        let placed = strategy.assign(n_layer).unwrap();
        assert_eq!(placed, back.assign(n_layer).unwrap());
        // Every layer has one place, in order.
        let ends = placed.iter().map(|p| p.layers.start).chain([n_layer + 1]);
        let starts = std::iter::once(0).chain(placed.iter().map(|p| p.layers.end));
        assert!(ends.eq(starts), "{text:?}");
        assert!(placed.iter().all(|p| !p.layers.is_empty() && p.resident <= p.layers.len()), "{text:?}");
    }
    assert!(parsed > 10_000, "{parsed}");
}
