//! Every draft method through the commands: planned, trained, inspected, used.

use std::path::{Path, PathBuf};

use crate::common::{VOCABULARY, arg, image_target, json, picture, refusal, sightdraft, text_target};

const METHODS: [&str; 6] = ["eagle1", "hass", "griffin", "msd", "vispec", "eagle3"];

/// A recipe of two steps that trains `method` on four short answers.
fn recipe(dir: &Path, target: &Path, method: &str) -> PathBuf {
    let data = dir.join("data.jsonl");
    let line = |i: usize| {
        format!(
            "{{\"id\":\"{i}\",\"messages\":[{{\"role\":\"user\",\"content\":\"w{i} w4\"}},{{\"role\":\"assistant\",\"content\":\"w7 w{i} w9\"}}]}}\n"
        )
    };
    std::fs::write(&data, (5..9).map(line).collect::<String>()).unwrap();
    let path = dir.join(format!("{method}.toml"));
    let text = format!(
        "target = {target:?}\nmethod = {method:?}\ndata = {data:?}\nheld_out = {data:?}\nout = {:?}\nunroll = 3\n\
         epochs = 4\nmax_steps = 2\nbatch_tokens = 32\n",
        dir.join(method)
    );
    std::fs::write(&path, text).unwrap();
    path
}

#[test]
fn each_method_is_planned_trained_inspected_and_used() {
    let dir = tempfile::tempdir().unwrap();
    let target = text_target(&dir.path().join("target"));
    let seeing = image_target(&dir.path().join("seeing"));
    let image = picture(&dir.path().join("red.png"), 40);
    let ask = |target: &Path, more: &[&str]| {
        let common = ["generate", "--json", "--device", "cpu", "--target", arg(target), "--prompt", "w5 w6"];
        json(&[&common[..], &["--max-new-tokens", "10"], more].concat())["token_ids"].clone()
    };
    let (plain, plain_seeing) = (ask(&target, &[]), ask(&seeing, &["--image", arg(&image)]));
    for method in METHODS {
        let recipe = recipe(dir.path(), &target, method);
        for more in [&["--dry-run"][..], &["--device", "cpu"]] {
            let output = sightdraft(&[&["train", "--config", arg(&recipe)], more].concat());
            assert!(output.status.success(), "{method}: {}", String::from_utf8_lossy(&output.stderr));
        }
        let draft = dir.path().join(method).join("last");
        let seen = json(&["inspect", "--json", arg(&draft), "--target", arg(&target)]);
        assert_eq!((&seen["kind"], &seen["fit"]["fits"]), (&method.into(), &true.into()));
        // What the headers say is what the config says.
        std::fs::create_dir(draft.join("config")).unwrap();
        std::fs::copy(draft.join("config.json"), draft.join("config/config.json")).unwrap();
        let planned = json(&["inspect", "--json", arg(&draft.join("config"))]);
        assert_eq!(planned["parameters"], seen["parameters"], "{method}");
        assert_eq!(ask(&target, &["--draft", arg(&draft)]), plain, "{method}");
        assert_eq!(ask(&seeing, &["--image", arg(&image), "--draft", arg(&draft)]), plain_seeing, "{method}");
    }
}

#[test]
fn a_method_that_shares_the_head_takes_no_smaller_vocabulary() {
    let dir = tempfile::tempdir().unwrap();
    let target = text_target(&dir.path().join("target"));
    let recipe = recipe(dir.path(), &target, "hass");
    let smaller = format!("draft_vocab_size={}", VOCABULARY / 2);
    let message = refusal(&["train", "--dry-run", "--config", arg(&recipe), "--set", &smaller]);
    assert!(message.contains("draft_vocab_size") && message.contains("HASS"), "{message}");
    let message = refusal(&["train", "--dry-run", "--config", arg(&recipe), "--set", "method=medusa"]);
    assert!(message.contains("medusa"), "{message}");
}
