//! Compares every format with plain arithmetic.

use super::product::{Instructions, Product, Weights, products};
use super::rounded::Dots;
use super::*;

/// Returns deterministic weights of many magnitudes.
fn numbers(n: usize) -> Vec<f32> {
    (0..n).map(|i| ((i * 2654435761 % 1000) as f32 - 500.0) * 1.5f32.powi((i % 9) as i32 - 6)).collect()
}

fn affine(format: &dyn Format, numbers: &[f32], rows: usize, k: usize) -> Option<Affine> {
    let mut survey = (format.scaling() == Scaling::Affine).then(|| Survey::new(rows, k))?;
    numbers.chunks_exact(k).enumerate().for_each(|(i, row)| survey.first(i, row));
    numbers.chunks_exact(k).enumerate().for_each(|(i, row)| survey.second(i, row));
    Some(survey.done().unwrap())
}

/// Encodes a whole matrix. Returns its codes and its scales.
fn encoded(format: &dyn Format, axis: Axis, numbers: &[f32], rows: usize, k: usize) -> (Vec<u8>, Scales) {
    let affine = affine(format, numbers, rows, k);
    let mut out = EncodedRows::default();
    RowEncoder { affine: affine.as_ref(), ..RowEncoder::new(format, axis) }.encode(0, &mut numbers.to_vec(), k, &mut out).unwrap();
    if let Some(affine) = affine {
        out.scales = affine.stored(0, rows, k);
    }
    (out.codes, Scales::new(format, axis, &out.scales, rows))
}

/// Returns the directions that blocks of the format can have.
fn axes(format: &dyn Format) -> &'static [Axis] {
    if format.file_blocks().is_some() { &[Axis::Row] } else { &[Axis::Row, Axis::Column] }
}

/// Returns the largest error that the weight `x` may have after encoding and decoding. `most` is the largest magnitude in the block of `x`.
fn bound(format: &dyn Format, x: f32, most: f32) -> f32 {
    match format.name() {
        "f32" => 0.0,
        "f16" => x.abs() / 2048.0 + 1e-7,
        "i8" | "q8_0" => most * (0.5 / 127.0 + 2e-3),
        // Half of the widest gap in the table.
        "nf4" => most * 0.153,
        // The bounds are more than half a step: the scales minimise the squared error of a block, not its largest error.
        "i4" | "q4_0" | "q4_1" | "iq4_nl" | "iq4_xs" => most * (1.6 / 8.0),
        "q6_k" => most * (1.6 / 32.0),
        "q5_0" | "q5_1" | "q5_k" => most * (2.0 / 16.0),
        "q4_k" => most * (2.4 / 8.0),
        "q3_k" => most * (2.4 / 4.0),
        "q2_k" => most * (2.4 / 2.0),
        other => panic!("{other} has no bound"),
    }
}

#[test]
fn decoded_numbers_are_near_the_encoded_ones_along_both_axes() {
    for &format in FORMATS.iter().filter(|f| f.scaling() != Scaling::Affine) {
        for &axis in axes(format) {
            for (rows, k) in [(1, 8), (3, 40), (64, 64), (70, 72), (130, 1000)] {
                let w = numbers(rows * k);
                let (codes, scales) = encoded(format, axis, &w, rows, k);
                assert_eq!(codes.len(), format.size_bytes(rows * k), "{format:?}");
                let weights = Weights { format, k, codes: &codes, is_striped: false, scales: &scales };
                let mut row = vec![0.0; k];
                for i in 0..rows {
                    weights.row(i, &mut row);
                    for j in 0..k {
                        let len = format.block().max(WEIGHTS_PER_BLOCK);
                        let block = |n: usize, of: usize| n / len * len..of.min(n / len * len + len);
                        let most = match axis {
                            Axis::Row => block(j, k).map(|j| w[i * k + j].abs()).fold(0.0, f32::max),
                            Axis::Column => block(i, rows).map(|i| w[i * k + j].abs()).fold(0.0, f32::max),
                        };
                        let (found, expected) = (row[j], w[i * k + j]);
                        let bound = bound(format, expected, most);
                        assert!((found - expected).abs() <= bound, "{format:?} {axis:?} {rows}x{k} {i},{j}: {found} for {expected}");
                    }
                }
            }
        }
    }
}

#[test]
fn i8rc_is_off_by_half_a_step_of_row_and_column() {
    let format = find("i8rc").unwrap();
    for (rows, k) in [(5, 8), (8, 8), (70, 40), (40, 72)] {
        let mut w: Vec<f32> = numbers(rows * k).iter().map(|x| x / 100.0).collect();
        // The test matrix has a constant row and a constant column.
        w[k..2 * k].fill(0.25);
        (0..rows).for_each(|i| w[i * k + 3] = -0.5);
        let (codes, scales) = encoded(format, Axis::Row, &w, rows, k);
        let affine = affine(format, &w, rows, k).unwrap();
        let transposed: Vec<f32> = (0..k * rows).map(|i| w[i % rows * k + i / rows]).collect();
        let mut row = vec![0.0; k];
        for i in 0..rows {
            Weights { format, k, codes: &codes, is_striped: false, scales: &scales }.row(i, &mut row);
            for j in 0..k {
                let rounding = 2e-3 * (affine.rx[i] * affine.ry[j] + affine.mx[i].abs() + affine.my[j].abs());
                let bound = affine.rx[i] * affine.ry[j] / 512.0 + rounding;
                assert!((row[j] - w[i * k + j]).abs() <= bound, "{rows}x{k} {i},{j}: {} for {}", row[j], w[i * k + j]);
            }
        }
        // Every number has the same code in the transposed matrix.
        let mut columns = EncodedRows::default();
        let affine = affine.transposed();
        let encoder = RowEncoder { affine: Some(&affine), ..RowEncoder::new(format, Axis::Row) };
        encoder.encode(0, &mut transposed.clone(), rows, &mut columns).unwrap();
        assert!((0..rows * k).all(|i| columns.codes[i % k * rows + i / k] == codes[i]), "{rows}x{k}");
    }
}

#[test]
fn products_agree_with_a_plain_loop() {
    for &format in FORMATS {
        for &axis in axes(format) {
            for (rows, k, n) in [(1, 8, 1), (33, 24, 5), (70, 40, 6), (65, 72, 37), (130, 1000, 3), (31, 2056, 7), (5, 1024, 13)] {
                let w: Vec<f32> = (0..rows * k).map(|i| ((i * 37 % 101) as f32 - 50.0) / 64.0).collect();
                let (codes, scales) = encoded(format, axis, &w, rows, k);
                let weights = Weights { format, k, codes: &codes, is_striped: false, scales: &scales };
                // x is shorter than a stored row, because padding must not contribute to the product.
                let x: Vec<Vec<f32>> = (0..n).map(|t| (0..k - 3).map(|i| ((i * 13 + t * 7) % 29) as f32 / 16.0 - 0.9).collect()).collect();
                let x: Vec<&[f32]> = x.iter().map(Vec::as_slice).collect();
                let found = products(&[Product { weights, rows, x: x.clone(), rounded: false }]);
                let mut row = vec![0.0; k];
                for t in 0..n {
                    let found: Vec<f32> = found[0].of(t).flatten().copied().collect();
                    assert_eq!(found.len(), rows);
                    for (r, &found) in found.iter().enumerate() {
                        weights.row(r, &mut row);
                        let terms = || row.iter().zip(x[t]).map(|(&w, &x)| f64::from(w) * f64::from(x));
                        let (expected, scale) = (terms().sum::<f64>(), terms().map(f64::abs).sum::<f64>());
                        let error = (f64::from(found) - expected).abs();
                        // Offsets of rows and of columns can nearly cancel each other, which makes rounding errors larger relative to the weights.
                        let bound = if format.scaling() == Scaling::Affine { 1e-5 } else { 2e-6 };
                        assert!(error <= bound * scale.max(1.0), "{format:?} {axis:?} {rows}x{k} {n}: {found} {expected}");
                    }
                }
            }
        }
    }
}

#[test]
fn rows_that_are_not_padded_keep_their_end() {
    for format in floats() {
        let (w, x) = (numbers(21), numbers(40));
        let mut codes = Vec::new();
        format.encode(&w, &mut codes).unwrap();
        let mut decoded = vec![0.0; 21];
        format.decode(&codes, &mut decoded);
        let expected: f32 = decoded.iter().zip(&x[19..]).map(|(w, x)| w * x).sum();
        let weights = Weights { format, k: 21, codes: &codes, is_striped: false, scales: &Scales::None };
        let found = products(&[Product { weights, rows: 1, x: vec![&x[19..]], rounded: false }])[0].of(0).next().unwrap()[0];
        assert!((found - expected).abs() <= 1e-3 * expected.abs(), "{format:?}");
    }
}

#[test]
fn decoders_agree_with_the_portable_one() {
    fn check<C: units::Codes>(format: &'static dyn Format) {
        for (n, missing) in [(8, 0), (64, 0), (200, 0), (1000, 0), (40, 3), (136, 1)] {
            // Clears one bit of each float's exponent, so that no float is NaN. Other formats are tested with all codes.
            let bits = if format.scaling() == Scaling::None { 0xfb } else { 0xff };
            let codes: Vec<u8> = (0..format.size_bytes(n)).map(|i| (i * 89 % 256) as u8 & bits).collect();
            let len = format.blocks().sub;
            // Products with these factors are exact, as they are with all scales of the formats.
            let exact = |n: usize| numbers(n).iter().map(|x| half::f16::from_f32(*x).to_f32()).collect::<Vec<_>>();
            let (factors, minima, each) = (exact(n.div_ceil(len)), exact(n.div_ceil(len)), numbers(n));
            let minima: &[f32] = if C::HAS_MINIMA { &minima } else { &[] };
            for factors in [Factors::One, Factors::Blocks(Subs { factors: &factors, minima, len }), Factors::Each(&each)] {
                let (mut expected, mut found) = (vec![0.0; n - missing], vec![0.0; n - missing]);
                codes::portable::<C>(&codes, factors, &mut expected);
                for isa in isa::Isa::all() {
                    codes::decode_with::<C>(isa, &codes, factors, &mut found, &[]);
                    assert_eq!(found, expected, "{isa:?} {format:?} {n} {factors:?}");
                }
            }
        }
    }
    check::<f16::F16>(&f16::F16);
    check::<f32::F32>(&f32::F32);
    check::<i8::I8>(&i8::I8);
    check::<i4::I4>(&i4::I4);
    check::<nf4::Nf4>(&nf4::Nf4);
    check::<i8rc::I8rc>(&i8rc::I8rc);
    fn check_gguf<T: gguf::BlockType>() {
        check::<T::Codes>(find(T::NAME).unwrap());
    }
    check_gguf::<gguf::Q8_0>();
    check_gguf::<gguf::Q6K>();
    check_gguf::<gguf::Q5K>();
    check_gguf::<gguf::Q5_0>();
    check_gguf::<gguf::Q5_1>();
    check_gguf::<gguf::Q4K>();
    check_gguf::<gguf::Q4_0>();
    check_gguf::<gguf::Q4_1>();
    check_gguf::<gguf::Iq4Nl>();
    check_gguf::<gguf::Iq4Xs>();
    check_gguf::<gguf::Q3K>();
    check_gguf::<gguf::Q2K>();
}

/// Returns 17 rows of activations for a matrix with 1200 columns, and encoded weights of 45 rows.
fn example(format: &'static dyn Format, axis: Axis) -> (Vec<u8>, Scales, Vec<f32>) {
    let weights: Vec<f32> = (0..ROWS * K).map(|i| (i * 37 % 101) as f32 / 64.0 - 0.8).collect();
    let (codes, scales) = encoded(format, axis, &weights, ROWS, K);
    (codes, scales, (0..17 * K).map(|i| (i * 13 % 29) as f32 / 16.0 - 0.9).collect())
}

const ROWS: usize = 45;
const K: usize = 1200;

#[test]
fn products_do_not_depend_on_neighbours_or_instructions() {
    let best = Instructions { isa: isa::Isa::best(), dots: Dots::best() };
    for (&format, axis) in FORMATS.iter().flat_map(|f| axes(*f).iter().map(move |axis| (f, *axis))) {
        let (codes, scales, x) = example(format, axis);
        let weights = Weights { format, k: K, codes: &codes, is_striped: false, scales: &scales };
        let x: Vec<&[f32]> = x.chunks_exact(K).collect();
        for rounded in [false, true] {
            if rounded && !weights.are_whole() {
                continue;
            }
            let sums =
                |with, x: &[&[f32]]| product::products_with(with, &[Product { weights, rows: ROWS, x: x.to_vec(), rounded }]).remove(0);
            let whole = sums(best, &x);
            for tokens in [1, 2, 3, 4, 5, 6, 7, 12, 13] {
                for (first, x) in x.chunks(tokens).enumerate() {
                    let part = sums(best, x);
                    for t in 0..x.len() {
                        assert!(part.of(t).eq(whole.of(first * tokens + t)), "{format:?} {axis:?} {rounded} {tokens} {first} {t}");
                    }
                }
            }
            // Fused instructions give the same bits. The plain loop of floats may round each product before adding it, and then its sums differ.
            for isa in isa::Isa::all().into_iter().filter(|isa| rounded || isa::FUSED || *isa != isa::Isa::Plain) {
                for dots in if rounded { Dots::all() } else { vec![Dots::Plain] } {
                    for x in [&x[..], &x[..1]] {
                        let found = sums(Instructions { isa, dots }, x);
                        assert!((0..x.len()).all(|t| found.of(t).eq(whole.of(t))), "{format:?} {axis:?} {isa:?} {dots:?}");
                    }
                }
            }
        }
    }
}

/// The order in which codes are stored changes no bit, with any instructions.
#[test]
fn striped_codes_give_the_same_products() {
    let mut seen = 0;
    for &format in FORMATS {
        let (codes, scales, x) = example(format, Axis::Row);
        let row_bytes = format.size_bytes(K);
        let Some(strip_bytes) = product::strip_bytes(format, row_bytes) else { continue };
        seen += 1;
        let mut striped = vec![0; ROWS.div_ceil(product::STRIPED_ROWS) * strip_bytes];
        product::stripe(format, row_bytes, &codes, &mut striped);
        let weights = Weights { format, k: K, codes: &codes, is_striped: false, scales: &scales };
        let Scales::Rows(items, layout) = &scales else { unreachable!("striped formats have blocks along rows") };
        let scales = Scales::Rows(product::stripe_items(items, layout.per_row(K)), *layout);
        let stored = Weights { codes: &striped, is_striped: true, scales: &scales, ..weights };
        for width in [K, K - 3, K - 19] {
            let x: Vec<&[f32]> = x.chunks_exact(K).map(|x| &x[..width]).collect();
            for (dots, n) in Dots::all().into_iter().flat_map(|dots| [1, 2, 3, 4, 5, 17].map(|n| (dots, n))) {
                let sums = |weights| {
                    let product = Product { weights, rows: ROWS, x: x[..n].to_vec(), rounded: true };
                    product::products_with(Instructions { isa: isa::Isa::best(), dots }, &[product]).remove(0)
                };
                let (found, expected) = (sums(stored), sums(weights));
                assert!((0..n).all(|t| found.of(t).eq(expected.of(t))), "{format:?} {dots:?} {width} {n}");
            }
        }
    }
    assert!(seen == if Dots::all().len() > 1 && cfg!(target_arch = "x86_64") { 14 } else { 0 }, "{seen}");
}

/// The products of whole numbers agree with decoded weights times rounded activations.
#[test]
fn rounded_products_agree_with_a_plain_loop() {
    let mut seen = 0;
    for &format in FORMATS {
        let (codes, scales, mut x) = example(format, Axis::Row);
        let weights = Weights { format, k: K, codes: &codes, is_striped: false, scales: &scales };
        if !weights.are_whole() {
            continue;
        }
        seen += 1;
        x[5] = 100.0;
        // Each row of activations is shorter than a row of weights, because padding must not contribute to the product.
        let x: Vec<&[f32]> = x.chunks_exact(K).map(|x| &x[..K - 3]).collect();
        let found = products(&[Product { weights, rows: ROWS, x: x.clone(), rounded: true }]).remove(0);
        let mut row = vec![0.0; K];
        for (t, x) in x.iter().enumerate() {
            let rounded: Vec<f64> = x
                .chunks(32)
                .flat_map(|block| {
                    let d = block.iter().fold(0f32, |most, x| most.max(x.abs())) / 127.0;
                    block.iter().map(move |x| f64::from(d) * f64::from((x / d).round()))
                })
                .collect();
            for (r, &found) in found.of(t).flatten().enumerate() {
                weights.row(r, &mut row);
                let terms = || row.iter().zip(&rounded).map(|(&w, x)| f64::from(w) * x);
                let (expected, scale) = (terms().sum::<f64>(), terms().map(f64::abs).sum::<f64>());
                assert!((f64::from(found) - expected).abs() <= 1e-5 * scale, "{format:?} {t} {r}: {found} for {expected}");
            }
        }
    }
    assert_eq!(seen, 14);
}

/// Rounded products have the same bits on every CPU: these numbers were computed with AVX-512 and with NEON.
#[test]
fn rounded_products_have_the_same_bits_on_every_cpu() {
    for (name, expected) in
        [("i8", 0xe0a8f0a6u32), ("i4", 0x9178d6e3), ("q8_0", 0x355451fd), ("q6_k", 0x9f276d07), ("q4_k", 0x069e81b3), ("q2_k", 0xc720c343)]
    {
        let format = find(name).unwrap();
        let (codes, scales, x) = example(format, Axis::Row);
        let weights = Weights { format, k: K, codes: &codes, is_striped: false, scales: &scales };
        let found = products(&[Product { weights, rows: ROWS, x: x.chunks_exact(K).collect(), rounded: true }]).remove(0);
        let bits = (0..17).flat_map(|t| found.of(t).flatten()).fold(0u32, |bits, y| bits.rotate_left(5) ^ y.to_bits());
        assert_eq!(bits, expected, "{name}: {bits:#010x}");
    }
}

#[test]
fn an_activation_that_is_not_finite_is_not_hidden() {
    let format = find("q4_k").unwrap();
    let (codes, scales, mut x) = example(format, Axis::Row);
    let weights = Weights { format, k: K, codes: &codes, is_striped: false, scales: &scales };
    x[700] = f32::INFINITY;
    let found = products(&[Product { weights, rows: ROWS, x: vec![&x[..K], &x[K..2 * K]], rounded: true }]).remove(0);
    assert!(found.of(0).flatten().all(|y| y.is_nan()) && found.of(1).flatten().all(|y| y.is_finite()));
}

#[test]
fn all_finite_halves_are_widened_exactly() {
    for half in (0..=u16::MAX).map(half::f16::from_bits).filter(|half| half.is_finite()) {
        assert_eq!(isa::widened(half).to_bits(), half.to_f32().to_bits(), "{half:?}");
    }
}

#[test]
fn a_number_too_large_is_refused() {
    assert!(find("f16").unwrap().encode(&[70000.0; 8], &mut Vec::new()).is_err());
    assert!(find("f17").is_err());
    let within = encode_within(find("f16").unwrap(), &[70000.0, f32::NEG_INFINITY, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
    let mut back = [0.0; 8];
    find("f16").unwrap().decode(&within, &mut back);
    assert_eq!(back[..3], [65504.0, -65504.0, 1.0]);
    for &format in FORMATS.iter().filter(|f| f.scaling() == Scaling::Blocks) {
        for x in [1e12, f32::NAN, f32::INFINITY] {
            let mut row = [1.0, x, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0];
            let error = RowEncoder::new(format, Axis::Row).encode(0, &mut row, 8, &mut EncodedRows::default()).unwrap_err();
            assert!(error.to_string().contains(format.name()), "{error}");
        }
    }
}

#[test]
fn i8rc_refuses_scales_too_large_for_halves() {
    for x in [f32::NAN, f32::INFINITY, -1e5, 3e6] {
        let mut survey = Survey::new(1, 8);
        let row = [0.5, x, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0];
        survey.first(0, &row);
        survey.second(0, &row);
        assert!(survey.done().unwrap_err().to_string().contains("i8rc"), "{x}");
    }
}

#[test]
fn zeros_stay_zero_and_the_smallest_numbers_stay_near() {
    for &format in FORMATS.iter().filter(|f| f.scaling() == Scaling::Blocks) {
        for x in [0.0, 1e-9, 1e-6, 1e-40] {
            let (codes, scales) = encoded(format, Axis::Row, &[x; 8], 1, 8);
            let mut row = [1.0; 8];
            Weights { format, k: 8, codes: &codes, is_striped: false, scales: &scales }.row(0, &mut row);
            // The smallest f16 is the smallest scale, or the smallest scale of small scales.
            let small = if format.blocks().items > format.blocks().floats { 128.0 } else { 1.0 };
            let bound = x * 0.2 + 6e-8 * format.largest().max(1.0) * small;
            assert!(row.iter().all(|y| (y - x).abs() <= bound), "{format:?} {x}: {row:?}");
        }
    }
}

/// Formats with a search for scales make smaller errors where the importance is large. The sum of the weighted errors falls for every one of them.
#[test]
fn importance_moves_errors_to_unimportant_columns() {
    let mut seen = Vec::new();
    for &format in FORMATS {
        let (rows, k) = (24, 512);
        let w = numbers(rows * k);
        let importance: Vec<f32> = (0..k).map(|j| if j % 11 == 3 { 40.0 } else { 0.1 + (j * 37 % 10) as f32 / 50.0 }).collect();
        let error = |importance_used: Option<&[f32]>| -> f64 {
            let mut out = EncodedRows::default();
            RowEncoder { importance: importance_used, ..RowEncoder::new(format, Axis::Row) }
                .encode(0, &mut w.clone(), k, &mut out)
                .unwrap();
            let scales = Scales::new(format, Axis::Row, &out.scales, rows);
            let weights = Weights { format, k, codes: &out.codes, is_striped: false, scales: &scales };
            let mut row = vec![0.0; k];
            let of_row = |i: usize| {
                weights.row(i, &mut row);
                row.iter()
                    .zip(&w[i * k..])
                    .zip(&importance)
                    .map(|((x, w), importance)| f64::from(importance * (x - w).powi(2)))
                    .sum::<f64>()
            };
            (0..rows).map(of_row).sum()
        };
        if format.scaling() != Scaling::Blocks {
            continue;
        }
        let (without, with) = (error(None), error(Some(&importance)));
        match format.name() {
            "i8" | "q8_0" => assert_eq!(without, with, "{format:?}: 8 bits need no search"),
            _ => assert!(with < 0.8 * without, "{format:?}: {with} of {without}"),
        }
        seen.push(format.name());
    }
    assert_eq!(seen.len(), 15, "{seen:?}");
}

/// Numbers of any magnitude are as good as the same numbers with a mean of 1, and columns without importance are encoded, too.
#[test]
fn an_unimportant_block_keeps_its_weights() {
    for &format in FORMATS.iter().filter(|format| format.scaling() == Scaling::Blocks) {
        let k = 512;
        let w: Vec<f32> = numbers(k).iter().map(|x| x / 100.0).collect();
        let importance: Vec<f32> = (0..k).map(|j| if j < 256 { 1e-3 } else { 2.0 }).collect();
        let mut out = EncodedRows::default();
        RowEncoder { importance: Some(&importance), ..RowEncoder::new(format, Axis::Row) }.encode(0, &mut w.clone(), k, &mut out).unwrap();
        let scales = Scales::new(format, Axis::Row, &out.scales, 1);
        let mut row = vec![0.0; k];
        Weights { format, k, codes: &out.codes, is_striped: false, scales: &scales }.row(0, &mut row);
        let energy = |x: &mut dyn Iterator<Item = f32>| x.map(|x| f64::from(x * x)).sum::<f64>();
        let lost = energy(&mut row[..256].iter().zip(&w).map(|(a, b)| a - b)) / energy(&mut w[..256].iter().copied());
        assert!(lost < 0.2, "{format:?}: {lost}");
    }
}
