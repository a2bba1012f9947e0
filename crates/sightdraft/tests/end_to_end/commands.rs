//! The commands on tiny models, from files to what is printed.

use crate::common::{VOCABULARY, arg, draft, image_target, json, picture, refusal, sightdraft, text_target};

#[test]
fn generate_prints_one_object_and_a_draft_changes_no_token() {
    let dir = tempfile::tempdir().unwrap();
    let target = text_target(&dir.path().join("target"));
    let draft = draft(&dir.path().join("draft"), VOCABULARY);
    let common =
        ["generate", "--device", "cpu", "--target", arg(&target), "--prompt", "w5 w6 w7", "--max-new-tokens", "12"];
    let plain = json(&[&common[..], &["--json"]].concat());
    let drafted = json(&[&common[..], &["--json", "--draft", arg(&draft)]].concat());
    assert_eq!(plain["token_ids"], drafted["token_ids"]);
    assert_eq!(plain["accepted_per_pass"], 0.0);
    assert_eq!(plain["prompt_tokens"], 4);
    let tokens = plain["token_ids"].as_array().unwrap().len();
    assert_eq!(plain["new_tokens"], tokens);
    assert!(tokens == 12 || plain["stop"] == "eos");
    assert!(drafted["target_passes"].as_u64() <= plain["target_passes"].as_u64());
    for key in ["text", "emitted_per_pass", "tokens_per_second", "stop"] {
        assert!(!drafted[key].is_null(), "{key}");
    }
    for key in ["prefill", "draft", "verify", "other"] {
        assert!(drafted["seconds"][key].is_number(), "{key}");
    }
    let streamed = sightdraft(&common);
    assert!(streamed.status.success());
    let text = String::from_utf8(streamed.stdout).unwrap();
    assert_eq!(text.trim_end_matches('\n'), plain["text"].as_str().unwrap());
}

#[test]
fn generate_sees_an_image() {
    let dir = tempfile::tempdir().unwrap();
    let target = image_target(&dir.path().join("target"));
    let image = picture(&dir.path().join("red.png"), 40);
    let draft = draft(&dir.path().join("draft"), VOCABULARY);
    let common =
        ["generate", "--json", "--device", "cpu", "--target", arg(&target), "--image", arg(&image), "--prompt", "w9"];
    let plain = json(&[&common[..], &["--max-new-tokens", "6"]].concat());
    // BOS, four image rows, one word.
    assert_eq!(plain["prompt_tokens"], 6);
    let drafted = json(&[&common[..], &["--max-new-tokens", "6", "--draft", arg(&draft)]].concat());
    assert_eq!(plain["token_ids"], drafted["token_ids"]);
}

#[test]
fn the_built_in_target_goes_by_its_name() {
    let cache = tempfile::tempdir().unwrap();
    let image = picture(&cache.path().join("red.png"), 140);
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_sightdraft"))
        .args(["generate", "--target", "builtin", "--device", "cpu", "--json", "--max-new-tokens", "4"])
        .args(["--prompt", "Describe this chart.", "--image", arg(&image)])
        .env("XDG_CACHE_HOME", cache.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&answer["new_tokens"], &answer["stop"]), (&4.into(), &"length".into()));
    assert!(cache.path().join("sightdraft/builtin/config.json").exists());
}

#[test]
fn eval_measures_losslessly_and_shards_merge() {
    let dir = tempfile::tempdir().unwrap();
    let target = image_target(&dir.path().join("target"));
    let draft = format!("random={}", arg(&draft(&dir.path().join("draft"), VOCABULARY)));
    let out = |name: &str| dir.path().join(name);
    let common = ["eval", "--json", "--device", "cpu", "--target", arg(&target), "--draft", &draft, "--limit", "4"];
    let common =
        [&common[..], &["--max-new-tokens", "8", "--blind", "--temperature", "0,1", "--warm-up", "0"]].concat();
    let common = [&common[..], &["--tree", "16/4/4"]].concat();
    let whole = json(&[&common[..], &["--out", arg(&out("whole"))]].concat());
    let names: Vec<&str> = whole["runs"].as_array().unwrap().iter().map(|r| r["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["plain", "random", "random (blind)", "plain", "random", "random (blind)"]);
    for run in whole["runs"].as_array().unwrap() {
        let greedy = run["temperature"] == 0.0;
        assert_eq!(run["lossless"]["of"], if greedy { 4 } else { 0 });
        assert_eq!(run["lossless"]["same"], run["lossless"]["of"]);
        assert_eq!(run["target"], "target");
        assert_eq!(run["benchmark"], "charts");
    }
    for part in ["1/2", "2/2"] {
        let folder = out(&part.replace('/', "of"));
        json(&[&common[..], &["--shard", part, "--out", arg(&folder)]].concat());
    }
    let (first, second) = (out("1of2").join("report.json"), out("2of2").join("report.json"));
    let merged = json(&["merge", "--json", arg(&first), arg(&second), "--out", arg(&out("merged"))]);
    for (a, b) in merged["runs"].as_array().unwrap().iter().zip(whole["runs"].as_array().unwrap()) {
        assert_eq!(a["prompts"], b["prompts"]);
        assert_eq!(a["target_passes"], b["target_passes"]);
        assert_eq!(a["accepted_per_pass"], b["accepted_per_pass"]);
    }
    assert!(std::fs::read_to_string(out("merged").join("report.html")).unwrap().contains("<svg"));
}

#[test]
fn eval_puts_fixed_trees_and_those_that_follow_the_cost_side_by_side() {
    let dir = tempfile::tempdir().unwrap();
    let target = image_target(&dir.path().join("target"));
    let draft = format!("random={}", arg(&draft(&dir.path().join("draft"), VOCABULARY)));
    let out = dir.path().join("out");
    let common = ["eval", "--json", "--device", "cpu", "--target", arg(&target), "--draft", &draft, "--limit", "3"];
    let report = json(&[&common[..], &["--max-new-tokens", "30", "--warm-up", "0", "--out", arg(&out)]].concat());
    let runs = report["runs"].as_array().unwrap();
    let names: Vec<&str> = runs.iter().map(|run| run["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["plain", "random", "random (adaptive)"]);
    assert!(runs.iter().all(|run| run["lossless"]["same"] == 3), "{runs:?}");
}

#[test]
fn bench_prints_the_promised_ratios() {
    let dir = tempfile::tempdir().unwrap();
    let target = text_target(&dir.path().join("target"));
    let draft = draft(&dir.path().join("draft"), VOCABULARY);
    let common = ["bench", "--device", "cpu", "--target", arg(&target), "--turns", "2"];
    let bench = json(&[&common[..], &["--json", "--draft", arg(&draft)]].concat());
    // A context of 96 leaves room for 32 rows behind a cache of 48.
    let ratios: Vec<&String> = bench["cost_ratio"].as_object().unwrap().keys().collect();
    assert_eq!(ratios, ["2", "4", "8", "16", "32"]);
    let positive = |value: &serde_json::Value| value.as_f64().is_some_and(|number| number > 0.0);
    assert!(positive(&bench["cost_ratio"]["8"]) && positive(&bench["layer_cost_ratio"]["down_proj"]["64"]));
    assert!(positive(&bench["plain"]["tokens_per_second"]) && positive(&bench["plain"]["memory_limit_fraction"]));
    assert!(positive(&bench["draft_step_ratio"]) && positive(&bench["read_gb_per_s"]));
    assert!((0.0..1.0).contains(&bench["outside_matmul_share"].as_f64().unwrap()));
    let said = String::from_utf8(sightdraft(&common).stdout).unwrap();
    assert!(said.contains("whole pass") && said.contains("plain decoding"), "{said}");
}

#[test]
fn inspect_knows_targets_and_drafts_and_whether_they_fit() {
    let dir = tempfile::tempdir().unwrap();
    let target = image_target(&dir.path().join("target"));
    let fitting = draft(&dir.path().join("draft"), VOCABULARY);
    let other = draft(&dir.path().join("other"), 2 * VOCABULARY);
    let seen = json(&["inspect", "--json", arg(&target)]);
    assert_eq!(seen["kind"], "llava");
    assert_eq!(seen["source"], "tensor headers");
    // What the headers say is what the config says.
    std::fs::remove_file(target.join("model.safetensors")).unwrap();
    assert_eq!(json(&["inspect", "--json", arg(&target)])["parameters"], seen["parameters"]);
    let fit = json(&["inspect", "--json", arg(&fitting), "--target", arg(&target)]);
    assert_eq!((&fit["kind"], &fit["fit"]["fits"]), (&"eagle3".into(), &true.into()));
    let misfit = json(&["inspect", "--json", arg(&other), "--target", arg(&target)]);
    assert_eq!(misfit["fit"]["fits"], false);
    assert!(misfit["fit"]["obstacles"][0].as_str().unwrap().contains("vocab_size"));
}

#[test]
fn answers_are_regenerated_and_a_draft_is_trained_resumed_and_used() {
    let dir = tempfile::tempdir().unwrap();
    let target = text_target(&dir.path().join("target"));
    let file = |name: &str| dir.path().join(name);
    let prompts: String = (4..10)
        .map(|i| {
            format!("{{\"id\":\"{i}\",\"messages\":[{{\"role\":\"user\",\"content\":\"w{i} w{} w5\"}}]}}\n", i + 1)
        })
        .collect();
    std::fs::write(file("prompts.jsonl"), prompts).unwrap();
    let (prompts, answers) = (file("prompts.jsonl"), file("answers.jsonl"));
    let regenerate = ["regenerate", "--device", "cpu", "--target", arg(&target), "--data", arg(&prompts)];
    let regenerate = [&regenerate[..], &["--out", arg(&answers), "--max-new-tokens", "12"]].concat();
    let said = |arguments: &[&str]| {
        let output = sightdraft(arguments);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(said(&regenerate).starts_with("6 answers"));
    assert!(said(&regenerate).starts_with("0 answers"));
    let recipe = file("recipe.toml");
    let text = format!(
        "target = {:?}\ndata = {answers:?}\nheld_out = {answers:?}\nout = {:?}\nunroll = 2\nmax_steps = 2\nbatch_tokens = 32\n",
        target,
        file("run"),
    );
    std::fs::write(&recipe, text).unwrap();
    let train = ["train", "--device", "cpu", "--config", arg(&recipe)];
    assert!(said(&["train", "--config", arg(&recipe), "--dry-run"]).contains("counted in"));
    assert!(said(&train).starts_with("2 steps done"));
    assert!(said(&[&train[..], &["--resume"]].concat()).starts_with("2 steps done"));
    let (last, metrics) = (file("run").join("last"), file("run").join("metrics.jsonl"));
    assert_eq!(std::fs::read_to_string(metrics).unwrap().lines().count(), 2);
    let generate =
        ["generate", "--json", "--device", "cpu", "--target", arg(&target), "--prompt", "w5", "--draft", arg(&last)];
    assert!(json(&generate)["new_tokens"].as_u64().unwrap() > 0);
}

#[test]
fn training_charts_are_answered_and_can_be_trained_on() {
    let dir = tempfile::tempdir().unwrap();
    let target = image_target(&dir.path().join("target"));
    let out = dir.path().join("charts.jsonl");
    let regenerate = ["regenerate", "--device", "cpu", "--target", arg(&target), "--max-new-tokens", "4"];
    let regenerate = [&regenerate[..], &["--out", arg(&out), "--data"]].concat();
    for (numbers, added) in [("charts=3..5", "2 answers"), ("charts=4..6", "1 answers")] {
        let output = sightdraft(&[&regenerate[..], &[numbers]].concat());
        assert!(String::from_utf8_lossy(&output.stdout).starts_with(added), "{output:?}");
    }
    let lines = std::fs::read_to_string(&out).unwrap();
    assert_eq!(lines.lines().count(), 3);
    assert!(lines.lines().all(|line| line.contains("images/") && line.contains("answer_ids")), "{lines}");
    assert!(refusal(&[&regenerate[..], &["charts=9..2"]].concat()).contains("A < B"));
}
