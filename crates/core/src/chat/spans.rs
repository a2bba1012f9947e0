//! Finding the assistant's words in a rendering, by rendering it once more with a mark in place of each answer.

use std::ops::Range;

use super::template::Jinja;
use super::{Message, Rendered, Role};
use crate::{Error, Result};

/// The end of a thought, in the one spelling that LLaMA-family reasoning models use.
const THOUGHT_END: &str = "</think>";

/// See [`super::ChatTemplate::conversation`].
pub(super) fn conversation(jinja: &Jinja, messages: &[Message]) -> Result<Rendered> {
    let answers: Vec<usize> = (0..messages.len()).filter(|&i| messages[i].role == Role::Assistant).collect();
    if answers.is_empty() {
        return Err(Error::invalid(
            "conversation",
            "at least one assistant turn to learn from",
            "none",
            "drop this conversation, or let the target answer it first",
        ));
    }
    let text = jinja.render(messages, false)?;
    let marked = Marked::new(jinja, messages, &answers)?;
    if let Some(found) = marked.locate(&text, messages) {
        return Ok(Rendered { assistant: found, text });
    }
    match messages.split_last() {
        Some((last, before)) if last.role == Role::Assistant && last.content.contains(THOUGHT_END) => {
            thinking_turn(jinja, before, last, marked.ends.last().map_or("", String::as_str))
        }
        _ => Err(lost(jinja, "an answer that the template changes or leaves out")),
    }
}

/// A last turn with its thoughts, for templates that would strip them: the prompt that asks for the turn, what the model
/// wrote after it, and the end of the turn.
fn thinking_turn(jinja: &Jinja, before: &[Message], last: &Message, end: &str) -> Result<Rendered> {
    let prompt = jinja.render(before, true)?;
    // The prompt may have opened the thought already; the answer then repeats the opening.
    let opening = ["<think>\n", "<think>"].into_iter().find(|o| prompt.ends_with(o) && last.content.starts_with(o));
    let words = &last.content[opening.map_or(0, str::len)..];
    let text = format!("{prompt}{words}{end}");
    Ok(Rendered { assistant: std::iter::once(prompt.len()..text.len()).collect(), text })
}

/// A rendering with marks instead of answers.
struct Marked<'a> {
    /// Indices of the assistant's messages.
    answers: &'a [usize],
    /// The text before, between and after the marks: one more than there are answers.
    glue: Vec<String>,
    /// What ends each turn: `<|eot_id|>`, `</s>`.
    ends: Vec<String>,
}

impl<'a> Marked<'a> {
    fn new(jinja: &Jinja, messages: &[Message], answers: &'a [usize]) -> Result<Self> {
        if messages.iter().any(|m| m.content.contains('\u{E000}')) {
            return Err(lost(jinja, "the private character U+E000 in a message, which marks the answers here"));
        }
        let mut marked = messages.to_vec();
        for (k, &at) in answers.iter().enumerate() {
            marked[at].content = mark(k);
        }
        let glue = split_at_marks(&jinja.render(&marked, false)?, answers.len())
            .ok_or_else(|| lost(jinja, "a rendering that shows some answer never, twice or out of order"))?;
        let mut ends = Vec::with_capacity(answers.len());
        for (k, &at) in answers.iter().enumerate() {
            // As the last message, an answer is followed by nothing but the end of its turn.
            let alone = jinja.render(&marked[..=at], false)?;
            let tail = alone.rsplit(&mark(k)).next().unwrap_or_default();
            let end = tail.trim_end();
            if !glue[k + 1].starts_with(end) {
                return Err(lost(jinja, "a turn that ends one way in the middle and another way at the end"));
            }
            ends.push(end.to_owned());
        }
        Ok(Self { answers, glue, ends })
    }

    /// Byte spans of the answers and their ends in `text`, the rendering of the real `messages`; `None` if the template
    /// did more than trim an answer.
    fn locate(&self, text: &str, messages: &[Message]) -> Option<Vec<Range<usize>>> {
        let mut at = self.glue[0].len();
        text.starts_with(&self.glue[0]).then_some(())?;
        let mut found = Vec::with_capacity(self.answers.len());
        for (k, &answer) in self.answers.iter().enumerate() {
            let content = messages[answer].content.as_str();
            let next = &self.glue[k + 1];
            let variants = [content, content.trim(), content.trim_end(), content.trim_start()];
            let words = variants.into_iter().find(|words| {
                text[at..]
                    .strip_prefix(words)
                    .is_some_and(|rest| if k + 1 == self.answers.len() { rest == next } else { rest.starts_with(next) })
            })?;
            found.push(at..at + words.len() + self.ends[k].len());
            at += words.len() + next.len();
        }
        Some(found)
    }
}

/// The mark of answer `k`: private characters, which no template touches.
fn mark(k: usize) -> String {
    format!("\u{E000}{k}\u{E001}")
}

fn split_at_marks(text: &str, count: usize) -> Option<Vec<String>> {
    let mut glue = Vec::with_capacity(count + 1);
    let mut rest = text;
    for k in 0..count {
        let (before, after) = rest.split_once(&mark(k))?;
        glue.push(before.to_owned());
        rest = after;
    }
    glue.push(rest.to_owned());
    // A mark left over was rendered twice or out of order.
    (!glue.iter().any(|piece| piece.contains('\u{E000}'))).then_some(glue)
}

fn lost(jinja: &Jinja, found: &str) -> Error {
    Error::file(
        jinja.origin(),
        "a chat template in which the assistant's words can be found exactly",
        found,
        "mend the template or the conversation; nothing is trained on a guessed mask",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ChatTemplate;

    const CHATML: &str = "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content | trim + '<|im_end|>\n' }}{% endfor %}\
                          {% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";
    const R1: &str = "{% for m in messages %}{% if m.role == 'user' %}{{ '<U>' + m.content }}{% else %}{% set c = m.content %}\
                      {% if '</think>' in c %}{% set c = c.split('</think>')[-1] %}{% endif %}{{ '<A>' + c + '<E>' }}{% endif %}\
                      {% endfor %}{% if add_generation_prompt %}{{ '<A><think>\n' }}{% endif %}";

    fn spans(template: &str, messages: &[Message]) -> Result<Vec<String>> {
        let rendered = ChatTemplate::from_text(template, "<s>", "</s>")?.conversation(messages)?;
        Ok(rendered.assistant.iter().map(|span| rendered.text[span.clone()].to_owned()).collect())
    }

    #[test]
    fn turns_with_their_ends_trimmed_or_repeated_words_included() {
        // The user says the same words, so a plain search would find the wrong place.
        let talk =
            [Message::user("yes"), Message::assistant(" yes \n"), Message::user("yes"), Message::assistant("yes")];
        assert_eq!(spans(CHATML, &talk).unwrap(), ["yes<|im_end|>", "yes<|im_end|>"]);
        assert_eq!(spans(CHATML, &talk[..3]).unwrap(), ["yes<|im_end|>"]);
        assert_eq!(spans(CHATML, &[Message::user("a"), Message::assistant("")]).unwrap(), ["<|im_end|>"]);
    }

    #[test]
    fn a_template_without_the_assistants_words_is_an_error() {
        let silent = "{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}{% endif %}{% endfor %}";
        let twice = "{% for m in messages %}{{ m.content + m.content }}{% endfor %}";
        let shouting = "{% for m in messages %}{{ m.content | upper }}{% endfor %}";
        let talk = [Message::user("hi"), Message::assistant("ho")];
        for template in [silent, twice] {
            let message = spans(template, &talk).unwrap_err().to_string();
            assert!(message.contains("can be found exactly"), "{message}");
        }
        assert!(spans(shouting, &talk).is_err());
        assert!(spans(CHATML, &talk[..1]).unwrap_err().to_string().contains("assistant turn"));
    }

    #[test]
    fn a_template_without_markers_still_finds_the_answer_alone() {
        let bare = "{% for m in messages %}{{ m.content + ' ' }}{% endfor %}";
        assert_eq!(spans(bare, &[Message::user("hi"), Message::assistant("ho")]).unwrap(), ["ho"]);
    }

    #[test]
    fn thoughts_are_trained_as_the_model_wrote_them_or_refused() {
        let thought = "<think>\nadd\n</think>\n\n4";
        let last = [Message::user("2+2?"), Message::assistant(thought)];
        assert_eq!(spans(R1, &last).unwrap(), ["add\n</think>\n\n4<E>"]);
        let unopened = [Message::user("2+2?"), Message::assistant("add\n</think>\n\n4")];
        assert_eq!(spans(R1, &unopened).unwrap(), ["add\n</think>\n\n4<E>"]);
        assert_eq!(spans(R1, &[Message::user("hi"), Message::assistant("ho")]).unwrap(), ["ho<E>"]);
        // A stripped thought in the past would teach words that no prompt ever holds.
        let past = [&last[..], &[Message::user("and?"), Message::assistant("no thought")]].concat();
        assert!(spans(R1, &past).is_err());
    }
}
