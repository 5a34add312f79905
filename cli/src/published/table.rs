//! Lists published models, with names and sizes as their pages on Hugging Face show them. `docs/models.md` contains this table.

/// A published checkpoint that anyone can download.
#[derive(Debug)]
pub struct PublishedModel {
    /// The name that users type, in lower case.
    pub name: &'static str,
    /// Other names of the model.
    pub aliases: &'static [&'static str],
    pub architecture: &'static str,
    pub parameters: &'static str,
    /// The repository on Hugging Face, as `OWNER/NAME`.
    pub repository: &'static str,
    /// The model's file in the repository. `None` if the whole repository is the model.
    pub file: Option<&'static str>,
    /// The size of the download, such as `3.06 GB`. `None` if unknown.
    pub size: Option<&'static str>,
    /// The name of the synthetic model whose tensors have the same shapes as this model's. The memory sizes in `docs/models.md` are computed from
    /// these shapes. `None` if no synthetic model has the same shapes.
    #[cfg_attr(not(test), expect(dead_code, reason = "the test of the page computes the memory"))]
    pub shapes: Option<&'static str>,
}

const G1: &str = "BlinkDL/rwkv7-g1";
const WORLD_7: &str = "BlinkDL/rwkv-7-world";
const WORLD_6: &str = "BlinkDL/rwkv-6-world";
const WORLD_5: &str = "BlinkDL/rwkv-5-world";
const WORLD_4: &str = "BlinkDL/rwkv-4-world";

/// Returns the entry of a model that is one file.
const fn file(
    name: &'static str,
    (architecture, parameters): (&'static str, &'static str),
    repository: &'static str,
    file: &'static str,
    size: &'static str,
    shapes: Option<&'static str>,
) -> PublishedModel {
    PublishedModel { name, aliases: &[], architecture, parameters, repository, file: Some(file), size: Some(size), shapes }
}

/// Returns the entry of a model that is a folder of files.
const fn folder(
    name: &'static str,
    aliases: &'static [&'static str],
    (architecture, parameters): (&'static str, &'static str),
    repository: &'static str,
    size: Option<&'static str>,
    shapes: Option<&'static str>,
) -> PublishedModel {
    PublishedModel { name, aliases, architecture, parameters, repository, file: None, size, shapes }
}

/// All published models: RWKV from the newest version to the oldest, then GLM. For a mistyped name, the program suggests the model with the most
/// similar name. If several names are equally similar, it suggests the first of them.
#[rustfmt::skip]
pub const PUBLISHED: &[PublishedModel] = &[
    file("rwkv7-g1-1.5b", ("RWKV-7", "1.5B"), G1, "rwkv7-g1k-1.5b-20260930-ctx25600.pth", "3.06 GB", Some("rwkv7-1.5b")),
    file("rwkv7-g1-2.9b", ("RWKV-7", "2.9B"), G1, "rwkv7-g1k-2.9b-20260930-ctx25600.pth", "5.90 GB", Some("rwkv7-2.9b")),
    file("rwkv7-g1-7.2b", ("RWKV-7", "7.2B"), G1, "rwkv7-g1k-7.2b-20260930-ctx25600.pth", "14.4 GB", Some("rwkv7-7.2b")),
    file("rwkv7-g1-13.3b", ("RWKV-7", "13.3B"), G1, "rwkv7-g1k-13.3b-20260930-ctx25600.pth", "26.5 GB", Some("rwkv7-13.3b")),
    file("rwkv7-g1-0.1b", ("RWKV-7", "0.1B"), G1, "rwkv7-g1d-0.1b-20260129-ctx8192.pth", "382 MB", Some("rwkv7-0.1b")),
    file("rwkv7-g1-0.4b", ("RWKV-7", "0.4B"), G1, "rwkv7-g1d-0.4b-20260210-ctx8192.pth", "902 MB", Some("rwkv7-0.4b")),
    file("rwkv7-world-0.1b", ("RWKV-7", "0.1B"), WORLD_7, "RWKV-x070-World-0.1B-v2.8-20241210-ctx4096.pth", "382 MB", Some("rwkv7-0.1b")),
    file("rwkv7-world-0.4b", ("RWKV-7", "0.4B"), WORLD_7, "RWKV-x070-World-0.4B-v2.9-20250107-ctx4096.pth", "902 MB", Some("rwkv7-0.4b")),
    file("rwkv7-world-1.5b", ("RWKV-7", "1.5B"), WORLD_7, "RWKV-x070-World-1.5B-v3-20250127-ctx4096.pth", "3.06 GB", Some("rwkv7-1.5b")),
    file("rwkv7-world-2.9b", ("RWKV-7", "2.9B"), WORLD_7, "RWKV-x070-World-2.9B-v3-20250211-ctx4096.pth", "5.90 GB", Some("rwkv7-2.9b")),
    file("rwkv6-world-1.6b", ("RWKV-6", "1.6B"), WORLD_6, "RWKV-x060-World-1B6-v2.1-20240328-ctx4096.pth", "3.20 GB", Some("rwkv6-1.5b")),
    file("rwkv6-world-3b", ("RWKV-6", "3B"), WORLD_6, "RWKV-x060-World-3B-v2.1-20240417-ctx4096.pth", "6.20 GB", Some("rwkv6-2.9b")),
    file("rwkv6-world-7b", ("RWKV-6", "7B"), WORLD_6, "RWKV-x060-World-7B-v3-20241112-ctx4096.pth", "15.3 GB", Some("rwkv6-7.2b")),
    file("rwkv6-world-14b", ("RWKV-6", "14B"), WORLD_6, "RWKV-x060-World-14B-v2.1-20240719-ctx4096.pth", "28.1 GB", Some("rwkv6-14b")),
    file("rwkv5-world-0.4b", ("RWKV-5", "0.4B"), WORLD_5, "RWKV-5-World-0.4B-v2-20231113-ctx4096.pth", "924 MB", Some("rwkv5-0.4b")),
    file("rwkv5-world-1.5b", ("RWKV-5", "1.5B"), WORLD_5, "RWKV-5-World-1B5-v2-20231025-ctx4096.pth", "3.16 GB", Some("rwkv5-1.5b")),
    file("rwkv5-world-3b", ("RWKV-5", "3B"), WORLD_5, "RWKV-5-World-3B-v2-20231118-ctx16k.pth", "6.13 GB", Some("rwkv5-2.9b")),
    file("rwkv5-world-7b", ("RWKV-5", "7B"), WORLD_5, "RWKV-5-World-7B-v2-20240128-ctx4096.pth", "15.0 GB", Some("rwkv5-7.2b")),
    file("rwkv4-world-0.1b", ("RWKV-4", "0.1B"), WORLD_4, "RWKV-4-World-0.1B-v1-20230520-ctx4096.pth", "386 MB", Some("rwkv4-0.1b")),
    file("rwkv4-world-0.4b", ("RWKV-4", "0.4B"), WORLD_4, "RWKV-4-World-0.4B-v1-20230529-ctx4096.pth", "923 MB", Some("rwkv4-0.4b")),
    file("rwkv4-world-1.5b", ("RWKV-4", "1.5B"), WORLD_4, "RWKV-4-World-1.5B-v1-fixed-20230612-ctx4096.pth", "3.16 GB", Some("rwkv4-1.5b")),
    folder("glm-4-9b-chat", &["glm4"], ("GLM-4", "9.4B"), "zai-org/glm-4-9b-chat", Some("18.8 GB"), Some("glm4-9b")),
    folder("glm-4-9b", &[], ("GLM-4", "9.4B"), "zai-org/glm-4-9b", Some("18.8 GB"), Some("glm4-9b")),
    folder("glm-4-9b-chat-1m", &[], ("GLM-4", "9.5B"), "zai-org/glm-4-9b-chat-1m", Some("19.0 GB"), None),
    folder("glm-4-9b-0414", &["glm4-0414"], ("GLM-4-0414", "9.4B"), "zai-org/GLM-4-9B-0414", None, Some("glm4-9b-0414")),
    folder("glm-z1-9b-0414", &["glm-z1"], ("GLM-4-0414", "9.4B"), "zai-org/GLM-Z1-9B-0414", None, Some("glm4-9b-0414")),
    folder("glm-4-32b-0414", &[], ("GLM-4-0414", "32.6B"), "zai-org/GLM-4-32B-0414", None, Some("glm4-32b-0414")),
    folder("glm-z1-32b-0414", &[], ("GLM-4-0414", "32.6B"), "zai-org/GLM-Z1-32B-0414", None, Some("glm4-32b-0414")),
    folder("glm-4.1v-9b-thinking", &["glm-4.1v"], ("GLM-4.1V, text", "9.4B"), "zai-org/GLM-4.1V-9B-Thinking", None, Some("glm4-9b-0414")),
    folder("glm-4.6v-flash", &[], ("GLM-4.6V, text", "9.4B"), "zai-org/GLM-4.6V-Flash", None, Some("glm4-9b-0414")),
    folder("glm-4.7-flash", &[], ("GLM-4.7-Flash", "29.9B"), "zai-org/GLM-4.7-Flash", None, Some("glm4_moe_lite-flash")),
    folder("glm-edge-1.5b-chat", &["glm-edge"], ("GLM-Edge", "1.6B"), "zai-org/glm-edge-1.5b-chat", None, Some("glm4-edge-1.5b")),
    folder("glm-edge-4b-chat", &[], ("GLM-Edge", "4.3B"), "zai-org/glm-edge-4b-chat", None, Some("glm4-edge-4b")),
    folder("chatglm3-6b", &["chatglm3"], ("ChatGLM3", "6.2B"), "zai-org/chatglm3-6b", Some("12.5 GB"), None),
];
