//! Bad input never panics: one sentence that names what is wrong, exit code 2.

use crate::common::{VOCABULARY, arg, draft, image_target, picture, refusal, text_target};

#[test]
fn a_wrong_directory() {
    let dir = tempfile::tempdir().unwrap();
    let nowhere = dir.path().join("nowhere");
    let said = refusal(&["generate", "--device", "cpu", "--target", arg(&nowhere), "--prompt", "w5"]);
    assert!(said.contains("nowhere"), "{said}");
    let said = refusal(&["generate", "--device", "cpu", "--target", arg(dir.path()), "--prompt", "w5"]);
    assert!(said.contains("config.json"), "{said}");
    let said = refusal(&["inspect", arg(dir.path())]);
    assert!(said.contains("config.json"), "{said}");
}

#[test]
fn a_truncated_shard() {
    let dir = tempfile::tempdir().unwrap();
    let target = text_target(&dir.path().join("target"));
    let weights = target.join("model.safetensors");
    let bytes = std::fs::read(&weights).unwrap();
    for keep in [bytes.len() - 100, 20, 0] {
        std::fs::write(&weights, &bytes[..keep]).unwrap();
        let said = refusal(&["generate", "--device", "cpu", "--target", arg(&target), "--prompt", "w5"]);
        assert!(said.contains("model.safetensors"), "{said}");
        assert!(refusal(&["inspect", arg(&target)]).contains("model.safetensors"));
    }
}

#[test]
fn a_shape_that_is_not_the_configs() {
    let dir = tempfile::tempdir().unwrap();
    let target = text_target(&dir.path().join("target"));
    let config = target.join("config.json");
    let text = std::fs::read_to_string(&config).unwrap();
    let mut json: serde_json::Value = serde_json::from_str(&text).unwrap();
    json["intermediate_size"] = 32.into();
    std::fs::write(&config, json.to_string()).unwrap();
    let said = refusal(&["generate", "--device", "cpu", "--target", arg(&target), "--prompt", "w5"]);
    assert!(said.contains("24") && said.contains("32") && said.contains("mlp"), "{said}");
}

#[test]
fn a_draft_of_another_vocabulary() {
    let dir = tempfile::tempdir().unwrap();
    let target = text_target(&dir.path().join("target"));
    let other = draft(&dir.path().join("draft"), 2 * VOCABULARY);
    let arguments = ["--device", "cpu", "--target", arg(&target), "--draft", arg(&other)];
    let said = refusal(&[&["generate", "--prompt", "w5"], &arguments[..]].concat());
    assert!(said.contains("vocab") && said.contains("128") && said.contains("64"), "{said}");
    let said = refusal(&[&["eval"], &arguments[..]].concat());
    assert!(said.contains("vocab"), "{said}");
}

#[test]
fn a_corrupt_or_an_empty_image() {
    let dir = tempfile::tempdir().unwrap();
    let target = image_target(&dir.path().join("target"));
    let image = dir.path().join("broken.png");
    for bytes in [&b""[..], b"\x89PNG\r\n\x1a\n not really", b"plain text"] {
        std::fs::write(&image, bytes).unwrap();
        let arguments =
            ["generate", "--device", "cpu", "--target", arg(&target), "--prompt", "w5", "--image", arg(&image)];
        let said = refusal(&arguments);
        assert!(said.contains("broken.png"), "{said}");
    }
}

#[test]
fn an_image_for_a_target_without_eyes() {
    let dir = tempfile::tempdir().unwrap();
    let target = text_target(&dir.path().join("target"));
    let image = picture(&dir.path().join("red.png"), 28);
    let said =
        refusal(&["generate", "--device", "cpu", "--target", arg(&target), "--prompt", "w5", "--image", arg(&image)]);
    assert!(said.contains("image"), "{said}");
}

#[test]
fn a_prompt_longer_than_the_context() {
    let dir = tempfile::tempdir().unwrap();
    let target = text_target(&dir.path().join("target"));
    let long = "w5 ".repeat(200);
    let said = refusal(&["generate", "--device", "cpu", "--target", arg(&target), "--prompt", &long]);
    assert!(said.contains("96"), "{said}");
}

#[test]
fn numbers_out_of_range_and_unknown_names() {
    for arguments in [
        &["generate", "--target", "t", "--prompt", "x", "--temperature", "-1"][..],
        &["generate", "--target", "t", "--prompt", "x", "--top-p", "0"],
        &["eval", "--target", "t", "--shard", "3/2"],
        &["generate", "--target", "t", "--prompt", "x", "--tree", "many"],
        &["generate", "--target", "t", "--prompt", "x", "--max-new-tokens", "0"],
        &["eval", "--target", "t", "--limit", "0"],
        &["train", "--config", "c", "--dry-run", "--assume", "0x500"],
        &["no-such-command"],
    ] {
        let output = crate::common::sightdraft(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(String::from_utf8_lossy(&output.stderr).starts_with("error: "), "{arguments:?}");
    }
    let dir = tempfile::tempdir().unwrap();
    let target = text_target(&dir.path().join("target"));
    let said = refusal(&["eval", "--device", "cpu", "--target", arg(&target), "--benchmark", "trivia"]);
    assert!(said.contains("trivia"), "{said}");
    let said = refusal(&["generate", "--device", "abacus", "--target", arg(&target), "--prompt", "w5"]);
    assert!(said.contains("abacus"), "{said}");
}

#[test]
fn rows_that_nothing_tells_apart() {
    for (option, values, word) in [
        ("--benchmark", ["charts", "charts"], "charts twice"),
        ("--benchmark", ["gsm8k=a", "gsm8k=b"], "gsm8k twice"),
        ("--temperature", ["0,1", "0.0"], "0 twice"),
        ("--draft", ["runs/a/best", "runs/b/best"], "best twice"),
        ("--draft", ["a=runs/a", "plain=runs/b"], "plain twice"),
        ("--draft", ["a=runs/a", "t=runs/b"], "t twice"),
    ] {
        let said = refusal(&["eval", "--target", "models/t", option, values[0], option, values[1]]);
        assert!(said.contains(option) && said.contains(word), "{said}");
    }
}

#[test]
fn a_report_that_cannot_be_written_is_refused_before_anything_is_measured() {
    let dir = tempfile::tempdir().unwrap();
    let target = image_target(&dir.path().join("target"));
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    let out = file.join("report");
    // Without a limit: 200 charts would take a while.
    let said = refusal(&["eval", "--device", "cpu", "--target", arg(&target), "--out", arg(&out)]);
    assert!(said.contains("cannot create"), "{said}");
}

/// `sightdraft .. | head -1`: the reader goes away, and that is no fault.
#[test]
fn a_closed_pipe() {
    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_sightdraft"))
        .args(["devices"])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn an_unknown_key_in_a_recipe() {
    let dir = tempfile::tempdir().unwrap();
    let recipe = dir.path().join("recipe.toml");
    std::fs::write(&recipe, "target = \"t\"\ndata = \"d\"\nheld_out = \"h\"\nout = \"o\"\nepochz = 3\n").unwrap();
    let said = refusal(&["train", "--config", arg(&recipe), "--dry-run"]);
    assert!(said.contains("recipe.toml") && said.contains("epochz"), "{said}");
}

#[test]
fn data_that_are_not_there_are_missed_before_the_target_is_loaded() {
    let dir = tempfile::tempdir().unwrap();
    let (recipe, data) = (dir.path().join("recipe.toml"), dir.path().join("train.jsonl"));
    std::fs::write(&data, "{\"id\": \"a\", \"messages\": [{\"role\": \"user\", \"content\": \"Why?\"}]}\n").unwrap();
    let text = format!("target = \"./no-such-target\"\ndata = {data:?}\nheld_out = \"held-aut.jsonl\"\nout = \"o\"\n");
    std::fs::write(&recipe, text).unwrap();
    let said = refusal(&["train", "--config", arg(&recipe)]);
    assert!(said.contains("held-aut.jsonl"), "{said}");
}
