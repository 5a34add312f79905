//! Tests the decoding of random blocks. The expected elements were computed with the PyPI package `gguf` 0.19 (`gguf.quants.dequantize`) from
//! random bytes with small f16 scales. The blocks of MXFP4, TQ1_0 and TQ2_0 also have odd scales: negative, subnormal, the largest, and infinite.

use super::super::{DType, View};

struct Golden {
    dtype: DType,
    blocks: &'static str,
    /// Some of the expected elements, as (index, value). If a test fails, these elements help to find the mistake.
    some: &'static [(usize, f32)],
    /// The FNV-1a hash of all expected elements as little-endian f32. NaN counts as 0x7fc00000, because machines differ in the bits of a NaN.
    fnv: u64,
}

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap()).collect()
}

fn fnv(numbers: &[f32]) -> u64 {
    let bits = numbers.iter().map(|x| if x.is_nan() { 0x7fc0_0000 } else { x.to_bits() });
    let bytes = bits.flat_map(u32::to_le_bytes);
    bytes.fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3))
}

#[test]
fn every_block_type_decodes_as_its_reference_does() {
    let mut seen = Vec::new();
    for golden in &GOLDEN {
        let bytes = bytes(golden.blocks);
        let (len, size_bytes) = golden.dtype.block().unwrap();
        let view = View::dense(golden.dtype, &[bytes.len() / size_bytes, len], &bytes).unwrap();
        let numbers = view.to_f32().unwrap();
        for &(i, expected) in golden.some {
            assert_eq!(numbers[i], expected, "{} {i}", golden.dtype);
        }
        assert_eq!(fnv(&numbers), golden.fnv, "{}", golden.dtype);
        seen.push(golden.dtype);
    }
    let all = DType::ALL.into_iter().filter(|d| d.size_bytes().is_none());
    assert_eq!(seen, all.collect::<Vec<_>>(), "a block type without a golden block");
}

#[rustfmt::skip] // rustfmt would write one pair per line.
const GOLDEN: [Golden; 15] = [
    Golden {
        dtype: DType::Q8_0,
        blocks: "919ee5f1a94106a0956a26afbccdafe562f90a945f5693c642276ad5ab2da73945510ba999b2d74c3427fa48d732a1df70aca1e926115901dd06f27f\
            8f063cd25e19a621",
        some: &[(0, 0.17313766), (1, 0.09618759), (15, 0.044887543), (16, -0.06412506), (31, -0.519413), (33, 3.073059)],
        fnv: 0x0e8d92112e899167,
    },
    Golden {
        dtype: DType::Q4_0,
        blocks: "7a210ccc85527357a2e64647f03e2fb81f22582e92c58efd5185f0711ef7677a1f132a81",
        some: &[(0, 0.042785645), (1, 0.042785645), (15, -0.06417847), (16, -0.08557129), (31, -0.06417847), (33, -0.29736328)],
        fnv: 0x7b68979324301e55,
    },
    Golden {
        dtype: DType::Q4_1,
        blocks: "c325d6ad3be4ebcab72f45b35223479f6e794d57f1ad191ae9e15a7789781e3721a557d8e5a70329",
        some: &[(0, 0.15638733), (1, -0.001159668), (15, 0.06636047), (16, -0.023666382), (31, 0.021347046), (33, -0.0898571)],
        fnv: 0x2f4329027a45d69b,
    },
    Golden {
        dtype: DType::Q5_0,
        blocks: "40ae63f82f4759778955f6ced681cbea7179ced2c8f8e0ab3472ff70ce369d8385452a44f318337f08cd1e61",
        some: &[(0, -0.87890625), (1, -0.68359375), (15, -0.78125), (16, -0.48828125), (31, 0.09765625), (33, 0.6152344)],
        fnv: 0x565c5e5276565fa1,
    },
    Golden {
        dtype: DType::Q5_1,
        blocks: "f3a9de2c7c9311f85e0429b19f7ec0e156f65a3322e791b80318722c3f0d307d2fbaf400693a179e0d027ed4e58be7a9",
        some: &[(0, -0.574646), (1, -0.10986328), (15, -1.0394287), (16, -0.8999939), (31, -1.1788635), (33, 0.12038803)],
        fnv: 0x4a007b47093961c5,
    },
    Golden {
        dtype: DType::Q4K,
        blocks: "842878ac116e3ab51681c4a374fec70a68b3e4bdc92b387987416c17ec90963ec766888ab4b80eba7c5cfd81121bea9cee1810dfd5169faf26cd7b5c\
            30c8aba44d972299e8c7b41b9a1d2b0f180600a974d63b6332202c998e82b2522c49c4394c7d73265b6aaf61b288fbd0aecfa766616223611e764c93\
            aa388ffabd0a6a6412b209971e2d827076f7e49ab8fa1972",
        some: &[(0, 6.3339844), (31, 8.73291), (32, 9.806641), (100, 26.75061), (255, 12.606201)],
        fnv: 0x59d4a932bc69f394,
    },
    Golden {
        dtype: DType::Q5K,
        blocks: "232356a6d74fc78f2562b8701097a55b5510543d27ed600de3200a6749307fd37899c118819af6674394c3f7aa5f93f32c810a37ca7bf1013ccdf8ab\
            8ab4a6039954e84cbe3b3f7f1183c3df8375c517b4e786a9aadf7488f892b12191387ad86aca56d8531c927b931fe8f16e795b9b331767e712dbe8f5\
            331dd9917f01e64710dd3c25f4d21690a049453135550ec0193a8bed1783d53ec944658d1d28960c44b0382e93438e60788d51e279a131f8",
        some: &[(0, 9.892395), (31, 8.289421), (32, 1.2596588), (100, 3.2788239), (255, 19.100304)],
        fnv: 0x67eb6cef15a24685,
    },
    Golden {
        dtype: DType::Q6K,
        blocks: "130b3ea48135bbfb885d346959a49b36402a4f3dcc489fb6511fbe09e5d72bf834e04fe028ca4991e02abd77279fedc206d2318ca8b8287a6f4b7952\
            09575d7277d456c0f6e81a0e584d730660f56bb8b588475f7066c1cd7109c5079a933ee857db751ff223726ad90697f749f7c61bd80163a8c9a356ba\
            91d79f6d24ee3a14ebd41386d8faef6e9e6c70df41dba9aeb5301e5824b7db0e504f1d970686934768f005af0d5a23ddb465fc5a489b43e76ea3e384\
            969be487a440e7c3ea5204cabbf9bfe8e648caff7704ac26d227a06955ae",
        some: &[(0, 129.7077), (31, 16.621582), (32, 25.723877), (100, 96.167725), (255, -176.60431)],
        fnv: 0xa7338fb650ae8831,
    },
    Golden {
        dtype: DType::Q2K,
        blocks: "8b4ae5f1a94106a0956a26afbccdafe562f90a945f5693c642276ad5ab2da7394551370e99b2d74c3427fa48d732a1df70aca1e926115901dd06f27f\
            8f063cd25e19a621f9bd0ccc21397c1ec795ca7707ac0d2e",
        some: &[(0, -2.140747), (31, -2.2659912), (32, -1.3236084), (100, -0.37756348), (255, -1.6382446)],
        fnv: 0x409521027eca6de5,
    },
    Golden {
        dtype: DType::Q3K,
        blocks: "1f223f411ef7677a1f132a818d882195a100b28d6b236b82481bd9fe630dc3ce3be4ebcab72f45b35223479f6e794d57037e2cfde9e15a7789781e37\
            21a557d8e5a703296dcb81db3f65cf9c1bdc5d1d8fc83f0b0bb4db71be572209851d3d24f4c0cf83fe4363f82f4759772530",
        some: &[(0, 7.770996), (31, -8.2890625), (32, -0.2590332), (100, 0.7770996), (255, -0.0)],
        fnv: 0xb2ecd2e89fc99cf7,
    },
    Golden {
        dtype: DType::IQ4NL,
        blocks: "44a2ff70ce369d8385452a44f318337f08cd22ade118544441317c9311f85e0429b19f7e",
        some: &[(0, -1.382843), (1, 1.5541687), (15, -0.84439087), (16, -1.382843), (31, -0.6485901), (33, -0.080200195)],
        fnv: 0x7054df1e31e8932a,
    },
    Golden {
        dtype: DType::IQ4XS,
        blocks: "ef28307d2fbaf400693a179e0d027ed4e58be7a9ebc28a271d43a78855638144eb6603f7b2725de11fe6ac2f88a68182869793f0aad6ded8116e3ab5\
            1681c4a374fec70a68b3e4bdc92b387987416c17ec90963ec766888ab4b80eba7c5cfd81121bea9cee1810dfd5169faf26cd7b5c30c8aba44d972299\
            e8c7b41b9a1d2b0f180600a974d63b63",
        some: &[(0, -8.518158), (31, 54.385162), (32, -79.78546), (100, 17.80719), (255, 13.567383)],
        fnv: 0x05d310ff492cefc9,
    },
    Golden {
        dtype: DType::MXFP4,
        blocks: "79b00307989547e862d9cab5a6970fad790007f9dfdfa4ab2ea0bcf4b929716a17b701a4d25c196c1570804aac4c6fee743aef02dbbb059ddcc7c95a\
            4e65ad813df38cba7f53365ef148e7edd7850fdc5b3e20d4fbfea5c3a8faef5ec9018c3dba95bfde61e6ff7659a221b88867381680e984ff956466",
        some: &[(0, 0.0), (1, 0.0234375), (15, -0.0078125), (16, -0.0234375), (31, 0.09375), (33, -2.938736e-39)],
        fnv: 0x5a06c010b34620e8,
    },
    Golden {
        dtype: DType::TQ1_0,
        blocks: "09459bd1bed427fd175e0e1e4a3438f397cf6e82c047ea0671979010147e74ef0d002679f95d226ff0d59abcb8f8b4c899f4abc6512a14f28ca755f2\
            07fdfcd0f83840c90690590efb43f8fd8ee8f6ccf6845d4705239412e2fca48d29a73720bcd1d81c332b100216760180bb080b9793929fa6f6db1d08\
            33b7a13ff7f4d2fef4b04c9e0d774f4bee94897696f4de786e54536af3dca6f078ba053300002878fffb6d977b7a95beba8bbc0125db123c1f8b54d2\
            8f004decda37b742895ce91152bbba386a29c4952510626922d6fae790e1cae64f8e007c",
        some: &[(0, -0.049346924), (31, 0.049346924), (32, -0.049346924), (100, -0.049346924), (159, 0.0), (160, -0.049346924), (239, -0.049346924), (240, 0.0), (255, 0.049346924)],
        fnv: 0x482bc1384776f148,
    },
    Golden {
        dtype: DType::TQ2_0,
        blocks: "f91f6d21ee6ce129b10bbe22100c150ce632d76c58d43f96e9124b535e6db1a497b593ddb31acfb1125a0e91f4958410e04de422840edd4845855d2a\
            728d24011f2b183a32950c7b5bda136b1e64c2d228e3ab0b1120e7273554060cc6f251e609f5b8b04f75643ebb848a907ff3d40fb681ef770a4ce530\
            004bd2ddc2a6bb9493c50080a11ed8a6791ef04e679240a9974faebdc4e35dd0e36c929106ef63b8f2a833b0f800d4252f39c8a0932e0df887e59acf\
            8e997ca9dd4a5ff2e63f642943e88205ff030d16ca39b04197d14fe810fc15481b0666ed309c2e32629ff3f121deabd578a44ea45b8446a835705d79\
            a999c39124ddf1139e2b32f3a492ca71dd7210adb4a400fc",
        some: &[(0, 0.0), (31, -0.055633545), (32, 0.055633545), (100, 0.11126709), (127, 0.055633545), (128, 0.11126709), (255, -0.055633545)],
        fnv: 0x39112ee72bb68a6a,
    },
];
