//! What the options say, checked: the identity of a handler's messages and how long it is kept.

use proc_macro2::{Ident, Span};
use syn::LitStr;

use crate::duration::Duration;
use crate::errors::Errors;
use crate::options::{Name, Options};
use crate::signature::{Role, Signature, plain_name};
use crate::suggest::nearest;
use crate::template::{Part, Template};

/// Longest consumer name, and longest literal text of a sender, in bytes.
const LONGEST_NAME: usize = 128;

/// The options of a handler.
pub(crate) struct Settings {
    pub(crate) key: Identity,
    pub(crate) sender: Identity,
    pub(crate) consumer: Consumer,
    pub(crate) retention: Duration,
    pub(crate) horizon: Option<Duration>,
    pub(crate) missing: Option<Missing>,
}

/// The name of a handler.
pub(crate) struct Consumer {
    pub(crate) name: String,
    /// Did the user choose it, or was it made from the names of package and function?
    pub(crate) chosen: bool,
}

/// What happens to a message without a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    Reject,
    Process,
}

/// A template whose parts are known to belong to parameters.
#[derive(Default)]
pub(crate) struct Identity {
    pub(crate) template: Template,
    /// For each part of the template, where it starts.
    pub(crate) roots: Vec<Root>,
}

/// The parameter, or the name in a parameter's pattern, that a part starts with.
pub(crate) struct Root {
    /// Resolves as the parameter does, and is located at the template.
    pub(crate) ident: Ident,
    /// The parameter, `None` for `self`.
    pub(crate) parameter: Option<usize>,
}

impl Settings {
    /// Checks the options; what is wrong has been reported when it returns.
    pub(crate) fn read(options: &Options, signature: &Signature, package: Option<&str>, errors: &mut Errors) -> Self {
        let retention = duration(options, Name::Retention, errors);
        let horizon = duration(options, Name::Horizon, errors);
        if let (Some(horizon), Some(text)) = (horizon, options.text(Name::Horizon)) {
            // A retention that is there and wrong says nothing about the horizon.
            let kept = retention.or_else(|| (!options.mentions(Name::Retention)).then_some(Duration::WEEK));
            if let Some(kept) = kept.filter(|kept| kept.secs() <= horizon.secs()) {
                errors.on(text, too_late(horizon, kept, retention.is_none()));
            }
        }
        let missing = missing(options, errors);
        if let (Some(Missing::Process), Some(claim)) = (missing, signature.with_role(Role::Claim).next()) {
            errors.on(
                &claim.ty,
                "`missing = \"process\"` runs messages without a key, which have no claim: remove this parameter, or \
                 write `missing = \"reject\"`",
            );
        }
        let key = Identity::read(options, Name::Key, signature, errors);
        check_key(options, key.as_ref(), signature, errors);
        let sender = Identity::read(options, Name::Sender, signature, errors);
        if let (Some(sender), Some(text)) = (&sender, options.text(Name::Sender)) {
            let length: usize = sender.template.literals.iter().map(String::len).sum();
            if length > LONGEST_NAME {
                let message = format!("the text of `sender` is {length} bytes long: write at most {LONGEST_NAME}");
                errors.on(text, message);
            }
        }
        Self {
            key: key.unwrap_or_default(),
            sender: sender.unwrap_or_default(),
            consumer: consumer(options, signature, package, errors),
            retention: retention.unwrap_or(Duration::WEEK),
            horizon,
            missing,
        }
    }
}

fn too_late(horizon: Duration, retention: Duration, default: bool) -> String {
    let by_default = if default { ", the default" } else { "" };
    format!(
        "a message that the sender redelivers after {} finds its claim gone, since `retention` is {}{by_default}: write \
         `retention = \"{}\"`, or a shorter horizon",
        horizon.long(),
        retention.long(),
        horizon.doubled().short(),
    )
}

fn duration(options: &Options, name: Name, errors: &mut Errors) -> Option<Duration> {
    let text = options.text(name)?;
    let value = text.value();
    Duration::parse(&value)
        .map_err(|problem| {
            let example = name.entry().example;
            errors.on(
                text,
                format_args!(
                    "`{value}` {problem}: write a whole number of at least 1 and `s`, `m`, `h`, `d` or `w`, as in `{example}`"
                ),
            );
        })
        .ok()
}

fn missing(options: &Options, errors: &mut Errors) -> Option<Missing> {
    let text = options.text(Name::Missing)?;
    match text.value().as_str() {
        "reject" => Some(Missing::Reject),
        "process" => Some(Missing::Process),
        other => {
            errors.on(
                text,
                format_args!(
                    "`missing` cannot be `{other}`: write `missing = \"reject\"` to refuse messages without a key, or \
                     `missing = \"process\"` to run them without protection"
                ),
            );
            None
        }
    }
}

fn consumer(options: &Options, signature: &Signature, package: Option<&str>, errors: &mut Errors) -> Consumer {
    if let Some(text) = options.text(Name::Consumer) {
        let name = text.value();
        if let Some(problem) = name_problem(&name) {
            errors.on(
                text,
                format_args!(
                    "the consumer's name {problem}: write 1 to {LONGEST_NAME} visible ASCII characters, as in `{}`",
                    Name::Consumer.entry().example
                ),
            );
        }
        return Consumer { name, chosen: true };
    }
    let function = &signature.function.signature.ident;
    let name = format!("{}.{}", package.unwrap_or_default(), plain_name(function));
    let problem = if package.is_none() {
        Some("lacks the package, which only Cargo tells".to_owned())
    } else {
        name_problem(&name).map(|problem| format!("is `{name}`, which {problem}"))
    };
    if let Some(problem) = problem.filter(|_| !options.mentions(Name::Consumer)) {
        let example = Name::Consumer.entry().example;
        errors.on(function, format_args!("the default name of this consumer {problem}: choose one, as in `{example}`"));
    }
    Consumer { name, chosen: false }
}

fn name_problem(name: &str) -> Option<String> {
    match name.chars().find(|char| !char.is_ascii_graphic()) {
        _ if name.is_empty() => Some("is empty".into()),
        Some(' ') => Some("contains a space".into()),
        Some(char) => Some(format!("contains {char:?}")),
        None if name.len() > LONGEST_NAME => Some(format!("is {} characters long", name.len())),
        None => None,
    }
}

/// A key there must be, and one that differs from message to message.
fn check_key(options: &Options, key: Option<&Identity>, signature: &Signature, errors: &mut Errors) {
    if !options.mentions(Name::Key) {
        let example = example_part(signature);
        errors.at(
            Span::call_site(),
            format_args!(
                "there is no `key`: write which fields of the message identify it, as in `#[idempotent(key = \
                 \"{example}\")]`"
            ),
        );
    }
    let Some((key, text)) = key.zip(options.text(Name::Key)) else { return };
    if key.template.parts.is_empty() {
        let value = text.value();
        let advice = match Template::parse(&format!("{{{value}}}")) {
            Ok(path) if path.parts.first().is_some_and(|part| find(&part.root, signature).is_some()) => {
                format!("{{{value}}}")
            }
            _ => example_part(signature),
        };
        errors.on(
            text,
            format_args!(
                "{} has no part in braces, so that all messages would have one key: write `key = \"{advice}\"`",
                if value.is_empty() { "an empty key".to_owned() } else { format!("`{value}`") }
            ),
        );
    }
}

/// `{event.id}` with the name of a parameter that is there.
fn example_part(signature: &Signature) -> String {
    let name = signature
        .with_role(Role::Plain)
        .flat_map(|parameter| &parameter.bindings)
        .map(|binding| binding.inner.to_string())
        .find(|name| !name.starts_with('_'));
    format!("{{{}.id}}", name.as_deref().unwrap_or("event"))
}

impl Identity {
    fn read(options: &Options, name: Name, signature: &Signature, errors: &mut Errors) -> Option<Self> {
        let text = options.text(name)?;
        let (template, problems) = Template::read(&text.value());
        for problem in &problems {
            errors.on(text, problem);
        }
        let roots: Vec<_> = template.parts.iter().map(|part| Root::read(part, text, signature, errors)).collect();
        let roots: Option<Vec<_>> = roots.into_iter().collect();
        Some(Self { template, roots: roots.filter(|_| problems.is_empty())? })
    }

    /// The parts with their roots.
    pub(crate) fn parts(&self) -> impl Iterator<Item = (&Part, &Root)> {
        self.template.parts.iter().zip(&self.roots)
    }
}

impl Root {
    fn read(part: &Part, text: &LitStr, signature: &Signature, errors: &mut Errors) -> Option<Self> {
        let Part { text: path, root, .. } = part;
        let Some(found) = find(root, signature) else {
            let names = names(signature);
            let message = match (nearest(root, names.iter().map(String::as_str)), names.as_slice()) {
                _ if root == "self" => {
                    let example = example_part(signature);
                    format!("`{{{path}}}` means `self`, which this function does not have: write `{example}`")
                }
                (Some(name), _) => format!("there is no parameter `{root}`: write `{{{name}{}}}`", part.path()),
                (None, [name]) => format!("there is no parameter `{root}`: write `{{{name}{}}}`", part.path()),
                (None, []) => format!("there is no parameter `{root}`: add one with the message"),
                (None, names) => format!("there is no parameter `{root}`: write one of `{}`", names.join("`, `")),
            };
            errors.on(text, message);
            return None;
        };
        let refused = match found.role {
            Role::Plain => None,
            Role::Transaction => Some("the transaction"),
            Role::Claim => Some("the claim"),
        };
        if let Some(refused) = refused {
            let example = example_part(signature);
            errors.on(
                text,
                format_args!(
                    "`{{{path}}}` starts with {refused}, which is no part of the message: write a field of the message, \
                     like `{example}`"
                ),
            );
            return None;
        }
        let mut ident = found.ident;
        ident.set_span(text.span().resolved_at(ident.span()));
        Some(Self { ident, parameter: found.parameter })
    }
}

struct Found {
    ident: Ident,
    role: Role,
    parameter: Option<usize>,
}

/// What a name stands for in the signature.
fn find(name: &str, signature: &Signature) -> Option<Found> {
    if name == "self" {
        let ident = signature.receiver()?.into();
        return Some(Found { ident, role: Role::Plain, parameter: None });
    }
    signature.parameters.iter().enumerate().find_map(|(index, parameter)| {
        let binding = parameter.bindings.iter().find(|binding| plain_name(&binding.inner) == name)?;
        Some(Found { ident: binding.outer.clone(), role: parameter.role, parameter: Some(index) })
    })
}

/// Every name that a part may start with.
fn names(signature: &Signature) -> Vec<String> {
    let parameters = signature.with_role(Role::Plain).flat_map(|parameter| &parameter.bindings);
    let receiver = signature.receiver().map(|_| "self".to_owned());
    parameters.map(|binding| plain_name(&binding.inner)).chain(receiver).collect()
}
