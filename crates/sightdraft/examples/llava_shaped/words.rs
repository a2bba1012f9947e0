//! The language model's tokenizer with a place for `<image>`.

use std::path::Path;

use serde_json::{Value, json};
use sightdraft_core::{Error, Result, files};

/// Stands for an image in the prompt.
const IMAGE: &str = "<image>";

/// Writes tokenizer, chat template and stop ids of `text` into `out`, one of the special tokens renamed to `<image>`, and gives its
/// id. No token is added: the embedding keeps its shape, and no library looks up an id that it does not have.
///
/// # Errors
/// A file that is missing or malformed, or a tokenizer without a special token to spare.
pub fn prepare(text: &Path, out: &Path) -> Result<u32> {
    let mut config: Value = files::read_json(&text.join("tokenizer_config.json"))?;
    let path = text.join("tokenizer.json");
    let mut tokenizer: Value = files::read_json(&path)?;
    let id = rename(&mut tokenizer, &config.to_string()).ok_or_else(|| {
        Error::file(
            &path,
            "a special token that tokenizer_config.json never names, to become <image>",
            "none",
            "add one that is not used",
        )
    })?;
    config["image_token"] = json!(IMAGE);
    write(&out.join("tokenizer.json"), &tokenizer.to_string())?;
    write(&out.join("tokenizer_config.json"), &format!("{config:#}\n"))?;
    write(&out.join("generation_config.json"), &files::read_text(&text.join("generation_config.json"))?)?;
    Ok(id)
}

fn write(path: &Path, text: &str) -> Result<()> {
    files::write_atomically(path, text.as_bytes())
}

/// Renames the last special token that does not occur in `used`, in the list of added tokens and in the vocabulary.
fn rename(tokenizer: &mut Value, used: &str) -> Option<u32> {
    let added = tokenizer["added_tokens"].as_array_mut()?;
    let spare = added.iter_mut().rfind(|token| {
        let content = token["content"].as_str().unwrap_or_default();
        token["special"] == true && (content == IMAGE || !used.contains(content))
    })?;
    let id = spare["id"].as_u64()?;
    let old = spare["content"].as_str()?.to_owned();
    spare["content"] = json!(IMAGE);
    if let Some(vocabulary) = tokenizer["model"]["vocab"].as_object_mut()
        && vocabulary.remove(&old).is_some()
    {
        vocabulary.insert(IMAGE.into(), json!(id));
    }
    u32::try_from(id).ok()
}
