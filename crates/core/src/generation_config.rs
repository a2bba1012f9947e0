//! `generation_config.json`: the ids that end an answer.

use std::path::Path;

use serde::Deserialize;

use crate::{Error, Result, files};

/// Hugging Face writes one id or a list of them.
#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    One(u32),
    Many(Vec<u32>),
}

/// The part of a config file that names the end of an answer. LLaVA keeps it in `text_config`.
#[derive(Deserialize)]
struct EosConfig {
    eos_token_id: Option<OneOrMany>,
    text_config: Option<Box<EosConfig>>,
}

impl EosConfig {
    fn ids(self) -> Option<Vec<u32>> {
        match self.eos_token_id {
            Some(OneOrMany::One(id)) => Some(vec![id]),
            Some(OneOrMany::Many(ids)) if !ids.is_empty() => Some(ids),
            _ => self.text_config.and_then(|text| text.ids()),
        }
    }
}

/// The EOS ids of a model directory: generation_config.json, else config.json (its `text_config` for LLaVA); one or
/// several.
///
/// # Errors
/// A file that does not parse, or no file that names an id.
pub fn eos_ids(dir: &Path) -> Result<Vec<u32>> {
    for name in ["generation_config.json", "config.json"] {
        let path = dir.join(name);
        if path.is_file()
            && let Some(ids) = files::read_json::<EosConfig>(&path)?.ids()
        {
            return Ok(ids);
        }
    }
    Err(Error::file(
        dir,
        "`eos_token_id` in generation_config.json or config.json",
        "neither file with that key",
        "add `\"eos_token_id\": N` to generation_config.json",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(files: &[(&str, &str)]) -> Result<Vec<u32>> {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(dir.path().join(name), text).unwrap();
        }
        eos_ids(dir.path())
    }

    #[test]
    fn one_or_several_and_where() {
        let config = ("config.json", r#"{"eos_token_id": 2}"#);
        assert_eq!(ids(&[config]).unwrap(), [2]);
        assert_eq!(ids(&[config, ("generation_config.json", r#"{"eos_token_id": [7, 9]}"#)]).unwrap(), [7, 9]);
        assert_eq!(ids(&[config, ("generation_config.json", r#"{"eos_token_id": null}"#)]).unwrap(), [2]);
        assert_eq!(ids(&[("config.json", r#"{"text_config": {"eos_token_id": 5}}"#)]).unwrap(), [5]);
    }

    #[test]
    fn absent_is_an_error_that_says_how_to_mend() {
        assert!(ids(&[]).unwrap_err().to_string().contains("eos_token_id"));
    }
}
