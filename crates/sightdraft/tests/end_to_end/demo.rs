//! The demo, short, and what it leaves behind.

use crate::common::{arg, json, picture};

#[test]
fn the_quick_demo_is_lossless_and_leaves_a_folder_that_other_commands_take() {
    let dir = tempfile::tempdir().unwrap();
    let place = |name: &str| dir.path().join(name);
    let said = json(&["demo", "--quick", "--json", "--device", "cpu", "--out", arg(dir.path())]);
    let score = &said["chart_score"];
    assert!(score["value"].as_f64().unwrap() > score["chance"].as_f64().unwrap(), "{score}");
    assert!(score["title"].is_number() && score["title_chance"].as_f64().unwrap() < 0.1, "{score}");
    let runs = said["runs"].as_array().unwrap();
    let names: Vec<&str> = runs.iter().map(|run| run["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["plain", "soft_ce", "soft_ce (adaptive)", "vsd", "vsd (adaptive)"]);
    for run in runs {
        assert_eq!(run["lossless"]["same"], run["lossless"]["of"], "{run}");
        assert!(run["lossless"]["of"].as_u64().unwrap() > 0);
        assert!(run["tokens_per_second"].as_f64().unwrap() > 0.0 && run["speedup"].as_f64().unwrap() > 0.0);
    }
    // A trained draft guesses right more often than not.
    for fixed in [&runs[1], &runs[3]] {
        assert!(fixed["accepted_per_pass"].as_f64().unwrap() > 0.5, "{fixed}");
    }
    let image = picture(&place("red.png"), 140);
    let (target, draft) = (place("target"), place("vsd"));
    let common = ["--json", "--device", "cpu", "--target", arg(&target), "--draft", arg(&draft)];
    let asked = ["generate", "--image", arg(&image), "--prompt", "What does the chart show?", "--max-new-tokens", "8"];
    assert!(json(&[&asked[..], &common[..]].concat())["new_tokens"].as_u64().unwrap() > 0);
    let out = place("again");
    let measured = json(&[&["eval", "--limit", "2", "--out", arg(&out)], &common[..]].concat());
    assert_eq!(measured["runs"][1]["lossless"]["same"], 2);
}
