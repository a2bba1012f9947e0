//! Every recipe plans from the target's config.json alone.

use std::path::{Path, PathBuf};

use crate::common::{arg, sightdraft};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Names of all recipes, without `.toml`.
fn recipes() -> Vec<String> {
    let files = std::fs::read_dir(root().join("configs")).unwrap();
    let mut names: Vec<String> = files
        .filter_map(|file| file.unwrap().file_name().to_str().and_then(|n| n.strip_suffix(".toml")).map(Into::into))
        .collect();
    names.sort();
    names
}

#[test]
fn every_recipe_passes_a_dry_run() {
    let names = recipes();
    assert_eq!(names.len(), 12, "{names:?}");
    for name in names {
        let target = name.trim_end_matches("-vsd").trim_end_matches("-eagle3");
        let config = root().join("tests/fixtures/configs").join(target);
        let set = format!("target={}", arg(&config));
        let recipe = root().join("configs").join(format!("{name}.toml"));
        let arguments = ["train", "--config", arg(&recipe), "--set", &set, "--dry-run", "--assume", "1000x500"];
        let output = sightdraft(&arguments);
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{name}: {err}");
        let value = |key: &str| out.lines().find_map(|line| line.strip_prefix(key)).map(str::trim).unwrap_or_default();
        assert!(value("steps").parse::<usize>().unwrap() > 10, "{out}");
        assert!(value("memory").contains("GiB") && value("disk").contains("GiB"), "{out}");
        // The published size, tower and projector included.
        assert!(target != "llava-1.5-7b" || value("parameters").starts_with("target 7063.4 M"), "{out}");
        assert_eq!(value("objective"), if name.ends_with("-vsd") { "vsd (survival)" } else { "soft_ce" });
    }
}

#[test]
fn every_target_has_a_baseline_and_its_vsd_twin() {
    let names = recipes();
    for name in names.iter().filter(|name| !name.ends_with("-vsd")) {
        assert!(names.contains(&format!("{name}-vsd")), "{name}");
    }
}
