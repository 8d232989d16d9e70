//! Templates: literal text with parts like `{event.id}` in it.
//!
//! This is about text alone. Which parameter a part belongs to is decided in [`check`](crate::check).

use std::fmt::Write as _;

/// A template that keeps the rules of its grammar.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Template {
    /// As the user wrote it.
    pub(crate) source: String,
    /// The text before, between and after the parts, one more than there are parts, with the braces unescaped.
    pub(crate) literals: Vec<String>,
    pub(crate) parts: Vec<Part>,
}

/// `{root.step.step}`
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// As written between the braces.
    pub(crate) text: String,
    /// The parameter, without `r#`.
    pub(crate) root: String,
    pub(crate) steps: Vec<Step>,
}

/// How a part gets from its parameter to its value. Names are without `r#`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// `.name`
    Field(String),
    /// `.0`
    Index(u32),
    /// `.name()`
    Method(String),
}

/// Words that cannot name a field, not even as `r#…`.
const NEVER_NAMES: [&str; 5] = ["_", "self", "Self", "super", "crate"];

impl Default for Template {
    /// The empty template.
    fn default() -> Self {
        Self { source: String::new(), literals: vec![String::new()], parts: Vec::new() }
    }
}

impl Template {
    /// Reads a template.
    ///
    /// # Errors
    ///
    /// Everything that is wrong with it.
    pub(crate) fn parse(source: &str) -> Result<Self, Vec<String>> {
        let (template, problems) = Self::read(source);
        if problems.is_empty() { Ok(template) } else { Err(problems) }
    }

    /// Reads what there is of a template, and everything that is wrong with it.
    pub(crate) fn read(source: &str) -> (Self, Vec<String>) {
        let mut reader = Reader { rest: source, ..Reader::default() };
        reader.read();
        let mut template = Self { source: source.to_owned(), literals: reader.literals, parts: reader.parts };
        template.literals.push(reader.literal);
        let mut problems = reader.problems;
        template.check_literals(&mut problems);
        // Broken parts have been reported, and would only give wrong neighbours here.
        if problems.is_empty() {
            template.check_separators(&mut problems);
        }
        (template, problems)
    }

    /// Literal text stands in the stored form as it is, so it must be visible ASCII and leave `%` to the encoding.
    fn check_literals(&self, problems: &mut Vec<String>) {
        let mut refused: Vec<char> = Vec::new();
        for char in self.literals.iter().flat_map(|literal| literal.chars()) {
            if (!char.is_ascii_graphic() || char == '%') && !refused.contains(&char) {
                refused.push(char);
            }
        }
        if let Some(at) = refused.iter().position(|char| *char == '%') {
            refused.remove(at);
            problems
                .push(format!("`%` in `{}` marks encoded bytes in stored keys: write another character", self.source));
        }
        if !refused.is_empty() {
            let refused: Vec<String> = refused.into_iter().map(shown).collect();
            problems.push(format!(
                "{} in the text of `{}` cannot be stored: write visible ASCII characters like `-` or `:` instead",
                refused.join(" and "),
                self.source
            ));
        }
    }

    /// Values have the punctuation of the literal text encoded, so a separator that starts with punctuation cannot be
    /// mistaken for a part of the value before it.
    fn check_separators(&self, problems: &mut Vec<String>) {
        for (pair, separator) in self.parts.windows(2).zip(self.literals.iter().skip(1)) {
            let [left, right] = pair else { continue };
            let (left, right) = (&left.text, &right.text);
            match separator.chars().next() {
                None => problems.push(format!(
                    "nothing separates `{{{left}}}` from `{{{right}}}`, so that `ab` and `c` would be the same key as \
                     `a` and `bc`: write `{{{left}}}:{{{right}}}`"
                )),
                Some(char) if !char.is_ascii_punctuation() => problems.push(format!(
                    "`{separator}` between `{{{left}}}` and `{{{right}}}` could be a part of a value: start it with \
                     punctuation, `{{{left}}}:{separator}{{{right}}}`"
                )),
                Some(_) => {}
            }
        }
    }
}

#[derive(Default)]
struct Reader<'a> {
    rest: &'a str,
    literal: String,
    literals: Vec<String>,
    parts: Vec<Part>,
    problems: Vec<String>,
}

impl Reader<'_> {
    fn read(&mut self) {
        while let Some(char) = self.rest.chars().next() {
            let doubled = self.rest[char.len_utf8()..].starts_with(char);
            match char {
                '{' | '}' if doubled => {
                    self.literal.push(char);
                    self.rest = &self.rest[2..];
                }
                '{' => self.read_part(),
                '}' => {
                    let path = self.path_before();
                    self.problems
                        .push(format!("`}}` closes nothing: write `{{{path}}}`, or `}}}}` for the character itself"));
                    self.rest = &self.rest[1..];
                }
                _ => {
                    self.literal.push(char);
                    self.rest = &self.rest[char.len_utf8()..];
                }
            }
        }
    }

    /// What looks like a part before a brace that was not opened.
    fn path_before(&self) -> &str {
        let path = self.literal.rsplit(|char: char| !char.is_alphanumeric() && !matches!(char, '_' | '.')).next();
        path.filter(|path| Part::parse(path).is_ok()).unwrap_or("event.id")
    }

    fn read_part(&mut self) {
        let inside = &self.rest[1..];
        let end = inside.find(['{', '}']).unwrap_or(inside.len());
        let (text, after) = inside.split_at(end);
        if let Some(after) = after.strip_prefix('}') {
            self.rest = after;
            match Part::parse(text) {
                Ok(part) => {
                    self.literals.push(std::mem::take(&mut self.literal));
                    self.parts.push(part);
                }
                Err(problem) => self.problems.push(problem),
            }
        } else {
            let path: String = text.chars().take_while(|c| c.is_alphanumeric() || matches!(c, '_' | '.')).collect();
            let path = if path.is_empty() { "event.id" } else { &path };
            self.problems
                .push(format!("`{{{text}` is not closed: write `{{{path}}}`, or `{{{{` for the character itself"));
            self.rest = after;
        }
    }
}

impl Part {
    /// Reads what stands between the braces.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if text.trim().is_empty() {
            return Err("`{}` names nothing: write a field of a parameter, like `{event.id}`".into());
        }
        if text.trim() != text {
            return Err(format!("spaces in `{{{text}}}`: write `{{{}}}`", text.trim()));
        }
        if let Some((path, spec)) = text.split_once(':').filter(|(_, spec)| !spec.starts_with(':')) {
            let path = if path.is_empty() { "event.id" } else { path };
            return Err(format!("`:{spec}` is a format spec, and a key holds the value as it is: write `{{{path}}}`"));
        }
        let mut pieces = text.split('.');
        let root = pieces.next().unwrap_or_default();
        let Some(root) = name(root).filter(|name| name == "self" || !NEVER_NAMES.contains(&name.as_str())) else {
            return Err(not_a_path(text));
        };
        let steps = pieces.map(Step::parse).collect::<Option<Vec<_>>>().ok_or_else(|| not_a_path(text))?;
        Ok(Self { text: text.to_owned(), root, steps })
    }

    /// `.id`, `.items.len()`; empty for the parameter itself.
    pub(crate) fn path(&self) -> String {
        self.steps.iter().fold(String::new(), |mut path, step| {
            // Writing to a `String` cannot fail.
            let _ = match step {
                Step::Field(name) => write!(path, ".{name}"),
                Step::Index(index) => write!(path, ".{index}"),
                Step::Method(name) => write!(path, ".{name}()"),
            };
            path
        })
    }
}

impl Step {
    fn parse(text: &str) -> Option<Self> {
        if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
            let index: u32 = text.parse().ok()?;
            // The compiler knows `.1`, and no `.01`.
            return (index.to_string() == text).then_some(Self::Index(index));
        }
        let (text, method) = text.strip_suffix("()").map_or((text, false), |text| (text, true));
        let name = name(text).filter(|name| !NEVER_NAMES.contains(&name.as_str()))?;
        Some(if method { Self::Method(name) } else { Self::Field(name) })
    }
}

fn shown(char: char) -> String {
    if char == ' ' { "a space".to_owned() } else { format!("{char:?}") }
}

fn not_a_path(text: &str) -> String {
    let generates = ["new_v4", "new_v7", "now_v", "rand", "now()"].iter().any(|word| text.contains(word));
    if generates {
        format!(
            "`{{{text}}}` would be another value at each redelivery: write a field of the message that stays the \
             same, like `{{event.id}}`"
        )
    } else {
        format!(
            "`{{{text}}}` is an expression: write a parameter and its fields, like `{{event.id}}`, `{{pair.0}}` or \
             `{{event.id()}}`"
        )
    }
}

/// The identifier without `r#`, if it is one.
fn name(text: &str) -> Option<String> {
    let text = text.strip_prefix("r#").unwrap_or(text);
    let mut chars = text.chars();
    let starts = chars.next().is_some_and(|first| first == '_' || first.is_alphabetic());
    if !starts || !chars.all(|char| char == '_' || char.is_alphanumeric()) {
        return None;
    }
    // Outside ASCII only the compiler's own tables know; a wrong guess would make `Ident::new` panic.
    let known = text.is_ascii() || syn::parse_str::<syn::Ident>(text).is_ok();
    known.then(|| text.to_owned())
}

#[cfg(test)]
#[path = "template_tests.rs"]
mod tests;
