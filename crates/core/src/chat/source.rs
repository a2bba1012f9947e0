//! Where a template comes from: a model directory's files, or the prompts of models that shipped without one.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;

use crate::{Error, Result, files};

/// A template's text, its special tokens, and where it was found.
pub(super) struct Source {
    /// The file (or the built-in's name) for error messages.
    pub(super) origin: PathBuf,
    pub(super) template: String,
    pub(super) bos: String,
    pub(super) eos: String,
}

impl Source {
    pub(super) fn text(template: &str, bos: &str, eos: &str) -> Self {
        Self { origin: "chat template".into(), template: template.into(), bos: bos.into(), eos: eos.into() }
    }
}

/// FastChat's `vicuna_v1.1` and LLaVA's `llava_v1` differ in the system sentence only.
const TURNS: &str = "{% for message in messages %}{% if message.role == 'user' %}{{ 'USER: ' + message.content }}\
    {% elif message.role == 'assistant' %}{{ ' ASSISTANT: ' + message.content + eos_token }}{% endif %}{% endfor %}\
    {% if add_generation_prompt %}{{ ' ASSISTANT:' }}{% endif %}";

const VICUNA: &str = "A chat between a curious user and an artificial intelligence assistant. The assistant gives helpful, \
                      detailed, and polite answers to the user's questions.";
const LLAVA: &str = "A chat between a curious human and an artificial intelligence assistant. The assistant gives helpful, \
                     detailed, and polite answers to the human's questions.";

/// The built-in prompt `name`.
pub(super) fn builtin(name: &str) -> Result<Source> {
    let system = match name {
        "vicuna_v1.1" => VICUNA,
        "llava_v1" => LLAVA,
        other => {
            return Err(Error::invalid(
                "chat template",
                "`vicuna_v1.1` or `llava_v1`",
                format!("`{other}`"),
                "name one of these, or put a chat_template.jinja into the model directory",
            ));
        }
    };
    let template = format!(
        "{{% if messages[0].role == 'system' %}}{{{{ messages[0].content + ' ' }}}}{{% else %}}{{{{ \"{system} \" }}}}{{% endif %}}{TURNS}"
    );
    Ok(Source { origin: name.into(), template, bos: "<s>".into(), eos: "</s>".into() })
}

/// One template, or several by name (`default` is the chat).
#[derive(Deserialize)]
#[serde(untagged)]
enum Templates {
    One(String),
    Named(Vec<Named>),
}

#[derive(Deserialize)]
struct Named {
    name: String,
    template: String,
}

impl Templates {
    fn chat(self) -> Option<String> {
        match self {
            Self::One(template) => Some(template),
            Self::Named(mut named) => {
                let at = named.iter().position(|n| n.name == "default").unwrap_or(0);
                (at < named.len()).then(|| named.swap_remove(at).template)
            }
        }
    }
}

/// A special token: its text, or an added token's record.
#[derive(Deserialize)]
#[serde(untagged)]
enum Special {
    Text(String),
    Record { content: String },
}

impl Special {
    fn text(self) -> String {
        match self {
            Self::Text(text) | Self::Record { content: text } => text,
        }
    }
}

/// What tokenizer_config.json (and chat_template.json, which has the one key) says about chats.
#[derive(Deserialize, Default)]
struct TokenizerConfig {
    chat_template: Option<Templates>,
    bos_token: Option<Special>,
    eos_token: Option<Special>,
}

fn read_if_there(path: &Path) -> Result<TokenizerConfig> {
    if path.is_file() { files::read_json(path) } else { Ok(TokenizerConfig::default()) }
}

/// The template of a model directory.
pub(super) fn find(dir: &Path) -> Result<Source> {
    if !dir.is_dir() {
        return Err(Error::file(dir, "a model directory", "no directory", "check the path"));
    }
    let tokenizer_config = dir.join("tokenizer_config.json");
    let config = read_if_there(&tokenizer_config)?;
    let (bos, eos) = (config.bos_token.map(Special::text), config.eos_token.map(Special::text));
    let own = |origin: PathBuf, template| Source {
        origin,
        template,
        bos: bos.clone().unwrap_or_default(),
        eos: eos.clone().unwrap_or_default(),
    };
    let jinja = dir.join("chat_template.jinja");
    if jinja.is_file() {
        let template = files::read_text(&jinja)?;
        return Ok(own(jinja, template));
    }
    if let Some(template) = config.chat_template.and_then(Templates::chat) {
        return Ok(own(tokenizer_config, template));
    }
    let json = dir.join("chat_template.json");
    if let Some(template) = read_if_there(&json)?.chat_template.and_then(Templates::chat) {
        return Ok(own(json, template));
    }
    let name = family(dir).ok_or_else(|| {
        Error::file(
            dir,
            "a chat template (chat_template.jinja, or `chat_template` in tokenizer_config.json)",
            "none",
            "add one, or name a built-in prompt: `vicuna_v1.1` or `llava_v1`",
        )
    })?;
    let source = builtin(name)?;
    Ok(Source { bos: bos.unwrap_or(source.bos), eos: eos.unwrap_or(source.eos), ..source })
}

/// The built-in prompt that fits a directory without a template, read off its config and name.
fn family(dir: &Path) -> Option<&'static str> {
    let config: Value = files::read_json(&dir.join("config.json")).ok()?;
    let text = |key: &str| config.get(key).and_then(Value::as_str).unwrap_or_default().to_lowercase();
    let folder = dir.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
    if text("model_type").starts_with("llava") {
        Some("llava_v1")
    } else if text("_name_or_path").contains("vicuna") || folder.contains("vicuna") {
        Some("vicuna_v1.1")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find_in(files: &[(&str, &str)]) -> Result<Source> {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(dir.path().join(name), text).unwrap();
        }
        find(dir.path())
    }

    #[test]
    fn every_place_and_spelling() {
        let config = |template: &str| {
            format!(r#"{{"chat_template": {template}, "bos_token": {{"content": "<b>"}}, "eos_token": "<e>"}}"#)
        };
        let one = find_in(&[("tokenizer_config.json", &config("\"A\""))]).unwrap();
        assert_eq!((one.template.as_str(), one.bos.as_str(), one.eos.as_str()), ("A", "<b>", "<e>"));
        let named = config(r#"[{"name": "tool_use", "template": "T"}, {"name": "default", "template": "D"}]"#);
        assert_eq!(find_in(&[("tokenizer_config.json", &named)]).unwrap().template, "D");
        let json = ("chat_template.json", r#"{"chat_template": "J"}"#);
        assert_eq!(find_in(&[("tokenizer_config.json", &config("null")), json]).unwrap().template, "J");
        assert_eq!(find_in(&[("chat_template.jinja", "F"), json]).unwrap().template, "F");
    }

    #[test]
    fn built_in_by_family_else_an_error() {
        let llava = find_in(&[("config.json", r#"{"model_type": "llava"}"#)]).unwrap();
        assert_eq!((llava.origin, llava.eos.as_str()), ("llava_v1".into(), "</s>"));
        let vicuna = find_in(&[("config.json", r#"{"_name_or_path": "lmsys/vicuna-7b-v1.5"}"#)]).unwrap();
        assert_eq!(vicuna.origin, PathBuf::from("vicuna_v1.1"));
        let none = find_in(&[("config.json", r#"{"model_type": "llama"}"#)]).err().unwrap().to_string();
        assert!(none.contains("chat template") && none.contains("llava_v1"), "{none}");
    }
}
