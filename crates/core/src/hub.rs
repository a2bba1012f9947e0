//! A path or a hub name, resolved to a local directory.

use std::path::{Path, PathBuf};

use hf_hub::api::sync::{Api, ApiBuilder};
use hf_hub::{Cache, Repo, RepoType};

use crate::{Error, Result};

/// What the environment says about the hub.
#[derive(Debug, Default)]
struct Settings {
    token: Option<String>,
    endpoint: Option<String>,
    home: Option<PathBuf>,
    offline: bool,
}

impl Settings {
    fn from_environment() -> Self {
        let text = |key| std::env::var(key).ok().filter(|value| !value.is_empty());
        Self {
            token: text("HF_TOKEN"),
            endpoint: text("HF_ENDPOINT"),
            home: text("HF_HOME").map(PathBuf::from),
            offline: text("HF_HUB_OFFLINE")
                .is_some_and(|v| ["1", "on", "yes", "true"].contains(&v.to_lowercase().as_str())),
        }
    }

    fn cache(&self) -> Cache {
        self.home.as_ref().map_or_else(Cache::default, |home| Cache::new(home.join("hub")))
    }

    fn api(&self) -> Result<Api, hf_hub::api::sync::ApiError> {
        let mut builder = ApiBuilder::from_cache(self.cache());
        if let Some(token) = &self.token {
            builder = builder.with_token(Some(token.clone()));
        }
        if let Some(endpoint) = &self.endpoint {
            builder = builder.with_endpoint(endpoint.trim_end_matches('/').to_owned());
        }
        builder.build()
    }
}

/// `model` as a local directory if it exists, else as `owner/name` or `owner/name@revision` on the Hugging Face hub (HF_TOKEN,
/// HF_ENDPOINT, HF_HOME and HF_HUB_OFFLINE are honoured). Downloads configs, tokenizer and weights on first use; with no
/// connection, or offline, the copy in the cache is used.
///
/// # Errors
/// Neither a directory nor a hub name, a hub that refuses or cannot be reached, or offline without a cached copy.
pub fn resolve(model: &str) -> Result<PathBuf> {
    resolve_with(model, Part::Whole, &Settings::from_environment())
}

/// As [`resolve`], but what is downloaded is configs, tokenizer and template: enough to plan, without gigabytes of weights.
///
/// # Errors
/// Those of [`resolve`].
pub fn resolve_configs(model: &str) -> Result<PathBuf> {
    resolve_with(model, Part::Configs, &Settings::from_environment())
}

/// How much of a repository is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Whole,
    Configs,
}

fn resolve_with(model: &str, part: Part, settings: &Settings) -> Result<PathBuf> {
    let path = Path::new(model);
    if path.is_dir() {
        return Ok(path.to_path_buf());
    }
    let repo = hub_name(model).ok_or_else(|| {
        let found = if path.exists() { "a file" } else { "neither" };
        let path = if model.is_empty() { Path::new("model name") } else { path };
        Error::file(path, "a model directory or a hub name `owner/name`", found, "check the path")
    })?;
    let cached = || settings.cache().repo(repo.clone()).get("config.json").and_then(|file| parent(&file));
    if settings.offline {
        return cached().ok_or_else(|| {
            Error::invalid(
                format!("model `{model}`"),
                "a local directory or a cached copy (HF_HUB_OFFLINE is set)",
                "neither",
                "unset HF_HUB_OFFLINE to download it, or give a path",
            )
        });
    }
    match download(&repo, part, settings) {
        Ok(dir) => Ok(dir),
        Err(e) => match cached() {
            Some(dir) => {
                tracing::warn!("the hub did not answer ({e}); using the cached copy of {model}");
                Ok(dir)
            }
            None => Err(Error::invalid(
                format!("model `{model}`"),
                "a local directory or a repository that the hub lets you read",
                format!("no such directory, and the hub answered: {e}"),
                "check the name, HF_TOKEN, HF_ENDPOINT and the connection, or give the path of a directory",
            )),
        },
    }
}

/// `owner/name[@revision]` with the characters that the hub allows.
fn hub_name(model: &str) -> Option<Repo> {
    let (name, revision) = model.split_once('@').unwrap_or((model, "main"));
    let (owner, rest) = name.split_once('/')?;
    let word = |s: &str| {
        !s.is_empty()
            && s.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
            && s.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
    };
    (word(owner) && word(rest) && !revision.is_empty())
        .then(|| Repo::with_revision(name.to_owned(), RepoType::Model, revision.to_owned()))
}

fn download(repo: &Repo, part: Part, settings: &Settings) -> Result<PathBuf, hf_hub::api::sync::ApiError> {
    let files = settings.api()?.repo(repo.clone());
    let names: Vec<String> = files.info()?.siblings.into_iter().map(|sibling| sibling.rfilename).collect();
    let mut dir = None;
    for name in wanted(&names, part) {
        dir = parent(&files.get(name)?).or(dir);
    }
    // A repository without a single wanted file: ask for the one that must be there, and let the hub say so.
    dir.map_or_else(|| files.get("config.json").map(|file| parent(&file).unwrap_or(file)), Ok)
}

/// The files of a model at the top level: configs, tokenizer, template, and (of the whole) weights in one format with their
/// index.
fn wanted(names: &[String], part: Part) -> Vec<&str> {
    let safetensors = names.iter().any(|name| name.ends_with(".safetensors"));
    let kind = |name: &str| match name.rsplit_once('.').map(|(_, extension)| extension) {
        _ if part == Part::Configs && is_of_weights(name) => false,
        Some("json") => !(safetensors && name.ends_with(".bin.index.json")),
        Some("jinja" | "safetensors") => true,
        Some("bin") => !safetensors && name.starts_with("pytorch_model"),
        _ => false,
    };
    names.iter().map(String::as_str).filter(|name| !name.contains('/') && kind(name)).collect()
}

fn is_of_weights(name: &str) -> bool {
    [".safetensors", ".bin", ".index.json"].iter().any(|end| name.ends_with(end))
}

fn parent(file: &Path) -> Option<PathBuf> {
    file.parent().map(Path::to_path_buf)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_wins() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(resolve(dir.path().to_str().unwrap()).unwrap(), dir.path());
    }

    #[test]
    fn neither_path_nor_name() {
        for model in ["/no/such/dir", "model", "a/b/c", "../up", "owner/"] {
            let message = resolve_with(model, Part::Whole, &Settings::default()).unwrap_err().to_string();
            assert!(message.contains("owner/name"), "{message}");
        }
    }

    #[test]
    fn offline_uses_the_cache_or_says_so() {
        let home = tempfile::tempdir().unwrap();
        let settings = Settings { home: Some(home.path().into()), offline: true, ..Settings::default() };
        let message = resolve_with("owner/model", Part::Whole, &settings).unwrap_err().to_string();
        assert!(message.contains("HF_HUB_OFFLINE"), "{message}");
        let repo = home.path().join("hub/models--owner--model");
        let snapshot = repo.join("snapshots/abc");
        std::fs::create_dir_all(repo.join("refs")).unwrap();
        std::fs::create_dir_all(&snapshot).unwrap();
        std::fs::write(repo.join("refs/main"), "abc").unwrap();
        std::fs::write(snapshot.join("config.json"), "{}").unwrap();
        assert_eq!(resolve_with("owner/model", Part::Whole, &settings).unwrap(), snapshot);
    }

    #[test]
    fn a_hub_that_cannot_be_reached_is_one_sentence() {
        let home = tempfile::tempdir().unwrap();
        // Port 9 of this machine: refused at once, no network needed.
        let endpoint = Some("http://127.0.0.1:9".to_owned());
        let settings = Settings { home: Some(home.path().into()), endpoint, ..Settings::default() };
        let message = resolve_with("owner/model", Part::Whole, &settings).unwrap_err().to_string();
        assert!(message.contains("owner/model") && message.contains("HF_ENDPOINT"), "{message}");
    }

    #[test]
    fn one_format_of_weights() {
        let names = |list: &[&str]| list.iter().map(|s| s.to_string()).collect::<Vec<_>>();
        let both = names(&[
            "config.json",
            "model.safetensors",
            "pytorch_model.bin",
            "pytorch_model.bin.index.json",
            "onnx/a.json",
        ]);
        assert_eq!(wanted(&both, Part::Whole), ["config.json", "model.safetensors"]);
        let pickled = names(&["config.json", "pytorch_model.bin", "pytorch_model.bin.index.json", "training_args.bin"]);
        assert_eq!(wanted(&pickled, Part::Whole), ["config.json", "pytorch_model.bin", "pytorch_model.bin.index.json"]);
    }

    #[test]
    fn a_plan_downloads_no_weights() {
        let names: Vec<String> =
            ["config.json", "tokenizer.json", "chat_template.jinja", "model.safetensors.index.json", "a.safetensors"]
                .map(String::from)
                .into();
        assert_eq!(wanted(&names, Part::Configs), ["config.json", "tokenizer.json", "chat_template.jinja"]);
        assert_eq!(wanted(&names, Part::Whole).len(), 5);
    }
}
