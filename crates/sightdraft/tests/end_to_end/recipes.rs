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

/// Target, draft and what it is trained with (nothing for the published loss) of a recipe's name.
fn parts(name: &str) -> (&str, &str, &str) {
    let (rest, with) = match name.rsplit_once('-') {
        Some((rest, last)) if ["vsd", "stage2"].contains(&last) => (rest, last),
        _ => (name, ""),
    };
    let (target, draft) = rest.rsplit_once('-').unwrap_or_else(|| panic!("{name} names no draft"));
    (target, draft, with)
}

/// What the plan calls the objective.
fn objective(draft: &str, with: &str) -> &'static str {
    match (draft, with) {
        (_, "vsd") => "vsd (survival)",
        ("eagle3", _) => "soft_ce",
        ("eagle1" | "msd", _) => "eagle1",
        ("hass", _) => "hass",
        ("griffin", _) => "griffin",
        ("vispec", "stage2") => "vispec (stage 2)",
        ("vispec", _) => "vispec (stage 1)",
        _ => panic!("{draft} has no published loss"),
    }
}

#[test]
fn every_recipe_passes_a_dry_run() {
    for name in recipes() {
        let (target, draft, with) = parts(&name);
        let configs = if target == "builtin" { "crates/sightdraft/assets" } else { "tests/fixtures/configs" };
        let config = root().join(configs).join(target);
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
        // 134,515,008 of the language model, 21,555,072 of the tower, 554,112 of the projector.
        assert!(target != "llava-shaped" || value("parameters").starts_with("target 156.6 M"), "{out}");
        assert_eq!(value("objective"), objective(draft, with), "{name}");
        let title = value("draft").to_lowercase().replace('-', "");
        assert!(title.starts_with(draft), "{name}: {out}");
    }
}

#[test]
fn every_target_has_every_draft_that_fits_it_with_its_loss_and_with_vsd() {
    let names = recipes();
    let targets: std::collections::BTreeSet<&str> = names.iter().map(|name| parts(name).0).collect();
    assert_eq!(targets.len(), 8, "{targets:?}");
    let mut expected = vec![];
    for target in targets {
        for draft in ["eagle1", "hass", "griffin", "eagle3"] {
            expected.extend(["", "-vsd"].map(|with| format!("{target}-{draft}{with}")));
        }
        for draft in ["msd", "vispec"].into_iter().filter(|_| target.starts_with("llava") || target == "builtin") {
            expected.extend(["", "-stage2", "-vsd"].map(|with| format!("{target}-{draft}{with}")));
        }
    }
    expected.sort();
    assert_eq!(names, expected);
}
