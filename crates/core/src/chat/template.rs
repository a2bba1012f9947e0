//! Rendering a Hugging Face chat template with minijinja.

use std::path::{Path, PathBuf};

use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, ErrorKind, Value, context};

use super::source::Source;
use super::{Message, Role};
use crate::{Error, Result};

/// A name no chat contains, used to see how a template wants its words.
const PROBE: &str = "\u{E000}probe\u{E001}";
const IMAGE: &str = "<image>";

/// A compiled template.
pub(super) struct Jinja {
    environment: Environment<'static>,
    origin: PathBuf,
    bos: String,
    eos: String,
    /// Content goes in as a list of typed parts (LLaVA and other processors' templates) instead of a string.
    parts: bool,
}

impl Jinja {
    /// Compiles the template and finds out whether it takes strings or typed parts.
    pub(super) fn new(source: Source) -> Result<Self> {
        let mut environment = Environment::new();
        // As transformers sets up Jinja2.
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
        environment.set_syntax(syntax.map_err(|e| fault(&source.origin, "Jinja's usual syntax", &e))?);
        environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.add_function("raise_exception", |message: String| -> Result<Value, minijinja::Error> {
            Err(minijinja::Error::new(ErrorKind::InvalidOperation, message))
        });
        // `strftime_now` stays undefined on purpose: templates that ask for it then use their fixed date, and a prompt
        // does not change from one day to the next.
        let template = without_generation_marks(&source.template);
        let mut jinja = Self { environment, origin: source.origin, bos: source.bos, eos: source.eos, parts: false };
        let added = jinja.environment.add_template_owned("chat", template);
        added.map_err(|e| jinja.fault("a valid Jinja template", &e))?;
        jinja.probe()?;
        Ok(jinja)
    }

    /// Strings first, typed parts next; a template that shows the user's words in neither form is refused.
    fn probe(&mut self) -> Result<()> {
        let message = [Message::user(PROBE)];
        let as_string = self.render(&message, false);
        if as_string.as_ref().is_ok_and(|text| text.contains(PROBE)) {
            return Ok(());
        }
        self.parts = true;
        if self.render(&message, false).is_ok_and(|text| text.contains(PROBE)) {
            return Ok(());
        }
        Err(as_string.err().unwrap_or_else(|| {
            Error::file(
                &self.origin,
                "a chat template that shows what the user says",
                "one whose rendering lacks it",
                "check that it is the template of this model",
            )
        }))
    }

    /// The text of `messages`; `generate` opens the next assistant turn.
    pub(super) fn render(&self, messages: &[Message], generate: bool) -> Result<String> {
        let messages: Vec<Value> = messages
            .iter()
            .map(|message| context! { role => role(message.role), content => self.content(&message.content) })
            .collect();
        let values = context! {
            messages => messages,
            add_generation_prompt => generate,
            bos_token => self.bos.as_str(),
            eos_token => self.eos.as_str(),
        };
        let template = self.environment.get_template("chat").map_err(|e| self.fault("a valid Jinja template", &e))?;
        template.render(values).map_err(|e| self.fault("messages that this chat template accepts", &e))
    }

    /// Where the template was found.
    pub(super) fn origin(&self) -> &PathBuf {
        &self.origin
    }

    fn content(&self, content: &str) -> Value {
        if !self.parts {
            return Value::from(content);
        }
        let mut parts = Vec::new();
        for (at, text) in content.split(IMAGE).enumerate() {
            if at > 0 {
                parts.push(context! { type => "image" });
            }
            // The template writes its own line break around an image.
            let text = if at > 0 { text.strip_prefix('\n').unwrap_or(text) } else { text };
            if !text.is_empty() {
                parts.push(context! { type => "text", text => text });
            }
        }
        Value::from(parts)
    }

    fn fault(&self, expected: &str, e: &minijinja::Error) -> Error {
        fault(&self.origin, expected, e)
    }
}

fn fault(origin: &Path, expected: &str, e: &minijinja::Error) -> Error {
    Error::file(origin, expected, e.to_string(), "change the messages or the template")
}

fn role(role: Role) -> &'static str {
    match role {
        Role::System => "system",
        Role::User => "user",
        Role::Assistant => "assistant",
    }
}

/// transformers' `{% generation %}` marks the assistant's words and renders nothing of its own. An `if true` has the same
/// text and keeps the whitespace control of the tag.
fn without_generation_marks(template: &str) -> String {
    let mut out = String::with_capacity(template.len());
    let mut rest = template;
    while let Some(open) = rest.find("{%") {
        let Some(length) = rest[open..].find("%}") else { break };
        let (tag, after) = (&rest[open + 2..open + length], &rest[open + length + 2..]);
        out.push_str(&rest[..open]);
        out.push_str("{%");
        match tag.trim_matches(|c: char| c.is_whitespace() || c == '-' || c == '+') {
            "generation" => out.push_str(&tag.replace("generation", "if true")),
            "endgeneration" => out.push_str(&tag.replace("endgeneration", "endif")),
            _ => out.push_str(tag),
        }
        out.push_str("%}");
        rest = after;
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn jinja(template: &str) -> Result<Jinja> {
        Jinja::new(Source::text(template, "<s>", "</s>"))
    }

    #[test]
    fn a_template_may_refuse_in_its_own_words() {
        let template = "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system turn') }}{% endif %}{{ m.content }}{% endfor %}";
        let refused = jinja(template).unwrap().render(&[Message::system("x")], false).unwrap_err().to_string();
        assert!(refused.contains("no system turn"), "{refused}");
    }

    #[test]
    fn a_template_without_words_or_syntax_is_refused() {
        assert!(jinja("hello").err().unwrap().to_string().contains("what the user says"));
        assert!(jinja("{% for %}").err().unwrap().to_string().contains("valid Jinja"));
    }

    #[test]
    fn generation_marks_vanish_and_keep_their_dashes() {
        assert_eq!(
            without_generation_marks("a{%- generation -%}b{% endgeneration %}c"),
            "a{%- if true -%}b{% endif %}c"
        );
        let text =
            jinja("{% for m in messages %} {%- generation -%} {{ m.content }} {%- endgeneration %}.{% endfor %}");
        assert_eq!(text.unwrap().render(&[Message::user("x")], false).unwrap(), "x.");
    }
}
