//! Two variants by two seeds on the built-in target: trained once, then read back.

use std::path::Path;

use serde_json::Value;

use crate::common::{arg, refusal, sightdraft};

fn grid(dir: &Path, objective: &str) -> String {
    let data = dir.join("data.jsonl");
    let line = |i: usize| {
        format!(
            "{{\"id\":\"{i}\",\"messages\":[{{\"role\":\"user\",\"content\":\"What is {i}?\"}},\
             {{\"role\":\"assistant\",\"content\":\"The chart shows {i} bars.\"}}]}}\n"
        )
    };
    std::fs::write(&data, (0..6).map(line).collect::<String>()).unwrap();
    let base = dir.join("base.toml");
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("assets/builtin");
    let text = format!(
        "target = {target:?}\ndata = {data:?}\nheld_out = {data:?}\nout = \"unused\"\nunroll = 2\nmax_steps = 2\nepochs = 9\n\
         batch_tokens = 64\nfeatures = \"disk\"\nevaluate_every = 1\n"
    );
    std::fs::write(&base, text).unwrap();
    let path = dir.join("grid.toml");
    let text = format!(
        "base = {base:?}\nout = {:?}\nseeds = [1, 2]\n[[variant]]\nname = \"soft_ce\"\n[[variant]]\nname = \"other\"\n\
         set = [\"objective={objective}\"]\n",
        dir.join("runs")
    );
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().into()
}

#[test]
fn a_grid_runs_once_and_prints_mean_and_spread() {
    let dir = tempfile::tempdir().unwrap();
    let config = grid(dir.path(), "vsd");
    let run = |more: &[&str]| {
        let output = sightdraft(&[&["grid", "--device", "cpu", "--config", &config], more].concat());
        let (out, err) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
        assert!(output.status.success(), "{err}");
        (out, err)
    };
    let (table, said) = run(&[]);
    assert!(said.contains("4 runs, 0 of them finished before"), "{said}");
    assert_eq!(table.lines().count(), 3, "{table}");
    assert!(table.lines().nth(2).is_some_and(|line| line.starts_with("other") && line.contains('%')), "{table}");

    // One run is lost: it alone is done again, and gives the same figures.
    std::fs::remove_dir_all(dir.path().join("runs/other/2")).unwrap();
    let (json, said) = run(&["--json"]);
    assert!(said.contains("4 runs, 3 of them finished before"), "{said}");
    let report: Value = serde_json::from_str(&json).unwrap();
    let other = &report["variants"][1];
    assert_eq!((other["variant"].as_str(), other["objective"].as_str()), (Some("other"), Some("vsd (survival)")));
    let seeds: Vec<f64> = other["seeds"].as_array().unwrap().iter().map(|s| s.as_f64().unwrap()).collect();
    assert_eq!(seeds.len(), 2);
    assert!((other["accepted"]["mean"].as_f64().unwrap() - (seeds[0] + seeds[1]) / 2.0).abs() < 1e-9);
    assert_eq!(run(&[]).0, table);

    // The same directory under another recipe is not mistaken for this one.
    grid(dir.path(), "tv");
    let message = refusal(&["grid", "--device", "cpu", "--config", arg(Path::new(&config))]);
    assert!(message.contains("another recipe"), "{message}");
}
