//! Tests of the layouts of stacks: pieces and column pieces.

use super::*;

fn stack(format: &'static dyn Format, parts: &[(usize, usize)], has_sparse_input: bool) -> MatrixSpec {
    let part = |&(rows, k): &(usize, usize)| MatrixPart { format, ..MatrixPart::new("w", rows, k) };
    MatrixSpec { parts: parts.iter().map(part).collect(), has_sparse_input, n_used: None }
}

#[test]
fn pieces_cover_every_row_once_and_fit() {
    for &format in quant::FORMATS {
        for is_sparse in [false, true] {
            let spec = stack(format, &[(10, 16), (300, 5), (7, 32)], is_sparse);
            for limit in [1, 64, 100, 1000, 5000, 1 << 20] {
                let mut seen = [0, 0, 0];
                for piece in &spec.pieces(limit) {
                    let mut words = 0;
                    for s in &piece.segments {
                        assert_eq!((s.first_row, s.codes), (seen[s.part], words));
                        seen[s.part] += s.rows;
                        words += s.region.words();
                        assert!(
                            s.region.rows == s.rows
                                && (s.first_row % if spec.axis() == Axis::Column { WEIGHTS_PER_BLOCK } else { PAD } == 0)
                        );
                    }
                    assert_eq!(words, piece.words);
                    let rows: usize = piece.segments.iter().map(|s| s.rows).sum();
                    assert!(piece.size_bytes() <= limit || rows <= WEIGHTS_PER_BLOCK, "{limit} {piece:?}");
                }
                assert_eq!(seen, [10, 300, 7], "{format:?} {limit}");
            }
            assert_eq!(spec.pieces(1 << 20).len(), 1);
        }
    }
    assert_eq!(stack(quant::FORMATS[0], &[(10, 16), (3, 5), (7, 32)], false).size_bytes(), 2 * (160 + 24 + 224));
}

#[test]
fn parts_of_different_formats_are_in_different_pieces() {
    let mut spec = stack(quant::find("i8").unwrap(), &[(10, 16), (3, 5), (7, 32)], false);
    spec.parts[1].format = quant::find("f16").unwrap();
    let formats: Vec<_> = spec.pieces(1 << 20).iter().map(|p| p.format.name()).collect();
    assert_eq!(formats, ["i8", "f16", "i8"]);
}

#[test]
fn columns_cover_every_row_once_and_fit() {
    for &format in quant::FORMATS {
        for (rows, k) in [(1, 1), (8, 3), (20, 7), (300, 64)] {
            let spec = stack(format, &[(rows, k)], true);
            for limit in [1, 100, 2048, 1 << 20] {
                let mut seen = 0;
                for piece in spec.column_pieces(limit) {
                    let [s] = piece.segments.as_slice() else { panic!("{piece:?}") };
                    assert_eq!((s.part, s.codes, s.first_row), (0, 0, seen));
                    assert_eq!((s.region.units, s.region.rows), (s.rows.div_ceil(PAD), k));
                    assert!(piece.size_bytes() <= limit || s.rows <= WEIGHTS_PER_BLOCK, "{limit} {piece:?}");
                    seen += s.rows;
                }
                assert_eq!(seen, rows);
            }
        }
    }
}
