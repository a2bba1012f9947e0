//! What a measurement leaves: one JSON object, one aligned table, one page.

pub mod html;
pub mod svg;
pub mod table;

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};
use sightdraft_core::Result;
use sightdraft_core::files::write_atomically;
use sightdraft_decode::{Acceptance, TreeShape};

use crate::{Sample, Shard, Summary};

/// Everything measured with one command, and all that is needed to repeat it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Seed of sampling, of the prompts' order and of the bootstrap.
    pub seed: u64,
    /// Versions of this program and of Burn.
    pub versions: BTreeMap<String, String>,
    /// Where it ran.
    pub device: String,
    /// Size of the draft trees, where they are fixed.
    pub tree: TreeShape,
    /// Acceptance rule above temperature 0.
    pub acceptance: Acceptance,
    /// Nucleus mass.
    pub top_p: f32,
    /// Most likely tokens kept; 0 keeps all.
    pub top_k: usize,
    /// Prompts decoded before the clock starts, per run.
    pub warm_up: usize,
    /// Seconds that they took, over all runs; on a GPU kernels are compiled in them.
    #[serde(default)]
    pub warm_up_seconds: f64,
    /// Which part of the prompts, where they were shared out.
    pub shard: Shard,
    /// SHA-256 of the weights, by name of target and draft.
    pub checkpoints: BTreeMap<String, String>,
    /// The exact instruction around the question, by benchmark.
    pub instructions: BTreeMap<String, String>,
    /// The runs.
    pub runs: Vec<Run>,
}

/// One draft (or none) on one benchmark at one temperature.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// `plain`, the draft's name, `name (adaptive)` where its trees follow their cost, or `name (blind)` where the image was
    /// withheld from it.
    pub name: String,
    /// The target.
    pub target: String,
    /// The draft's directory; none for plain decoding.
    pub draft: Option<String>,
    /// The benchmark.
    pub benchmark: String,
    /// Sampling temperature.
    pub temperature: f32,
    /// The numbers.
    #[serde(flatten)]
    pub summary: Summary,
    /// What they were pooled from; left out where only the numbers are printed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub samples: Vec<Sample>,
}

impl Report {
    /// The report without its samples, as printed by `--json`.
    pub fn without_samples(&self) -> Self {
        let mut short = self.clone();
        short.runs.iter_mut().for_each(|run| run.samples.clear());
        short
    }

    /// Writes `report.json`, `report.txt` and `report.html` into `dir`, which is made if need be.
    pub fn write(&self, dir: &Path) -> Result<()> {
        std::fs::create_dir_all(dir).map_err(|e| sightdraft_core::Error::io("create", dir, e))?;
        let json = serde_json::to_vec_pretty(self).map_err(|e| {
            sightdraft_core::Error::invalid("report", "finite numbers", e.to_string(), "run the measurement again")
        })?;
        write_atomically(&dir.join("report.json"), &json)?;
        write_atomically(&dir.join("report.txt"), table::render(self).as_bytes())?;
        write_atomically(&dir.join("report.html"), html::render(self).as_bytes())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::metrics::tests::sample;

    /// Two runs over four prompts.
    pub(crate) fn report() -> Report {
        let run = |name: &str, draft: Option<&str>, accepted, seconds: f64| {
            let samples: Vec<Sample> = (0..4)
                .map(|i| {
                    let mut s = sample(&format!("q{i}"), accepted, 10, seconds + 0.1 * i as f64, 4.0);
                    if accepted > 0 {
                        s.counters.reached = vec![10, 8, 4];
                        s.counters.accepted_at = vec![8, 4, 1];
                    }
                    s
                })
                .collect();
            Run {
                name: name.into(),
                target: "builtin".into(),
                draft: draft.map(Into::into),
                benchmark: "charts".into(),
                temperature: 0.0,
                summary: Summary::of(&samples, 1),
                samples,
            }
        };
        Report {
            seed: 1,
            versions: [("sightdraft".to_string(), "0.1.0".to_string())].into(),
            device: "cpu".into(),
            tree: TreeShape { total: 16, depth: 4, top_k: 4 },
            acceptance: Acceptance::PointMass,
            top_p: 1.0,
            top_k: 0,
            warm_up: 1,
            warm_up_seconds: 3.0,
            shard: Shard::WHOLE,
            checkpoints: [("builtin".to_string(), "ab12".to_string())].into(),
            instructions: [("charts".to_string(), "{question}".to_string())].into(),
            runs: vec![run("plain", None, 0, 4.0), run("soft_ce <&>", Some("soft_ce"), 13, 2.0)],
        }
    }

    #[test]
    fn json_has_the_promised_keys_and_survives_a_round_trip() {
        let report = report();
        let json = serde_json::to_value(&report).unwrap();
        let run = &json["runs"][1];
        for key in ["name", "target", "draft", "benchmark", "temperature", "accepted_per_pass", "emitted_per_pass"] {
            assert!(!run[key].is_null(), "{key}");
        }
        for key in ["speedup", "tokens_per_second"] {
            assert!(run[key].as_f64().unwrap() > 0.0, "{key}");
        }
        assert_eq!(run["lossless"]["same"], 4);
        assert_eq!(run["lossless"]["of"], 4);
        for key in ["prefill", "draft", "verify", "other"] {
            assert!(run["seconds"][key].is_number(), "{key}");
        }
        assert_eq!(serde_json::from_value::<Report>(json).unwrap(), report);
    }

    #[test]
    fn writes_three_files() {
        let dir = tempfile::tempdir().unwrap();
        report().write(&dir.path().join("new")).unwrap();
        for name in ["report.json", "report.txt", "report.html"] {
            assert!(dir.path().join("new").join(name).metadata().unwrap().len() > 100, "{name}");
        }
    }
}
