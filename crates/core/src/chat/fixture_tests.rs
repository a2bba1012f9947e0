//! Renderings, ids and masks against what transformers and FastChat gave.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

use super::{ChatTemplate, Message, Rendered, Role, assistant_mask};
use crate::{Tokenizer, files};
use sightdraft_fixtures::root;

#[derive(Deserialize)]
struct Templates {
    templates: BTreeMap<String, String>,
    renderings: Vec<Rendering>,
    vicuna: Vec<Vicuna>,
}

#[derive(Deserialize)]
struct Rendering {
    template: String,
    bos_token: String,
    messages: Vec<RawMessage>,
    add_generation_prompt: bool,
    rendered: String,
    ids_llama3_like: Option<Vec<u32>>,
    ids_llama2_like: Option<Vec<u32>>,
}

#[derive(Deserialize)]
struct RawMessage {
    role: Role,
    content: Value,
}

impl RawMessage {
    /// Typed parts as this crate writes them: the images first, a line each, then the text.
    fn message(&self) -> Message {
        let content = match &self.content {
            Value::String(text) => text.clone(),
            parts => {
                let parts = parts.as_array().unwrap();
                let images = parts.iter().filter(|p| p["type"] == "image").map(|_| "<image>\n");
                let texts = parts.iter().filter_map(|p| p["text"].as_str());
                images.chain(texts).collect()
            }
        };
        Message { role: self.role, content }
    }
}

#[derive(Deserialize)]
struct Vicuna {
    template: String,
    turns: Vec<(String, Option<String>)>,
    rendered: String,
    ids_llama2_like: Vec<u32>,
}

#[derive(Deserialize)]
struct Mask {
    messages: Option<Vec<RawMessage>>,
    rendered: String,
    ids: Vec<u32>,
    #[serde(alias = "true_assistant_mask_incl_eot", alias = "true_assistant_mask_incl_eos")]
    truth: Vec<u8>,
}

fn tokenizer(name: &str) -> Tokenizer {
    Tokenizer::open(&root().join("text").join(format!("tokenizer_{name}_like.json"))).unwrap()
}

fn templates() -> Templates {
    files::read_json(&root().join("text").join("chat_templates.json")).unwrap()
}

#[test]
fn fixture_renderings_and_ids() {
    let all = templates();
    let (llama2, llama3) = (tokenizer("llama2"), tokenizer("llama3"));
    assert!(!all.renderings.is_empty());
    for case in &all.renderings {
        let template = ChatTemplate::from_text(&all.templates[&case.template], &case.bos_token, "</s>").unwrap();
        let messages: Vec<Message> = case.messages.iter().map(RawMessage::message).collect();
        let text = template.jinja.render(&messages, case.add_generation_prompt).unwrap();
        assert_eq!(text, case.rendered, "{}", case.template);
        for (tokenizer, ids) in [(&llama2, &case.ids_llama2_like), (&llama3, &case.ids_llama3_like)] {
            let Some(ids) = ids else { continue };
            assert_eq!(&tokenizer.encode_prompt(&text).unwrap(), ids, "{text:?}");
        }
    }
}

#[test]
fn fixture_vicuna_prompts() {
    let llama2 = tokenizer("llama2");
    for case in &templates().vicuna {
        let template = ChatTemplate::builtin(&case.template).unwrap();
        let messages: Vec<Message> = case
            .turns
            .iter()
            .filter_map(|(who, words)| words.as_ref().map(|w| (who, w)))
            .map(|(who, words)| if who == "u" { Message::user(words) } else { Message::assistant(words) })
            .collect();
        let asks = case.turns.last().unwrap().1.is_none();
        let text = template.jinja.render(&messages, asks).unwrap();
        assert_eq!(text, case.rendered);
        assert_eq!(llama2.encode_prompt(&text).unwrap(), case.ids_llama2_like);
    }
}

/// The messages of a mask case that gives its rendering alone (the Vicuna prompt).
fn vicuna_messages(rendered: &str) -> Vec<Message> {
    let (_, turns) = rendered.split_once("USER: ").unwrap();
    turns
        .split("USER: ")
        .flat_map(|turn| {
            let (user, assistant) = turn.split_once(" ASSISTANT: ").unwrap();
            [Message::user(user), Message::assistant(assistant.trim_end_matches("</s>"))]
        })
        .collect()
}

fn mask_case(name: &str, case: &Mask, path: &Path) -> (Tokenizer, Rendered) {
    match &case.messages {
        Some(messages) => {
            let all = templates();
            let named = all.templates.iter().find(|(n, _)| n.starts_with(name));
            let (_, text) = named.unwrap_or_else(|| panic!("{}: no template for {name}", path.display()));
            let template = ChatTemplate::from_text(text, "<|begin_of_text|>", "<|eot_id|>").unwrap();
            let messages: Vec<Message> = messages.iter().map(RawMessage::message).collect();
            (tokenizer("llama3"), template.conversation(&messages).unwrap())
        }
        None => {
            let template = ChatTemplate::builtin("vicuna_v1.1").unwrap();
            (tokenizer("llama2"), template.conversation(&vicuna_messages(&case.rendered)).unwrap())
        }
    }
}

#[test]
fn fixture_loss_masks() {
    let path = root().join("text").join("loss_masks.json");
    let cases: BTreeMap<String, Mask> = files::read_json(&path).unwrap();
    assert!(!cases.is_empty());
    for (name, case) in &cases {
        let (tokenizer, rendered) = mask_case(name, case, &path);
        assert_eq!(rendered.text, case.rendered);
        let (ids, mask) = assistant_mask(&tokenizer, &rendered).unwrap();
        assert_eq!(ids, case.ids, "{name}");
        assert_eq!(mask, case.truth.iter().map(|&t| t == 1).collect::<Vec<_>>(), "{name}");
    }
}

#[test]
fn fixture_template_and_tokenizer_give_one_bos() {
    let all = templates();
    let template = ChatTemplate::from_text(&all.templates["llama3"], "<|begin_of_text|>", "<|eot_id|>").unwrap();
    let llama3 = tokenizer("llama3");
    let bos = llama3.id("<|begin_of_text|>").unwrap();
    let talk = [Message::user("Hi"), Message::assistant("Hello")];
    let (ids, mask) = assistant_mask(&llama3, &template.conversation(&talk).unwrap()).unwrap();
    assert_eq!(ids.iter().filter(|&&id| id == bos).count(), 1);
    assert_eq!(llama3.encode_prompt(&template.prompt(&talk[..1]).unwrap()).unwrap()[..1], [bos]);
    assert!(mask.contains(&false) && mask.contains(&true));
}

#[test]
fn the_llava_prompt_is_the_published_one() {
    let prompt = ChatTemplate::builtin("llava_v1").unwrap().prompt(&[Message::user("<image>\nWhat is it?")]).unwrap();
    assert_eq!(
        prompt,
        "A chat between a curious human and an artificial intelligence assistant. The assistant gives helpful, detailed, \
         and polite answers to the human's questions. USER: <image>\nWhat is it? ASSISTANT:"
    );
}
