//! Reports drivers, device files and settings of the host, and common reasons why no GPU is found.

use serde::Serialize;
use std::path::Path;

#[derive(Debug, Serialize)]
pub struct Finding {
    /// `ok`, `note` or `problem`.
    pub level: &'static str,
    pub text: String,
    pub hint: Option<String>,
}

impl Finding {
    fn ok(text: impl Into<String>) -> Finding {
        Finding { level: "ok", text: text.into(), hint: None }
    }
    fn note(text: impl Into<String>) -> Finding {
        Finding { level: "note", text: text.into(), hint: None }
    }
    fn problem(text: impl Into<String>, hint: &str) -> Finding {
        Finding { level: "problem", text: text.into(), hint: Some(hint.into()) }
    }
    fn hint(self, hint: &str) -> Finding {
        Finding { hint: Some(hint.into()), ..self }
    }
}

/// Environment variables that change which drivers are found or how they run.
const VARIABLES: [&str; 4] = ["VK_DRIVER_FILES", "VK_ICD_FILENAMES", "NVIDIA_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"];

pub fn findings() -> Vec<Finding> {
    let mut found = Vec::new();
    if cfg!(target_os = "linux") {
        found.extend(loader());
        found.extend(drivers());
        found.extend(device_files());
        found.extend(container());
        found.extend(wsl());
    }
    for name in VARIABLES.into_iter().chain(crate::environment::names()) {
        if let Some(value) = std::env::var_os(name) {
            found.push(Finding::note(format!("{name}={}", value.to_string_lossy())));
        }
    }
    found
}

/// The folders of shared libraries in common Linux distributions.
const LIBRARIES: [&str; 8] = [
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/lib/x86_64-linux-gnu",
    "/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/local/lib",
    "/run/opengl-driver/lib",
];

fn loader() -> Option<Finding> {
    let own = std::env::var("LD_LIBRARY_PATH").unwrap_or_default();
    let folders = own.split(':').filter(|f| !f.is_empty()).chain(LIBRARIES);
    let at = folders.map(|f| Path::new(f).join("libvulkan.so.1")).find(|p| p.exists());
    Some(match at {
        Some(path) => Finding::ok(format!("Vulkan loader {}", path.display())),
        None => Finding::problem("no Vulkan loader (libvulkan.so.1) in the usual folders", "install it (Debian and Ubuntu: libvulkan1)"),
    })
}

/// Lists the installed Vulkan drivers by the names of their manifest files.
fn drivers() -> Option<Finding> {
    let folders =
        ["/usr/share/vulkan/icd.d", "/etc/vulkan/icd.d", "/usr/local/share/vulkan/icd.d", "/run/opengl-driver/share/vulkan/icd.d"];
    let mut names: Vec<String> = folders
        .iter()
        .filter_map(|f| std::fs::read_dir(f).ok())
        .flatten()
        .flatten()
        .map(|e| e.file_name().to_string_lossy().into_owned())
        .filter(|n| n.ends_with(".json"))
        .collect();
    names.sort();
    names.dedup();
    Some(if names.is_empty() {
        Finding::problem("no Vulkan driver is installed", "install one (Debian and Ubuntu: mesa-vulkan-drivers, or NVIDIA's driver)")
    } else {
        Finding::ok(format!("Vulkan drivers {}", names.join(", ")))
    })
}

/// Lists the render nodes in `/dev/dri`, and reports whether this process can open each node.
fn device_files() -> Vec<Finding> {
    let mut found = Vec::new();
    let Ok(entries) = std::fs::read_dir("/dev/dri") else {
        let nvidia = Path::new("/dev/nvidiactl").exists();
        let text = if nvidia {
            "the folder /dev/dri is missing, but the device file /dev/nvidiactl exists"
        } else {
            "the folder /dev/dri is missing: no kernel driver of a GPU is loaded, or this container has no access to the GPU"
        };
        return vec![Finding::note(text)];
    };
    let mut nodes: Vec<_> = entries.flatten().map(|e| e.path()).filter(|p| p.to_string_lossy().contains("renderD")).collect();
    nodes.sort();
    for node in nodes {
        let opened = std::fs::OpenOptions::new().read(true).write(true).open(&node);
        found.push(match opened {
            Ok(_) => Finding::ok(format!("{} can be opened", node.display())),
            Err(e) => Finding::problem(
                format!("{}: {e}", node.display()),
                "join the group of this file and log in again: sudo usermod -aG render $USER (in a container: --device /dev/dri --group-add render)",
            ),
        });
    }
    found
}

/// Reports that the program runs in a container. If the container has an NVIDIA GPU without Vulkan, reports this instead, because NVIDIA's container
/// runtime provides Vulkan only on request. Returns `None` outside a container.
fn container() -> Option<Finding> {
    let control_groups = std::fs::read_to_string("/proc/1/cgroup").unwrap_or_default();
    let is_container = Path::new("/.dockerenv").exists()
        || Path::new("/run/.containerenv").exists()
        || std::env::var_os("container").is_some()
        || ["docker", "kubepods", "containerd", "lxc"].iter().any(|w| control_groups.contains(w));
    let nvidia = Path::new("/dev/nvidiactl").exists();
    let capabilities = std::env::var("NVIDIA_DRIVER_CAPABILITIES").unwrap_or_default();
    let has_graphics = capabilities.split(',').any(|c| c == "graphics" || c == "all");
    match (is_container, nvidia && !has_graphics) {
        (_, true) if is_container || !capabilities.is_empty() => Some(Finding::problem(
            format!(
                "this container has an NVIDIA GPU, but not the driver's graphics capability (NVIDIA_DRIVER_CAPABILITIES={capabilities:?})"
            ),
            "start the container with -e NVIDIA_DRIVER_CAPABILITIES=all: Vulkan needs `graphics`",
        )),
        (true, _) => Some(Finding::note("this is a container")),
        _ => None,
    }
}

fn wsl() -> Option<Finding> {
    let version = std::fs::read_to_string("/proc/version").unwrap_or_default().to_lowercase();
    let is_wsl = version.contains("microsoft");
    is_wsl.then(|| {
        Finding::note("this is WSL2: GPU vendors ship no Vulkan driver for WSL2")
            .hint("use the Windows build, or Mesa's dzn driver (mesa-vulkan-drivers 22.3 or newer) with --device gpu")
    })
}
