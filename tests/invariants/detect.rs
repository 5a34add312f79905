//! Tests that the names and shapes of the tensors determine the RWKV version, in any order of the tensors. Also tests that the error for an
//! unsupported variant names the variant.

use wingbeat::low_level::arch::{Shapes, detect};

struct Names(Vec<(&'static str, Vec<usize>)>);

impl Shapes for Names {
    fn shape(&self, tensor: &str) -> Option<Vec<usize>> {
        self.0.iter().find(|(n, _)| *n == tensor).map(|(_, s)| s.clone())
    }
    fn n_layer(&self) -> usize {
        1
    }
    fn find(&self, is: &dyn Fn(&str) -> bool) -> Option<String> {
        self.0.iter().find(|(n, _)| is(n)).map(|(n, _)| n.to_string())
    }
}

/// Returns the tensors of one layer of width 48: the tensors that every version has, and `more`.
fn names(more: &[(&'static str, &[usize])]) -> Names {
    let common: [(&'static str, &[usize]); 3] =
        [("emb.weight", &[40, 48]), ("blocks.0.att.key.weight", &[48, 48]), ("blocks.0.ffn.key.weight", &[100, 48])];
    Names(common.iter().chain(more).map(|(n, s)| (*n, s.to_vec())).collect())
}

const V7: [(&str, &[usize]); 4] =
    [("blocks.0.att.r_k", &[3, 16]), ("blocks.0.att.w1", &[48, 8]), ("blocks.0.att.a1", &[48, 9]), ("blocks.0.att.g1", &[48, 10])];
const V6: [(&str, &[usize]); 5] = [
    ("blocks.0.att.time_maa_w1", &[48, 20]),
    ("blocks.0.att.time_decay_w1", &[48, 7]),
    ("blocks.0.att.time_faaaa", &[3, 16]),
    ("blocks.0.att.ln_x.weight", &[48]),
    ("blocks.0.att.gate.weight", &[48, 48]),
];
const V4: [(&str, &[usize]); 5] = [
    ("blocks.0.att.time_first", &[48]),
    ("blocks.0.att.time_decay", &[48]),
    ("blocks.0.att.time_mix_k", &[1, 1, 48]),
    ("blocks.0.att.time_mix_v", &[1, 1, 48]),
    ("blocks.0.att.time_mix_r", &[1, 1, 48]),
];

/// Returns the time-mix tensors of an RWKV-5. `decay` is the shape of the decay, and `bonus` is the name of the bonus.
fn v5(decay: &'static [usize], bonus: &'static str, gate: bool) -> Vec<(&'static str, &'static [usize])> {
    let mut more: Vec<(&'static str, &'static [usize])> = V4[2..].to_vec();
    more.extend([("blocks.0.att.time_decay", decay), (bonus, decay), ("blocks.0.att.ln_x.weight", &[48][..])]);
    if gate {
        more.push(("blocks.0.att.gate.weight", &[48, 48]));
    }
    more
}

#[test]
fn every_version_is_detected_in_any_order() {
    let (first, faaaa) = ("blocks.0.att.time_first", "blocks.0.att.time_faaaa");
    let rows: Vec<(Names, &str, &str, usize)> = vec![
        (names(&V7), "rwkv7", "x070", 3),
        (names(&V6), "rwkv6", "x060", 3),
        (names(&v5(&[3], first, false)), "rwkv5", "5.0", 3),
        (names(&v5(&[3], faaaa, false)), "rwkv5", "5.0", 3),
        (names(&v5(&[3], first, true)), "rwkv5", "5.1", 3),
        (names(&v5(&[3], faaaa, true)), "rwkv5", "5.1", 3),
        (names(&v5(&[1], faaaa, true)), "rwkv5", "5.1", 1),
        (names(&v5(&[3, 16], faaaa, true)), "rwkv5", "x052", 3),
        (names(&v5(&[1, 48], faaaa, true)), "rwkv5", "x052", 1),
        (names(&V4), "rwkv4", "4.0", 1),
    ];
    for (mut names, architecture, version, n_head) in rows {
        for _ in 0..names.0.len() {
            names.0.rotate_left(1);
            let facts = detect(&names).unwrap().facts();
            assert_eq!((facts.architecture, facts.version, facts.n_head), (architecture, version, n_head));
            assert_eq!((facts.n_layer, facts.n_embd, facts.n_ffn, facts.n_vocab), (1, 48, 100, 40));
            assert_eq!(facts.head_size * n_head, 48);
            names.0.reverse();
            assert_eq!(detect(&names).unwrap().facts(), facts);
        }
    }
}

#[test]
fn ancestors_and_variants_are_refused_by_name() {
    for (tensor, word) in [
        ("blocks.0.ffn.enn.weight", "RWKV-8"),
        ("blocks.0.rosa.rosa_qkv.emb", "ROSA"),
        ("blocks.0.att.gate_w1", "x060a"),
        ("blocks.0.att.time_maa_rkvw_w1", "x060b"),
        ("blocks.7.tiny_q.weight", "tiny_q"),
        ("head_q.weight", "RWKV-2 or 3"),
        ("blocks.0.ffnPre.key.weight", "ffnPre"),
        ("blocks.0.att.qq.weight", "qq"),
        ("blocks.0.ffn.aa.weight", "ffn.aa"),
        ("blocks.0.pos_emb_x", "position"),
        ("blocks.0.att.time_w", "RWKV-1"),
        ("blocks.0.att.time_alpha", "RWKV-1"),
        ("blocks.0.att.time_mix", "RWKV-2"),
    ] {
        for known in [&V7[..], &V6, &v5(&[3, 16], "blocks.0.att.time_faaaa", true), &V4] {
            let mut names = names(known);
            names.0.push((tensor, vec![1]));
            let error = detect(&names).err().unwrap().to_string();
            assert!(error.contains(word), "{error}");
        }
    }
    let mut gap = names(&V4);
    gap.0.push(("blocks.2.att.time_decay", vec![48]));
    assert!(detect(&gap).err().unwrap().to_string().contains("without a gap, found blocks.2"));
    let mut gate = names(&v5(&[3, 16], "blocks.0.att.time_faaaa", false));
    gate.0.push(("blocks.0.att.time_mix_g", vec![1, 1, 48]));
    assert_eq!(detect(&gate).unwrap().facts().version, "x052", "a mix without its gate is a broken 5.2");
    let mut third = names(&V4);
    third.0.iter_mut().find(|(n, _)| n.ends_with("time_first")).unwrap().1 = vec![48, 1];
    assert!(detect(&third).err().unwrap().to_string().contains("RWKV-2 or 3"));
    for (known, tensor, missing) in [(&V7[..], "r_k", "r_k"), (&V6[..], "time_maa_w1", "time_maa_w1")] {
        let mut names = names(known);
        names.0.retain(|(n, _)| !n.ends_with(tensor));
        names
            .0
            .extend([("blocks.0.att.x_r", vec![1, 1, 48]), ("blocks.0.att.k_k", vec![1, 1, 48])].into_iter().filter(|_| tensor == "r_k"));
        assert!(detect(&names).err().unwrap().to_string().contains(missing));
    }
    assert!(detect(&names(&[])).err().unwrap().to_string().contains("unknown model: the file has neither tensors"));
}

#[test]
fn deep_embed_is_a_version_of_7_alone() {
    let with = |known: &[(&'static str, &'static [usize])], s1: &[usize], s_emb: &[usize]| {
        let mut names = names(known);
        names.0.extend([("blocks.0.ffn.s1", s1.to_vec()), ("blocks.0.ffn.s_emb.weight", s_emb.to_vec())]);
        detect(&names).map(|model| model.facts()).map_err(|e| e.to_string())
    };
    let facts = with(&V7, &[48, 32], &[40, 1024]).unwrap();
    assert_eq!((facts.architecture, facts.version), ("rwkv7", "x070a"));
    for (s1, s_emb) in [([48, 32], [39, 1024]), ([48, 32], [40, 1023]), ([48, 0], [40, 0]), ([48, 1 << 40], [40, 0])] {
        let error = with(&V7, &s1, &s_emb).unwrap_err();
        assert!(error.contains("s_emb.weight") && error.contains("expected 40 rows of R x R"), "{error}");
    }
    for known in [&V6[..], &v5(&[3, 16], "blocks.0.att.time_faaaa", true), &V4] {
        assert!(with(known, &[48, 32], &[40, 1024]).unwrap_err().contains("DeepEmbed"));
    }
}

#[test]
fn attention_with_deep_embed_is_a_version_of_7_alone() {
    let s_emb: [(&str, &[usize]); 2] = [("blocks.0.ffn.s1", &[48, 32]), ("blocks.0.ffn.s_emb.weight", &[40, 1024])];
    let with = |known: &[(&'static str, &'static [usize])], more: &[(&'static str, &'static [usize])], qq: usize, k1: usize| {
        let mut names = names(known);
        names.0.extend(more.iter().map(|(name, shape)| (*name, shape.to_vec())));
        let qkv = [("qq.weight", vec![qq, 48]), ("k1", vec![48, k1]), ("v1", vec![48, 32]), ("k_emb.weight", vec![40, qq])];
        names.0.extend(qkv.map(|(name, shape)| (format!("blocks.0.qkv.{name}").leak() as &str, shape)));
        detect(&names).map(|model| model.facts()).map_err(|e| e.to_string())
    };
    let facts = with(&V7, &s_emb, 256, 32).unwrap();
    assert_eq!((facts.architecture, facts.version, facts.context), ("rwkv7", "x070b", Some(4096)));
    assert!(with(&V7, &[], 256, 32).unwrap_err().contains("RWKV-7b without DeepEmbed"));
    for size in [0, 20, 512] {
        let error = with(&V7, &s_emb, size, 32).unwrap_err();
        assert!(
            error.contains(&format!("unsupported size of keys, expected a multiple of 8 from 8 to 256 rows, found {size} rows")),
            "{error}"
        );
    }
    assert!(with(&V7, &s_emb, 256, 0).unwrap_err().contains("found 0 columns in qkv.k1"));
    for known in [&V6[..], &v5(&[3, 16], "blocks.0.att.time_faaaa", true), &V4] {
        assert!(with(known, &[], 256, 32).unwrap_err().contains("a variant of RWKV-4 to 6 with DeepEmbed"));
    }
}

#[test]
fn nonsense_sizes_are_refused() {
    let with = |known: &[(&'static str, &'static [usize])], tensor: &str, shape: &[usize]| {
        let mut names = names(known);
        names.0.iter_mut().find(|(n, _)| n.ends_with(tensor)).unwrap().1 = shape.to_vec();
        detect(&names).err().unwrap_or_else(|| panic!("{tensor} {shape:?} was taken")).to_string()
    };
    assert!(with(&V7, "r_k", &[5, 10]).contains("5 heads"));
    assert!(with(&V7, "r_k", &[0, 0]).contains("0 heads"));
    assert!(with(&V7, "w1", &[48, 0]).contains("rank"));
    assert!(with(&V6, "time_maa_w1", &[48, 21]).contains("low-rank"));
    assert!(with(&V6, "time_faaaa", &[7, 7]).contains("7 heads"));
    assert!(with(&v5(&[3], "blocks.0.att.time_first", false), "time_decay", &[5]).contains("5 heads"));
    assert!(with(&V4, "time_decay", &[0]).contains("48 decays"));
    assert!(with(&V4, "time_decay", &[24]).contains("48 decays"));
    assert!(with(&V4, "att.key.weight", &[1 << 40, 0]).contains("decays"));
    assert!(with(&V7, "att.key.weight", &[1 << 40, 0]).contains("48 columns, found 0"));
    assert!(with(&V4, "emb.weight", &[0, 48]).contains("vocabulary 0"));
    assert!(with(&V4, "emb.weight", &[48]).contains("dimensions"));
}
