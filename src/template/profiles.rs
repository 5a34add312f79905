//! The generation settings of RWKV-7 G1 models. A checkpoint's folder has one file of settings for each kind of answer: with a thought, without a
//! thought, and with tools.

use super::GenerationConfig;
use super::files::read_whole;
use crate::error::Result;
use crate::sample::Sampling;
use std::path::Path;

/// A way in which the model answers. Each way has its own generation settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    /// The model writes a thought before its answer.
    Think,
    /// The model writes no thought before its answer, or an empty thought.
    Fast,
    /// The conversation declares tools.
    Tools,
}

/// Each profile, the name of its file in a checkpoint's folder, and the preset that the file overrides.
const ALL: [(Profile, &str, &str); 3] = [
    (Profile::Think, "generation_config.json", "g1-think"),
    (Profile::Fast, "fake_think_generation_config.json", "g1-fast"),
    (Profile::Tools, "tools_generation_config.json", "g1-tools"),
];

/// The generation settings in the folder of an RWKV-7 G1 checkpoint.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Profiles(Vec<(Profile, GenerationConfig)>);

impl Profiles {
    /// Reads the files of a folder. A profile whose file is missing has no settings. A setting that a file lacks has the preset's value.
    ///
    /// # Errors
    /// `File` if a file cannot be read or is not a JSON object, `Usage` if a setting is unsupported.
    pub fn read(folder: &Path) -> Result<Profiles> {
        let mut found = Vec::new();
        for (profile, name, preset) in ALL {
            let path = folder.join(name);
            if let Some(json) = read_whole(&path)? {
                let defaults = GenerationConfig { max_length: usize::MAX, ..GenerationConfig::of(&Sampling::preset(preset)?) };
                found.push((profile, defaults.read(&json).map_err(|e| e.at(path.display()))?));
            }
        }
        Ok(Profiles(found))
    }

    /// Returns all profiles, each with these settings.
    pub fn same(settings: &GenerationConfig) -> Profiles {
        Profiles(ALL.map(|(profile, ..)| (profile, settings.clone())).into())
    }

    /// Returns the settings of a profile, or `None` if the folder lacks the profile's file.
    pub fn get(&self, profile: Profile) -> Option<&GenerationConfig> {
        self.0.iter().find(|(of, _)| *of == profile).map(|(_, config)| config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn each_profile_has_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        assert_eq!(Profiles::read(folder.path()).unwrap(), Profiles::default());
        write("generation_config.json", r#"{"temperature": 0.9, "do_sample": true, "stop_strings": ["✿", "\nUser:"], "eos_token_id": 0}"#);
        write("tools_generation_config.json", r#"{"presence_penalty": 0.5, "frequency_penalty": 0.25, "penalty_decay": 0.99}"#);
        let profiles = Profiles::read(folder.path()).unwrap();
        let think = profiles.get(Profile::Think).unwrap();
        assert_eq!(think.sampling(), Sampling { temperature: 0.9, ..Sampling::preset("g1-think").unwrap() });
        assert_eq!((think.stop_strings.as_slice(), think.eos.as_slice()), (["✿", "\nUser:"].map(String::from).as_slice(), [0].as_slice()));
        assert!(profiles.get(Profile::Fast).is_none());
        let tools = profiles.get(Profile::Tools).unwrap().sampling();
        assert_eq!((tools.presence_penalty, tools.frequency_penalty, tools.penalty_decay, tools.top_k), (0.5, 0.25, 0.99, 32));
        write("fake_think_generation_config.json", r#"{"num_beams": 2}"#);
        let said = Profiles::read(folder.path()).unwrap_err().to_string();
        assert!(said.contains("fake_think_generation_config.json: num_beams: expected 1 beam, found 2"), "{said}");
    }
}
