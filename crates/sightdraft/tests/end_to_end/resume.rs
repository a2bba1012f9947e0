//! A training run that is killed goes on as if nothing had happened.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::common::{arg, sightdraft, text_target};

const STEPS: usize = 300;

/// A recipe for `out`, with features on disk and a checkpoint every third step.
fn recipe(dir: &Path, out: &str) -> PathBuf {
    let data = dir.join("data.jsonl");
    let line = |i: usize| {
        let answer = format!("w{} w{} w{} w{}", 5 + i, 7 + i, 9 + i, 5 + i);
        format!(
            "{{\"id\":\"{i}\",\"messages\":[{{\"role\":\"user\",\"content\":\"w{} w4\"}},{{\"role\":\"assistant\",\"content\":\"{answer}\"}}]}}\n",
            4 + i
        )
    };
    std::fs::write(&data, (0..12).map(line).collect::<String>()).unwrap();
    let path = dir.join(format!("{out}.toml"));
    let text = format!(
        "target = {:?}\ndata = {data:?}\nheld_out = {data:?}\nout = {:?}\nunroll = 2\nepochs = 100\nmax_steps = {STEPS}\n\
         batch_tokens = 32\nfeatures = \"disk\"\ncheckpoint_every = 3\nevaluate_every = 20\n\
         [objective]\nname = \"vsd\"\nmode = \"em\"\nsamples = 4\n",
        dir.join("target"),
        dir.join(out),
    );
    std::fs::write(&path, text).unwrap();
    path
}

/// The lines of a run's metrics, times left out.
fn metrics(out: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(out.join("metrics.jsonl")).unwrap_or_default();
    let untimed = |line: &str| {
        let mut line: Value = serde_json::from_str(line).ok()?;
        line.as_object_mut()?.remove("seconds");
        Some(line)
    };
    text.lines().filter_map(untimed).collect()
}

/// Starts a run and kills it once it has logged ten steps.
fn killed(recipe: &Path, out: &Path) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_sightdraft"))
        .args(["train", "--device", "cpu", "--config", arg(recipe)])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let begin = Instant::now();
    while metrics(out).len() < 10 {
        assert!(begin.elapsed() < Duration::from_secs(300), "the run logs nothing");
        std::thread::sleep(Duration::from_millis(1));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(metrics(out).len() < STEPS, "killed in the middle");
}

#[test]
fn a_killed_run_goes_on_with_the_same_numbers() {
    let dir = tempfile::tempdir().unwrap();
    text_target(&dir.path().join("target"));
    let run = |arguments: &[&str]| {
        let output = sightdraft(&[&["train", "--device", "cpu", "--config"], arguments].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stderr).unwrap()
    };
    let whole = recipe(dir.path(), "whole");
    let said = run(&[arg(&whole)]);
    assert!(said.contains("feature cache: 24 conversations to go"), "{said}");

    let cut = recipe(dir.path(), "cut");
    killed(&cut, &dir.path().join("cut"));
    let said = run(&[arg(&cut), "--resume"]);
    assert!(!said.contains("feature cache:"), "the other run has made the features: {said}");
    let (want, found) = (metrics(&dir.path().join("whole")), metrics(&dir.path().join("cut")));
    assert_eq!(want.len(), STEPS);
    assert_eq!(found, want);
    let weights = |out: &str| std::fs::read(dir.path().join(out).join("last/model.safetensors")).unwrap();
    assert!(weights("cut") == weights("whole"), "the drafts are the same to the bit");
}
