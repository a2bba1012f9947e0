//! Drafts on their way to other programs.

use crate::common::{VOCABULARY, arg, draft, json, refusal, sightdraft, text_target};

#[test]
fn a_draft_is_exported_inspected_and_used() {
    let dir = tempfile::tempdir().unwrap();
    let target = text_target(&dir.path().join("target"));
    let draft = draft(&dir.path().join("draft"), VOCABULARY);
    let answer = |draft: &str| {
        let ask = ["generate", "--json", "--device", "cpu", "--prompt", "w5", "--max-new-tokens", "8"];
        let answer = json(&[&ask[..], &["--target", arg(&target), "--draft", draft]].concat());
        (answer["token_ids"].clone(), answer["accepted_per_pass"].clone())
    };
    let trained = answer(arg(&draft));
    for format in ["sglang", "vllm", "speculators"] {
        let out = dir.path().join(format);
        let export = ["export", arg(&draft), "--target", arg(&target), "--format", format, "--out", arg(&out)];
        let output = sightdraft(&export);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(answer(arg(&out)), trained, "{format}");
        let seen = json(&["inspect", "--json", arg(&out), "--target", arg(&target)]);
        assert_eq!((&seen["kind"], &seen["fit"]["fits"]), (&"eagle3".into(), &true.into()), "{format}");
        let servers = seen["servers"].as_array().unwrap();
        assert!(servers.iter().any(|server| server["server"] == format && server["loads"] == true), "{servers:?}");
        // A second time it is in the way.
        assert!(refusal(&export).contains("not there yet"));
    }
    let said = String::from_utf8(sightdraft(&["inspect", arg(&dir.path().join("speculators"))]).stdout).unwrap();
    assert!(said.contains("sightdraft export --format sglang"), "{said}");
    assert_eq!(json(&["inspect", "--json", arg(&target)])["servers"], serde_json::Value::Null);
}

#[test]
fn what_cannot_be_exported_is_one_sentence() {
    let dir = tempfile::tempdir().unwrap();
    let target = text_target(&dir.path().join("target"));
    let draft = draft(&dir.path().join("draft"), VOCABULARY);
    let out = dir.path().join("out");
    let export = |draft: &str, target: &str, out: &str| {
        refusal(&["export", draft, "--target", target, "--format", "speculators", "--out", out])
    };
    assert!(export(arg(&target), arg(&target), arg(&out)).contains("draft"));
    assert!(export(arg(&draft), arg(&draft), arg(&out)).contains("num_hidden_layers"));
    let below_a_file = draft.join("config.json").join("out");
    assert!(export(arg(&draft), arg(&target), arg(&below_a_file)).contains("config.json/out"));
    assert!(!out.exists());
}
