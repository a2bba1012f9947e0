//! Every draft method through the command line: fresh drafts decode losslessly, the image shown or withheld, and train on images.

use std::path::{Path, PathBuf};

use burn::tensor::{DType, Device};
use sightdraft_draft::{DraftConfig, DraftModel, Method, VocabMap};
use sightdraft_target::{Llama, ServedTarget};

use crate::common::{arg, image_target, json, picture, sightdraft};

/// A fresh draft of `method` for `target`.
fn fresh(dir: &Path, method: Method, target: &Llama) -> PathBuf {
    let device = Device::flex();
    device.seed(4);
    let size = target.config.vocab_size;
    let config = DraftConfig::for_target(method, &target.config, size).unwrap();
    let dir = dir.join(method.name());
    std::fs::create_dir_all(&dir).unwrap();
    DraftModel::init(config, VocabMap::identity(size), target, &device).save(&dir).unwrap();
    dir
}

/// Fresh drafts of every method for the target in `target`.
fn all_fresh(dir: &Path, target: &Path) -> Vec<PathBuf> {
    let target = ServedTarget::open(target, DType::F32, &Device::flex()).unwrap();
    Method::ALL.iter().map(|&method| fresh(dir, method, target.model.llama())).collect()
}

#[test]
fn fresh_drafts_of_every_method_change_no_token_of_the_built_in_target() {
    let dir = tempfile::tempdir().unwrap();
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("assets/builtin");
    let image = picture(&dir.path().join("red.png"), 140);
    let common = ["generate", "--json", "--device", "cpu", "--target", arg(&target), "--image", arg(&image)];
    let common = [&common[..], &["--prompt", "Describe this chart.", "--max-new-tokens", "12"]].concat();
    let plain = json(&common);
    for draft in all_fresh(dir.path(), &target) {
        let drafted = json(&[&common[..], &["--draft", arg(&draft)]].concat());
        assert_eq!(drafted["token_ids"], plain["token_ids"], "{}", draft.display());
    }
}

#[test]
fn every_method_is_measured_with_the_image_and_without() {
    let dir = tempfile::tempdir().unwrap();
    let target = image_target(&dir.path().join("target"));
    let drafts = all_fresh(dir.path(), &target);
    let mut arguments = vec!["eval", "--json", "--device", "cpu", "--target", arg(&target), "--limit", "2", "--blind"];
    arguments.extend(["--max-new-tokens", "8", "--warm-up", "0", "--tree", "16/4/4"]);
    drafts.iter().for_each(|draft| arguments.extend(["--draft", arg(draft)]));
    let out = dir.path().join("out");
    arguments.extend(["--out", arg(&out)]);
    let report = json(&arguments);
    let runs = report["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 1 + 2 * Method::ALL.len());
    for run in runs {
        assert_eq!((&run["lossless"]["same"], &run["lossless"]["of"]), (&2.into(), &2.into()), "{}", run["name"]);
    }
    for method in Method::ALL {
        let has = |name: String| runs.iter().any(|run| run["name"] == name);
        assert!(has(method.name().into()) && has(format!("{method} (blind)", method = method.name())));
    }
}

#[test]
fn drafts_that_treat_images_apart_train_on_images_and_are_used() {
    let dir = tempfile::tempdir().unwrap();
    let target = image_target(&dir.path().join("target"));
    let image = picture(&dir.path().join("red.png"), 40);
    let file = |name: &str| dir.path().join(name);
    // With an image, without one, and with two side by side.
    let line = |id: &str, images: usize| {
        let user = format!("{}w5 w6", "<image> ".repeat(images));
        let images = vec!["red.png"; images];
        let said = [("user", user.as_str()), ("assistant", "w7 w8 w9 w10 w11")];
        let messages = said.map(|(role, content)| serde_json::json!({"role": role, "content": content}));
        serde_json::json!({"id": id, "messages": messages, "images": images}).to_string()
    };
    std::fs::write(file("data.jsonl"), [line("a", 1), line("b", 0), line("c", 2)].join("\n")).unwrap();
    for method in [Method::Msd, Method::Vispec] {
        let (data, run, recipe) = (file("data.jsonl"), file(method.name()), file("recipe.toml"));
        let text = format!(
            "target = {target:?}\nmethod = \"{}\"\ndata = {data:?}\nheld_out = {data:?}\nout = {run:?}\nunroll = 2\nmax_steps = 2\n",
            method.name(),
        );
        std::fs::write(&recipe, text).unwrap();
        let trained = sightdraft(&["train", "--device", "cpu", "--config", arg(&recipe)]);
        assert!(trained.status.success(), "{}", String::from_utf8_lossy(&trained.stderr));
        let draft = run.join("last");
        let generate = ["generate", "--json", "--device", "cpu", "--target", arg(&target), "--prompt", "w9"];
        let generate = [&generate[..], &["--max-new-tokens", "6", "--image", arg(&image)]].concat();
        let drafted = json(&[&generate[..], &["--draft", arg(&draft)]].concat());
        assert_eq!(drafted["token_ids"], json(&generate)["token_ids"], "{method}");
    }
}
