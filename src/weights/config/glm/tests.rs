//! Tests with published configurations and with hostile configurations.

use super::*;
use serde_json::{Value, json};

fn read(config: &Value) -> Result<GlmConfig> {
    GlmConfig::read(ConfigKeys::of(config.as_object().unwrap()))
}

fn with(mut config: Value, more: Value) -> Value {
    config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    config
}

fn without(mut config: Value, key: &str) -> Value {
    config.as_object_mut().unwrap().remove(key).unwrap();
    config
}

/// Returns the original `config.json` of glm-4-9b-chat.
fn glm4_chat() -> Value {
    json!({"model_type": "chatglm", "add_bias_linear": false, "add_qkv_bias": true, "apply_query_key_layer_scaling": true,
        "apply_residual_connection_post_layernorm": false, "attention_dropout": 0.0, "attention_softmax_in_fp32": true,
        "classifier_dropout": null, "ffn_hidden_size": 13696, "fp32_residual_connection": false, "hidden_size": 4096,
        "kv_channels": 128, "layernorm_epsilon": 1.5625e-07, "multi_query_attention": true, "multi_query_group_num": 2,
        "num_attention_heads": 32, "num_hidden_layers": 40, "num_layers": 40, "original_rope": true, "padded_vocab_size": 151552,
        "post_layer_norm": true, "rmsnorm": true, "rope_ratio": 500, "seq_length": 131072, "tie_word_embeddings": false,
        "torch_dtype": "bfloat16", "eos_token_id": [151329, 151336, 151338], "pad_token_id": 151329})
}

/// Returns the `config.json` of ChatGLM3-6B, without `rope_ratio`, with another epsilon than GLM-4, and with only one id that ends a text.
fn chatglm3() -> Value {
    json!({"model_type": "chatglm", "add_bias_linear": false, "add_qkv_bias": true, "apply_residual_connection_post_layernorm": false,
        "ffn_hidden_size": 13696, "hidden_size": 4096, "kv_channels": 128, "layernorm_epsilon": 1e-05, "multi_query_attention": true,
        "multi_query_group_num": 2, "num_attention_heads": 32, "num_layers": 28, "original_rope": true, "padded_vocab_size": 65024,
        "post_layer_norm": true, "rmsnorm": true, "seq_length": 8192, "pre_seq_len": null, "prefix_projection": false,
        "quantization_bit": 0, "tie_word_embeddings": false, "eos_token_id": 2, "pad_token_id": 0, "torch_dtype": "float16"})
}

/// Returns a configuration as `transformers` 5 saves it.
fn hf(model_type: &str) -> Value {
    json!({"model_type": model_type, "architectures": null, "attention_bias": true, "attention_dropout": 0.0, "dtype": "bfloat16",
        "eos_token_id": [151329, 151336, 151338], "head_dim": 128, "hidden_act": "silu", "hidden_size": 4096,
        "intermediate_size": 13696, "max_position_embeddings": 131072, "num_attention_heads": 32, "num_hidden_layers": 40,
        "num_key_value_heads": 2, "pad_token_id": 151329, "rms_norm_eps": 1.5625e-07, "tie_word_embeddings": false, "vocab_size": 151552,
        "rope_parameters": {"partial_rotary_factor": 0.5, "rope_theta": 10000.0, "rope_type": "default"}})
}

fn nine_b(model_type: &str, rope_theta: f64) -> Glm {
    Glm {
        model_type: model_type.into(),
        n_head: 32,
        n_kv_head: 2,
        head_size: 128,
        rotary_size: 64,
        rope_theta,
        rms_norm_eps: 1.5625e-7,
        attention_bias: true,
        max_context: 131072,
        eos: DEFAULT_EOS.to_vec(),
        pad: Some(151329),
        labels: vec![],
        flash: None,
    }
}

#[test]
fn published_configurations_are_read() {
    let said = read(&glm4_chat()).unwrap();
    assert_eq!((said.glm, said.is_tied), (nine_b("chatglm", 5e6), false));
    assert_eq!((said.width.1, said.vocab.1, said.n_layer.1, said.n_ffn.1), (4096, 151552, 40, 13696));
    let three = read(&chatglm3()).unwrap();
    let expected = Glm { rms_norm_eps: 1e-5, max_context: 8192, eos: vec![2], pad: Some(0), ..nine_b("chatglm", 1e4) };
    assert_eq!((three.glm, three.n_layer.1), (expected, 28));
    assert_eq!(read(&hf("glm")).unwrap().glm, nine_b("glm", 1e4));
    assert_eq!(read(&hf("glm4")).unwrap().glm, nine_b("glm4", 1e4));
    // If only the type is present, all other keys have their defaults.
    assert_eq!(read(&json!({"model_type": "glm"})).unwrap().glm, nine_b("glm", 1e4));
    let one_million = read(&with(glm4_chat(), json!({"rope_ratio": 10000, "multi_query_group_num": 4, "seq_length": 1048576}))).unwrap();
    assert_eq!((one_million.glm.rope_theta, one_million.glm.n_kv_head, one_million.glm.max_context), (1e8, 4, 1048576));
    let edge = read(&with(hf("glm"), json!({"rope_parameters": null, "partial_rotary_factor": 1.0, "attention_bias": false}))).unwrap();
    assert_eq!((edge.glm.rotary_size, edge.glm.attention_bias), (128, false));
}

/// Returns the `config.json` of GLM-4.1V-9B-Thinking as it was first published, with the keys of the text half at the top level.
fn vision() -> Value {
    json!({"model_type": "glm4v", "attention_bias": true, "eos_token_id": [151329, 151336, 151338, 151348], "hidden_act": "silu",
        "hidden_size": 4096, "image_token_id": 151343, "intermediate_size": 13696, "max_position_embeddings": 65536,
        "num_attention_heads": 32, "num_hidden_layers": 40, "num_key_value_heads": 2, "pad_token_id": 151329, "partial_rotary_factor": 0.5,
        "rms_norm_eps": 1e-05, "rope_scaling": {"type": "default", "mrope_section": [8, 12, 12]}, "rope_theta": 10000.0,
        "tie_word_embeddings": false, "vocab_size": 151552, "vision_config": {"depth": 24, "hidden_size": 1536}})
}

#[test]
fn the_text_half_of_a_vision_model_is_read_from_both_places() {
    let eos = vec![151329, 151336, 151338, 151348];
    let expected = Glm { rms_norm_eps: 1e-5, max_context: 65536, eos: eos.clone(), ..nine_b("glm4v", 1e4) };
    assert_eq!(read(&vision()).unwrap().glm, expected);
    let mut text = with(without(vision(), "vision_config"), json!({"model_type": "glm4v_text"}));
    for model_type in ["glm4v", "glm46v", "glmga"] {
        let whole = json!({"model_type": model_type, "text_config": text.clone(), "vision_config": {}, "hidden_size": 1536});
        let said = read(&whole).unwrap();
        assert_eq!((said.glm, said.width.1), (expected.clone(), 4096), "{model_type}");
    }
    // Keys that the text half lacks are at the top level.
    for key in ["eos_token_id", "tie_word_embeddings"] {
        text = without(text, key);
    }
    let whole = json!({"model_type": "glm46v", "text_config": text.clone(), "eos_token_id": 7, "tie_word_embeddings": true});
    let said = read(&whole).unwrap();
    assert_eq!((said.glm.eos, said.is_tied), (vec![7], true));
    // Without `partial_rotary_factor`, all channels of a head are rotated. The head size is the width divided by the number of heads.
    let small = json!({"hidden_size": 2048, "rope_scaling": null, "partial_rotary_factor": null, "num_key_value_heads": null});
    let glm = read(&with(vision(), small)).unwrap().glm;
    assert_eq!((glm.head_size, glm.rotary_size, glm.n_kv_head), (64, 64, 32));

    let refuse = |config: Value, expected: &str| {
        let text = read(&config).err().map_or("accepted".to_string(), |e| e.to_string());
        assert!(text.contains(expected), "{expected}: {text}");
    };
    refuse(with(vision(), json!({"head_dim": 64})), "expected head_dim 128");
    refuse(with(vision(), json!({"rope_scaling": {"mrope_section": [8, 12, 13]}})), "expected a mrope_section with the sum 32");
    refuse(json!({"model_type": "glm4v", "text_config": {"model_type": "glm4_moe"}}), "expected model_type glm4v_text in text_config");
    refuse(
        with(vision(), json!({"quantization_config": {"bits": 4}})),
        "the configuration has the key quantization_config, which is not supported",
    );
    refuse(with(vision(), json!({"text_config": 7})), "expected an object as text_config of the configuration, found 7");
}

#[test]
fn rope_is_read_from_both_places_and_the_inner_one_wins() {
    let theta =
        |more| read(&with(without(hf("glm4"), "rope_parameters"), more)).map(|said| (said.glm.rope_theta, said.glm.rotary_size)).unwrap();
    assert_eq!(theta(json!({})), (1e4, 64));
    assert_eq!(theta(json!({"rope_theta": 5000000.0})), (5e6, 64));
    assert_eq!(theta(json!({"rope_parameters": {"rope_type": "default", "rope_theta": 5000000}})), (5e6, 64));
    assert_eq!(
        theta(
            json!({"rope_parameters": {"rope_theta": 5e6, "partial_rotary_factor": 0.25}, "rope_theta": 1e4, "partial_rotary_factor": 1})
        ),
        (5e6, 32)
    );
    assert_eq!(theta(json!({"rope_parameters": {"rope_type": "default"}, "rope_theta": 7e4, "partial_rotary_factor": 1.0})), (7e4, 128));
    assert_eq!(theta(json!({"rope_scaling": null, "rope_parameters": null, "rope_theta": null})), (1e4, 64));
    assert_eq!(theta(json!({"rope_scaling": {"type": "default", "rope_theta": 3e4}, "rope_parameters": {"rope_theta": 1e4}})), (3e4, 64));
    // 10 · 0.25 is rounded down, as by Python's int().
    assert_eq!(theta(json!({"head_dim": 10, "partial_rotary_factor": 0.25})), (1e4, 2));
}

#[test]
fn a_head_need_not_divide_the_width() {
    let size = |config: Value| read(&config).map(|said| said.glm.head_size).map_err(|e| e.to_string());
    let narrow = json!({"hidden_size": 2048, "num_attention_heads": 16});
    assert_eq!(size(with(without(hf("glm"), "head_dim"), narrow.clone())), Ok(128));
    assert_eq!(size(with(hf("glm"), json!({"head_dim": null, "hidden_size": 2048}))), Ok(64));
    assert_eq!(size(with(without(glm4_chat(), "kv_channels"), narrow)), Ok(128));
    assert_eq!(size(with(glm4_chat(), json!({"kv_channels": null, "hidden_size": 2048}))), Ok(64));
    let text = size(with(glm4_chat(), json!({"kv_channels": null, "num_attention_heads": 30}))).unwrap_err();
    assert!(text.contains("sets hidden_size to 4096, which is not a multiple of num_attention_heads (30)"), "{text}");
}

#[test]
fn either_key_of_layers_is_enough_and_the_first_wins() {
    let n = |config: Value| read(&config).unwrap().n_layer.1;
    assert_eq!(n(with(glm4_chat(), json!({"num_layers": 7}))), 7);
    assert_eq!(n(without(glm4_chat(), "num_layers")), 40);
    assert_eq!(n(without(glm4_chat(), "num_hidden_layers")), 40);
}

#[test]
fn no_size_of_chatglm_is_guessed() {
    for key in ["hidden_size", "num_attention_heads", "multi_query_group_num", "padded_vocab_size", "ffn_hidden_size", "seq_length"] {
        let text = read(&without(glm4_chat(), key)).unwrap_err().to_string();
        assert!(text.contains(&format!("the configuration has no {key}")), "{text}");
    }
    let text = read(&without(without(glm4_chat(), "num_layers"), "num_hidden_layers")).unwrap_err().to_string();
    assert!(text.contains("the configuration has no num_layers"), "{text}");
    // These keys have defaults.
    let said = ["rope_ratio", "layernorm_epsilon", "add_qkv_bias", "eos_token_id", "pad_token_id", "rmsnorm", "original_rope"];
    let glm = read(&said.into_iter().fold(glm4_chat(), without)).unwrap().glm;
    let expected = Glm { rms_norm_eps: 1e-5, attention_bias: false, eos: vec![], pad: None, ..nine_b("chatglm", 1e4) };
    assert_eq!(glm, expected);
}

#[test]
fn ids_that_end_a_text_are_one_or_many() {
    let ids = |more| read(&with(hf("glm"), more)).map(|said| (said.glm.eos, said.glm.pad)).map_err(|e| e.to_string());
    assert_eq!(ids(json!({"eos_token_id": 5, "pad_token_id": null})), Ok((vec![5], None)));
    assert_eq!(ids(json!({"eos_token_id": [], "pad_token_id": 0})), Ok((vec![], Some(0))));
    assert_eq!(ids(json!({"eos_token_id": null})), Ok((DEFAULT_EOS.to_vec(), Some(151329))));
    let small = without(without(hf("glm"), "eos_token_id"), "pad_token_id");
    let said = read(&with(small, json!({"vocab_size": 320}))).unwrap();
    assert_eq!((said.glm.eos, said.glm.pad), (vec![], None), "a default that the vocabulary does not have");
    for id in [json!(-1), json!("</s>"), json!([1, "x"]), json!(1.5), json!(4294967296u64), json!(vec![1; 65])] {
        assert!(ids(json!({"eos_token_id": id})).unwrap_err().contains("expected a token id or a list"), "{id}");
    }
}

#[test]
fn unsupported_variants_are_refused_by_name() {
    let refuse = |config: Value, expected: &str| {
        let text = read(&config).err().map_or("accepted".to_string(), |e| e.to_string());
        assert!(text.contains(expected) && !text.contains('\n') && text.len() < 400, "{expected}: {text}");
    };
    for (key, value, wanted) in [
        ("add_bias_linear", true, false),
        ("rmsnorm", false, true),
        ("post_layer_norm", false, true),
        ("apply_residual_connection_post_layernorm", true, false),
        ("multi_query_attention", false, true),
        ("original_rope", false, true),
        ("interleaved_qkv", true, false),
        ("position_encoding_2d", true, false),
        ("block_position_encoding", true, false),
    ] {
        refuse(with(chatglm3(), json!({key: value})), &format!("the configuration sets {key} to {value}, expected {wanted} (this variant"));
    }
    refuse(without(chatglm3(), "multi_query_attention"), "lacks multi_query_attention, whose default is false, expected true");
    refuse(with(chatglm3(), json!({"pre_seq_len": 128})), "has the key pre_seq_len, which is not supported");
    refuse(with(chatglm3(), json!({"quantization_bit": 4})), "expected 0 or no such key");
    for base in [glm4_chat(), hf("glm"), hf("glm4")] {
        refuse(with(base.clone(), json!({"vision_config": {"image_size": 336}})), "has the key vision_config, which is not supported");
        refuse(with(base.clone(), json!({"quantization_config": {"bits": 4}})), "has the key quantization_config, which is not supported");
        refuse(with(base.clone(), json!({"hidden_act": "gelu"})), "expected silu");
        refuse(with(base.clone(), json!({"rope_scaling": {"type": "yarn", "factor": 4.0}})), "expected default");
        let inner = json!({"rope_parameters": {"rope_type": "linear", "rope_theta": 1e4}});
        refuse(with(base, inner), "expected default");
    }
    refuse(with(hf("glm4"), json!({"num_nextn_predict_layers": 1})), "expected 0 or no such key");
}

#[test]
fn hostile_numbers_are_refused() {
    let refuse = |config: Value, more: Value, expected: &str| {
        let text = read(&with(config, more.clone())).err().map_or("accepted".to_string(), |e| e.to_string());
        assert!(text.contains(expected) && !text.contains('\n') && text.len() < 400, "{more}: {text}");
    };
    for key in
        ["hidden_size", "num_attention_heads", "kv_channels", "multi_query_group_num", "padded_vocab_size", "ffn_hidden_size", "num_layers"]
    {
        for value in [json!(0), json!(-1), json!(1u64 << 40), json!(u64::MAX), json!("9"), json!(4096.5), json!([1]), json!(true)] {
            refuse(
                glm4_chat(),
                json!({key: value}),
                &format!("expected a whole number from 1 to 16777216 as {key} of the configuration, found"),
            );
        }
    }
    for key in
        ["hidden_size", "num_attention_heads", "head_dim", "num_key_value_heads", "vocab_size", "intermediate_size", "num_hidden_layers"]
    {
        refuse(hf("glm"), json!({key: 0}), &format!("as {key} of the configuration, found 0"));
    }
    refuse(
        hf("glm"),
        json!({"max_position_embeddings": 1u64 << 40}),
        "as max_position_embeddings of the configuration, found 1099511627776",
    );
    refuse(
        hf("glm"),
        json!({"num_attention_heads": 1 << 24, "num_key_value_heads": 1, "head_dim": 1 << 24}),
        "expected query heads of at most 16777216 rows together",
    );
    refuse(
        hf("glm"),
        json!({"num_key_value_heads": 3}),
        "expected a number of query heads that is a multiple of the key heads, found 32 query heads and 3 key heads",
    );
    refuse(hf("glm"), json!({"num_key_value_heads": 64}), "found 32 query heads and 64 key heads");
    refuse(hf("glm"), json!({"head_dim": 6}), "expected an even number of rotated components per head from 2 to 6, found 3");
    refuse(glm4_chat(), json!({"kv_channels": 1}), "from 2 to 1, found 0");
    refuse(glm4_chat(), json!({"kv_channels": 130}), "found 65");
    for factor in [json!(0), json!(-0.5), json!(1.5), json!(1e300)] {
        refuse(hf("glm"), json!({"rope_parameters": {"partial_rotary_factor": factor}}), "expected a number above 0 and at most 1");
    }
    for theta in [json!(0), json!(-1e4), json!(1.0), json!(1e300)] {
        refuse(hf("glm"), json!({"rope_parameters": {"rope_theta": theta}}), "expected a rope_theta above 1");
    }
    refuse(glm4_chat(), json!({"rope_ratio": -500}), "expected a rope_theta above 1");
    refuse(glm4_chat(), json!({"rope_ratio": "500"}), "expected a number as rope_ratio of the configuration, found \"500\"");
    for eps in [json!(0), json!(-1e-5), json!(1e-300), json!(1)] {
        refuse(glm4_chat(), json!({"layernorm_epsilon": eps}), "expected an epsilon of the norms between 0 and 1");
    }
    refuse(glm4_chat(), json!({"rmsnorm": "yes"}), "expected true or false as rmsnorm of the configuration, found \"yes\"");
    refuse(hf("glm"), json!({"rope_parameters": [1]}), "expected an object as rope_parameters of the configuration, found [1]");
    refuse(hf("glm"), json!({"hidden_act": "x".repeat(100_000)}), "sets hidden_act to xxx");
}
