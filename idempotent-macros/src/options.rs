//! The options of `#[idempotent(…)]`: one table, and the parser that reads what it lists.
//!
//! The table is the only place that knows the options' names. The parser, the error texts, the suggestion after a
//! misspelt name, the attribute's documentation and the handlers' documentation are made from it.

use proc_macro2::{Delimiter, Ident, TokenStream, TokenTree};
use quote::ToTokens as _;
use syn::ext::IdentExt as _;
use syn::parse::{ParseStream, Parser as _};
use syn::{LitInt, LitStr, Path};

use crate::display::display;
use crate::document;
use crate::errors::Errors;
use crate::settings::Settings;
use crate::suggest::nearest;

/// What may stand behind an option's name.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Form {
    /// `name = "text"`
    Text,
    /// `name = path`
    Path,
    /// `name`
    Flag,
    /// `name = 3`
    Count,
    /// `name(entity = "text", number = "text")`
    Sequence,
}

/// One option.
pub(crate) struct Entry {
    pub(crate) name: Name,
    /// As the user types it.
    pub(crate) text: &'static str,
    form: Form,
    /// A correct use, for error texts.
    pub(crate) example: &'static str,
    /// What the documentation of a handler says about it, nothing if it is not in force.
    pub(crate) in_force: fn(&Settings) -> String,
}

/// Declares [`Name`], [`TABLE`] and the table's documentation from the same lines.
macro_rules! options {
    ($( $name:ident $text:literal : $form:ident, $example:literal, $in_force:expr, $summary:literal; )+) => {
        /// The options' names.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Name { $( $name ),+ }

        /// Every option there is.
        pub(crate) const TABLE: &[Entry] = &[$(
            Entry { name: Name::$name, text: $text, form: Form::$form, example: $example, in_force: $in_force }
        ),+];

        /// The options as a Markdown table, for the documentation of the attribute.
        macro_rules! option_table {
            () => {
                concat!("| option | meaning |\n|---|---|\n", $( "| `", $example, "` | ", $summary, " |\n" ),+)
            };
        }
    };
}

options! {
    Key "key": Text, r#"key = "{event.id}""#, document::nothing,
        "What identifies a message: fields of the parameters in braces, with punctuation between them. Required, unless `sequence` stands alone";
    Consumer "consumer": Text, r#"consumer = "billing.grant-credit""#, document::consumer,
        "The stable name of this handler, 1 to 128 visible ASCII characters. Default: `{package}.{function}`";
    Sender "sender": Text, r#"sender = "stripe""#, document::sender,
        "Who delivers: ids are unique only within their sender. A name, or a template like `\"{event.source}\"`. Default: none";
    Retention "retention": Text, r#"retention = "30d""#, document::retention,
        "How long a processed key is remembered: a number and `s`, `m`, `h`, `d` or `w`. Default: `7d`";
    Horizon "horizon": Text, r#"horizon = "3d""#, document::nothing,
        "How late the sender may still redeliver. It does not compile unless the retention is longer";
    Missing "missing": Text, r#"missing = "reject""#, document::missing,
        "What to do when a part of the key, of the sender or of the entity is absent, empty or blank: `\"reject\"` it, or `\"process\"` it without protection, not with `replay` and `fingerprint`. Allows `Option` in these templates";
    OccurredAt "occurred_at": Text, r#"occurred_at = "event.created_at""#, document::occurred_at,
        "The producer's own timestamp: a parameter, a field or a method, of a type that is a `Timestamp`. A message older than the retention is not run (`Error::Expired`), since nobody could tell any more whether it was processed; its claim is kept until that time and the retention are over";
    Expired "expired": Text, r#"expired = "skip""#, document::nothing,
        "A message that is too old is acknowledged as `Outcome::Expired`, instead of refused with `Error::Expired`. Needs `occurred_at`";
    Sequence "sequence": Sequence, r#"sequence(entity = "{order.id}", number = "order.version")"#, document::sequence,
        "Runs only what is newer than the last applied message of the same entity, a template; the rest is `Outcome::Stale`. The number is a parameter, a field or a method: an integer that fits `i64`, or a `Timestamp`. Without `key`, this alone decides, as for the offsets of a stream, and `missing`, `occurred_at`, `retention`, `horizon`, `replay` and `fingerprint` have nothing to be about";
    Fingerprint "fingerprint": Text, r#"fingerprint = "{cmd.account}/{cmd.cents}""#, document::fingerprint,
        "What the key stands for: the same key with another content is refused with `Error::FingerprintMismatch`. A template in which `Option` is always allowed; kept as a digest";
    Replay "replay": Flag, "replay", document::replay,
        "Stores what the handler returns with `Ok`, as JSON of at most 1 MiB, and gives it to duplicates as `Outcome::Replayed`. Needs the feature `replay`";
    Each "each": Text, r#"each = "event in events""#, document::nothing,
        "Takes a batch: the parameter is a `Vec`, of which the body gets the fresh items, claimed together; the templates name one item. The handler returns `Batch` instead of `Outcome`";
    Wait "wait": Text, r#"wait = "5s""#, document::wait,
        "How long to wait for another delivery that is processing the same key, before `Error::InProgress`; `\"0s\"` answers at once. `ms` too. Default: `5s`";
    Retry "retry": Count, "retry = 3", document::retry,
        "How often the body may run again after a transient error of the database, each time in a new transaction. Its arguments must be shared references or `Clone`. Default: 0";
    Isolation "isolation": Text, r#"isolation = "serializable""#, document::isolation,
        "The isolation of the handler's transaction: `\"serializable\"`, `\"repeatable read\"` or `\"read committed\"`. Not for joining. Default: the database's";
    Crate "crate": Path, "crate = my_facade::idempotent_runtime", document::nothing,
        "Where `idempotent_runtime` is found, if another crate re-exports it. A dependency that `Cargo.toml` renames is found by itself";
}

impl Name {
    pub(crate) fn entry(self) -> &'static Entry {
        TABLE.iter().find(|entry| entry.name == self).unwrap_or(&TABLE[0])
    }

    fn find(text: &str) -> Option<Self> {
        TABLE.iter().find(|entry| entry.text == text).map(|entry| entry.name)
    }
}

/// What the user gave an option.
enum Value {
    Text(LitStr),
    Path(Path),
    Flag(Ident),
    Count(LitInt),
    Sequence(SequenceTexts),
    /// Something that has been reported, so that nobody reports that it is missing.
    Wrong,
}

/// What stands between the parentheses of `sequence`.
#[derive(Clone)]
pub(crate) struct SequenceTexts {
    pub(crate) entity: LitStr,
    pub(crate) number: LitStr,
}

/// The options as the user wrote them.
#[derive(Default)]
pub(crate) struct Options(Vec<(Name, Value)>);

impl Options {
    /// Reads the attribute's arguments. A wrong option is reported and does not hide its neighbours.
    pub(crate) fn parse(arguments: TokenStream, errors: &mut Errors) -> Self {
        let mut options = Self::default();
        for argument in split(arguments, errors) {
            options.add(argument, errors);
        }
        options
    }

    /// Was it written at all, be it wrongly?
    pub(crate) fn mentions(&self, name: Name) -> bool {
        self.0.iter().any(|(known, _)| *known == name)
    }

    pub(crate) fn text(&self, name: Name) -> Option<&LitStr> {
        self.0.iter().find_map(|(known, value)| match value {
            Value::Text(text) if *known == name => Some(text),
            _ => None,
        })
    }

    pub(crate) fn path(&self, name: Name) -> Option<&Path> {
        self.0.iter().find_map(|(known, value)| match value {
            Value::Path(path) if *known == name => Some(path),
            _ => None,
        })
    }

    pub(crate) fn sequence(&self) -> Option<&SequenceTexts> {
        self.0.iter().find_map(|(_, value)| match value {
            Value::Sequence(texts) => Some(texts),
            _ => None,
        })
    }

    /// Where a flag stands, if it is set.
    pub(crate) fn flag(&self, name: Name) -> Option<&Ident> {
        self.0.iter().find_map(|(known, value)| match value {
            Value::Flag(ident) if *known == name => Some(ident),
            _ => None,
        })
    }

    pub(crate) fn count(&self, name: Name) -> Option<&LitInt> {
        self.0.iter().find_map(|(known, value)| match value {
            Value::Count(count) if *known == name => Some(count),
            _ => None,
        })
    }

    /// Something to point at when the option should not be there.
    pub(crate) fn place(&self, name: Name) -> Option<TokenStream> {
        self.0.iter().find(|(known, _)| *known == name).map(|(_, value)| match value {
            Value::Text(text) => text.to_token_stream(),
            Value::Path(path) => path.to_token_stream(),
            Value::Flag(ident) => ident.to_token_stream(),
            Value::Count(count) => count.to_token_stream(),
            Value::Sequence(texts) => texts.entity.to_token_stream(),
            Value::Wrong => TokenStream::new(),
        })
    }

    fn add(&mut self, argument: Vec<TokenTree>, errors: &mut Errors) {
        let mut tokens = argument.into_iter();
        let Some(first) = tokens.next() else { return };
        let TokenTree::Ident(ident) = first else {
            let whole: TokenStream = std::iter::once(first).chain(tokens).collect();
            // Text alone is meant as the key.
            let text = syn::parse2::<LitStr>(whole.clone()).ok().filter(|_| !self.mentions(Name::Key));
            let example = text.map_or_else(
                || Name::Key.entry().example.to_owned(),
                |text| {
                    self.0.push((Name::Key, Value::Wrong));
                    format!("key = {}", text.to_token_stream())
                },
            );
            return errors.on(whole, format_args!("an option starts with its name: write `{example}`"));
        };
        let Some(name) = Name::find(&ident.unraw().to_string()) else { return unknown(&ident, errors) };
        if self.mentions(name) {
            return errors.on(&ident, format_args!("`{ident}` is given twice: keep one of the two"));
        }
        let value = name.entry().read(&ident, tokens).unwrap_or_else(|error| {
            errors.push(error);
            Value::Wrong
        });
        self.0.push((name, value));
    }
}

impl Entry {
    /// Reads what follows the name.
    fn read(&self, ident: &Ident, mut tokens: impl Iterator<Item = TokenTree>) -> syn::Result<Value> {
        let Self { text, form, example, .. } = self;
        let next = tokens.next();
        match (form, next) {
            (Form::Flag, None) => Ok(Value::Flag(ident.clone())),
            (Form::Flag, Some(other)) => {
                let wrong: TokenStream = std::iter::once(other).chain(tokens).collect();
                Err(syn::Error::new_spanned(wrong, format!("`{text}` takes no value: write `{text}` alone")))
            }
            (Form::Sequence, Some(TokenTree::Group(group))) if group.delimiter() == Delimiter::Parenthesis => {
                let rest: TokenStream = tokens.collect();
                if !rest.is_empty() {
                    return Err(syn::Error::new_spanned(
                        rest,
                        format!("there is no comma behind `{text}(…)`: write one"),
                    ));
                }
                SequenceTexts::parse(ident, group.stream(), example).map(Value::Sequence)
            }
            (Form::Sequence, other) => {
                let wrong: TokenStream = other.into_iter().chain(tokens).collect();
                let wrong = if wrong.is_empty() { ident.to_token_stream() } else { wrong };
                let message =
                    format!("`{text}` is followed by its entity and number in parentheses: write `{example}`");
                Err(syn::Error::new_spanned(wrong, message))
            }
            (Form::Text | Form::Path | Form::Count, next) => self.read_value(ident, next, tokens),
        }
    }

    /// Reads `= value`.
    fn read_value(
        &self,
        ident: &Ident,
        next: Option<TokenTree>,
        tokens: impl Iterator<Item = TokenTree>,
    ) -> syn::Result<Value> {
        let Self { text, form, example, .. } = self;
        match next {
            Some(TokenTree::Punct(punct)) if punct.as_char() == '=' => {}
            Some(other) => {
                let wrong: TokenStream = std::iter::once(other).chain(tokens).collect();
                let message = format!("`{text}` is followed by `=` and its value: write `{example}`");
                return Err(syn::Error::new_spanned(wrong, message));
            }
            None => return Err(syn::Error::new_spanned(ident, format!("`{text}` has no value: write `{example}`"))),
        }
        let value: TokenStream = tokens.collect();
        if value.is_empty() {
            return Err(syn::Error::new_spanned(ident, format!("`{text}` has no value: write `{example}`")));
        }
        let parser = |input: ParseStream<'_>| {
            let parsed = match form {
                Form::Path => input.call(Path::parse_mod_style).map(Value::Path),
                Form::Count => input.parse().map(Value::Count),
                Form::Text | Form::Flag | Form::Sequence => input.parse().map(Value::Text),
            };
            let rest: TokenStream = input.parse()?;
            Ok((parsed, rest))
        };
        match parser.parse2(value.clone())? {
            (Ok(parsed), rest) if rest.is_empty() => Ok(parsed),
            (Ok(_), rest) => {
                let next = rest.clone().into_iter().next().map(|token| token.to_string()).unwrap_or_default();
                let message = if Name::find(&next).is_some() {
                    format!("there is no comma before `{next}`: write `{example}, {next} = …`")
                } else {
                    format!("the value of `{text}` ends before `{next}`: write `{example}`")
                };
                Err(syn::Error::new_spanned(rest, message))
            }
            (Err(_), _) => Err(syn::Error::new_spanned(&value, self.wrong_kind(&value))),
        }
    }

    fn wrong_kind(&self, value: &TokenStream) -> String {
        let Self { text, form, example, .. } = self;
        match form {
            Form::Text => match field_path(value) {
                Some(path) if matches!(self.name, Name::Key | Name::Sender | Name::Fingerprint) => {
                    format!("`{text}` is a template in quotes: write `{text} = \"{{{path}}}\"`")
                }
                Some(path) if self.name == Name::OccurredAt => {
                    format!("`{text}` is a field in quotes: write `{text} = \"{path}\"`")
                }
                _ => format!("`{text}` is text in quotes: write `{example}`"),
            },
            Form::Count => format!("`{text}` is a whole number without quotes: write `{example}`"),
            Form::Path | Form::Flag | Form::Sequence => {
                let path = syn::parse2::<LitStr>(value.clone()).and_then(|text| text.parse_with(Path::parse_mod_style));
                let example =
                    path.map_or_else(|_| (*example).to_owned(), |path| format!("{text} = {}", display(&path)));
                format!("`{text}` is a path without quotes: write `{example}`")
            }
        }
    }
}

impl SequenceTexts {
    /// Reads what stands between the parentheses.
    fn parse(sequence: &Ident, arguments: TokenStream, example: &str) -> syn::Result<Self> {
        let (mut entity, mut number) = (None, None);
        let mut errors = Errors::default();
        for argument in split(arguments, &mut errors) {
            let whole: TokenStream = argument.iter().cloned().collect();
            let Some(TokenTree::Ident(name)) = argument.first() else {
                if !whole.is_empty() {
                    errors.on(whole, format_args!("`sequence` holds names and their values: write `{example}`"));
                }
                continue;
            };
            let place = match name.to_string().as_str() {
                "entity" => &mut entity,
                "number" => &mut number,
                other => {
                    let name_of = if nearest(other, ["entity"]).is_some() { "entity" } else { "number" };
                    errors.on(name, format_args!("`sequence` has no `{other}`: write `{name_of}`, as in `{example}`"));
                    continue;
                }
            };
            if place.is_some() {
                errors.on(name, format_args!("`{name}` is given twice: keep one of the two"));
                continue;
            }
            if !matches!(argument.get(1), Some(TokenTree::Punct(punct)) if punct.as_char() == '=') {
                errors.on(&whole, format_args!("`{name}` is followed by `=` and its value: write `{example}`"));
                *place = Some(LitStr::new("", name.span()));
                continue;
            }
            let value: TokenStream = argument[2..].iter().cloned().collect();
            *place = syn::parse2(value.clone()).ok();
            if place.is_none() {
                let wrong = if value.is_empty() { whole } else { value };
                errors.on(wrong, format_args!("`{name}` is text in quotes: write `{example}`"));
                *place = Some(LitStr::new("", name.span()));
            }
        }
        for (name, given, what) in [
            ("entity", entity.is_some(), "whose order is kept"),
            ("number", number.is_some(), "which of two messages is newer"),
        ] {
            if !given && errors.is_empty() {
                errors.on(sequence, format_args!("`sequence` does not say {what}: add `{name}`, as in `{example}`"));
            }
        }
        match (errors.into_error(), entity, number) {
            (None, Some(entity), Some(number)) => Ok(Self { entity, number }),
            (error, ..) => Err(error.unwrap_or_else(|| syn::Error::new_spanned(sequence, example))),
        }
    }
}

fn unknown(ident: &Ident, errors: &mut Errors) {
    let nearest = nearest(&ident.to_string(), TABLE.iter().map(|entry| entry.text));
    let message = nearest.map_or_else(
        || {
            let names: Vec<String> = TABLE.iter().map(|entry| format!("`{}`", entry.text)).collect();
            format!("there is no option `{ident}`: the options are {}", names.join(", "))
        },
        |name| format!("there is no option `{ident}`: write `{name}`"),
    );
    errors.on(ident, message);
}

/// `event.id` without spaces, if that is what the tokens look like.
fn field_path(value: &TokenStream) -> Option<String> {
    let looks = |token: &TokenTree| match token {
        TokenTree::Ident(_) => true,
        TokenTree::Punct(punct) => punct.as_char() == '.',
        TokenTree::Group(group) => group.stream().is_empty(),
        TokenTree::Literal(_) => false,
    };
    let starts_with_name = matches!(value.clone().into_iter().next(), Some(TokenTree::Ident(_)));
    (starts_with_name && value.clone().into_iter().all(|token| looks(&token)))
        .then(|| value.to_string().split_whitespace().collect())
}

/// The arguments between the commas.
fn split(arguments: TokenStream, errors: &mut Errors) -> Vec<Vec<TokenTree>> {
    let mut split = Vec::new();
    let mut argument = Vec::new();
    for token in arguments {
        match token {
            TokenTree::Punct(comma) if comma.as_char() == ',' => {
                if argument.is_empty() {
                    errors.at(comma.span(), "this comma separates nothing: remove it");
                }
                split.push(std::mem::take(&mut argument));
            }
            token => argument.push(token),
        }
    }
    split.push(argument);
    split
}
